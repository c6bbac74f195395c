"""Commands of the configuration: apply, plan, diff, export, revisions, rollback, schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from queue_manager.cli.client import DEFAULT_SERVER, Client
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import Output, Server, Token

Files = Annotated[list[str], typer.Option("--file", "-f", help="YAML file or folder, or - for stdin; repeatable.")]
SomeFiles = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="YAML file or folder, or - for stdin; repeatable.", show_default=False),
]
Owner = Annotated[str, typer.Option(help="Whose objects these are, for --prune.", show_default=False)]
Prune = Annotated[bool, typer.Option("--prune", help="Delete what a former apply of the owner made, now gone.")]
Rollback = Annotated[
    int | None, typer.Option(min=0, help="Instead of files: going back to this revision.", show_default=False)
]
Reason = Annotated[str, typer.Option(help="Why, for the revision.", show_default=False)]
IfPlan = Annotated[
    str, typer.Option(metavar="HASH", help="Only if the plan still is the one with this hash.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (apply, plan, diff, export, revisions, rollback, schema):
        app.command()(command)


def apply(
    file: Files,
    owner: Owner = "",
    prune: Prune = False,
    reason: Reason = "",
    if_plan: IfPlan = "",
    server: Server = DEFAULT_SERVER,
    token: Token = "",
    output: Output = Format.TABLE,
) -> None:
    """Create or change what files hold, all or none."""
    from queue_manager.cli.configuration import Asked, apply

    apply(Client(server, token), Asked(file, owner, prune), reason=reason, if_plan=if_plan, form=output)


def _told(name: str, words: str) -> Callable[..., None]:
    """A command that tells what a change would do."""

    def command(
        file: SomeFiles = None,
        rollback: Rollback = None,
        owner: Owner = "",
        prune: Prune = False,
        server: Server = DEFAULT_SERVER,
        token: Token = "",
        output: Output = Format.TABLE,
    ) -> None:
        from queue_manager.cli import configuration

        if bool(file) == (rollback is not None):
            raise typer.BadParameter("give either files or --rollback N", param_hint="--file")
        tell = {"plan": configuration.plan, "diff": configuration.diff}[name]
        tell(Client(server, token), configuration.Asked(file or (), owner, prune, rollback), output)

    command.__name__, command.__doc__ = name, words
    return command


plan = _told("plan", "Tell what `apply` or `rollback` would change, and whom that hurts or helps now. Changes nothing.")
diff = _told("diff", "Tell what `apply` or `rollback` would change, field by field. Changes nothing.")


def export(server: Server = DEFAULT_SERVER, token: Token = "", output: Output = Format.YAML) -> None:
    """Print the configuration as `apply` reads it."""
    from queue_manager.cli.configuration import export

    export(Client(server, token), output)


def revisions(
    number: Annotated[
        int | None, typer.Argument(min=1, metavar="[N]", help="One revision, field by field.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 20,
    server: Server = DEFAULT_SERVER,
    token: Token = "",
    output: Output = Format.TABLE,
) -> None:
    """List changes of the configuration: who, when, why; with a number, what exactly."""
    from queue_manager.cli.revisions import show_revision, show_revisions

    if number is None:
        show_revisions(Client(server, token), limit, output)
    else:
        show_revision(Client(server, token), number, output)


def rollback(
    number: Annotated[int, typer.Argument(min=0, metavar="N", help="The revision to go back to.")],
    reason: Reason = "",
    if_plan: IfPlan = "",
    server: Server = DEFAULT_SERVER,
    token: Token = "",
    output: Output = Format.TABLE,
) -> None:
    """Make the configuration what it was at a revision; that is a new revision."""
    from queue_manager.cli.revisions import roll_back

    roll_back(Client(server, token), number, reason=reason, if_plan=if_plan, form=output)


def schema() -> None:
    """Print the JSON Schema of configuration files, for editors. Needs no server."""
    from queue_manager.cli.output import print_data
    from queue_manager.config.json_schema import configuration_schema

    print_data(configuration_schema(), Format.JSON)
