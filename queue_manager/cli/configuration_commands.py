"""Commands of the configuration: apply, plan, diff, export, revisions, rollback, schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli.commanding import command
from queue_manager.cli.output import Data, Format
from queue_manager.cli.parameters import MOMENT, Fields, Output, Watch, fields_for

if TYPE_CHECKING:
    from queue_manager.cli.client import Client

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
DataForm = Annotated[Data, typer.Option("--output", "-o", help="Form of the answer.")]
Reason = Annotated[str, typer.Option(help="Why, for the revision.", show_default=False)]
IfPlan = Annotated[
    str, typer.Option(metavar="HASH", help="Only if the plan still is the one with this hash.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for function in (apply, plan, diff, export, revisions, rollback):
        command(app)(function)
    app.command()(schema)


def apply(
    client: Client,
    file: Files,
    owner: Owner = "",
    prune: Prune = False,
    reason: Reason = "",
    if_plan: IfPlan = "",
    output: Output = Format.TABLE,
) -> None:
    """Create or change what files hold, all or none."""
    from queue_manager.cli.configuration import Asked, apply

    apply(client, Asked(file, owner, prune), reason=reason, if_plan=if_plan, form=output)


def _told(name: str, words: str) -> Callable[..., None]:
    """A command that tells what a change would do."""

    def told(
        client: Client,
        file: SomeFiles = None,
        rollback: Rollback = None,
        owner: Owner = "",
        prune: Prune = False,
        output: Output = Format.TABLE,
    ) -> None:
        from queue_manager.cli import configuration

        if bool(file) == (rollback is not None):
            raise typer.BadParameter("give either files or --rollback N", param_hint="--file")
        tell = {"plan": configuration.plan, "diff": configuration.diff}[name]
        tell(client, configuration.Asked(file or (), owner, prune, rollback), output)

    told.__name__, told.__doc__ = name, words
    return told


plan = _told("plan", "Tell what `apply` or `rollback` would change, and whom that hurts or helps now. Changes nothing.")
diff = _told("diff", "Tell what `apply` or `rollback` would change, field by field. Changes nothing.")


def export(client: Client, output: Output = Format.YAML) -> None:
    """Print the configuration as `apply` reads it."""
    from queue_manager.cli.configuration import export

    export(client, output)


def revisions(
    client: Client,
    number: Annotated[
        int | None, typer.Argument(min=1, metavar="N", help="One revision, field by field.", show_default=False)
    ] = None,
    author: Annotated[str, typer.Option(help="Who made it.", show_default=False)] = "",
    since: Annotated[str, typer.Option("--from", help=f"Not before: {MOMENT}.", show_default=False)] = "",
    until: Annotated[str, typer.Option("--to", help="Before.", show_default=False)] = "",
    kind: Annotated[str, typer.Option(help="That touched an object of this kind.", show_default=False)] = "",
    object: Annotated[str, typer.Option(help="That touched this object: Queue/nlp ...", show_default=False)] = "",
    sort: Annotated[str, typer.Option(help="number: the oldest first.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 20,
    fields: Fields = "",
    output: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """List changes of the configuration: who, when, why; with a number, what exactly."""
    from queue_manager.cli.revisions import revisions, show_revision
    from queue_manager.cli.watch import present

    if number is None:
        query = {"author": author, "since": since, "until": until, "kind": kind, "object": object}
        query |= {"sort": sort, "fields": fields_for(fields, output)}
        present(client, revisions(client, query, limit), output, watch)
    elif watch:
        raise typer.BadParameter("a revision does not change: watch the list, without a number", param_hint="--watch")
    else:
        show_revision(client, number, output)


def rollback(
    client: Client,
    number: Annotated[int, typer.Argument(min=0, metavar="N", help="The revision to go back to.")],
    reason: Reason = "",
    if_plan: IfPlan = "",
    output: Output = Format.TABLE,
) -> None:
    """Make the configuration what it was at a revision; that is a new revision."""
    from queue_manager.cli.revisions import roll_back

    roll_back(client, number, reason=reason, if_plan=if_plan, form=output)


def schema(output: DataForm = Data.JSON) -> None:
    """Print the JSON Schema of configuration files, for editors. Needs no server."""
    from queue_manager.cli.output import print_data
    from queue_manager.config.json_schema import configuration_schema

    print_data(configuration_schema(), Format(output))
