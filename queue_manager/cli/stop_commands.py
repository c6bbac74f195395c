"""The commands `stop`, `drain` and `stops`: queues, local queues, cohorts and flavors that people stop by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.commanding import command
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import Output, Why

if TYPE_CHECKING:
    from queue_manager.cli.client import Client


class Policy(StrEnum):
    """What becomes of what is stopped; the words of Kueue's stopPolicy."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class What(StrEnum):
    """What can be stopped by a policy."""

    QUEUE = "queue"
    COHORT = "cohort"
    LOCAL_QUEUE = "local-queue"
    FLAVOR = "flavor"


LetFinish = Annotated[bool, typer.Option("--let-finish", help="What runs there runs on; nothing new is admitted.")]
Undo = Annotated[bool, typer.Option("--undo", help="End it: everything is admitted again.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for function in (stop, stops):
        command(app)(function)
    drain = typer.Typer(help="Empty a queue or a flavor, and admit nothing new to it.", no_args_is_help=True)
    command(drain, "queue")(drain_queue)
    command(drain, "flavor")(drain_flavor)
    app.add_typer(drain, name="drain")


def stop(
    client: Client,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A queue or cohort by name or path, a flavor, or NAMESPACE/NAME of a local queue.",
            autocompletion=complete.queues,
        ),
    ],
    policy: Annotated[
        Policy, typer.Option(help="Hold admits nothing new, HoldAndDrain evicts what runs, too; None ends it.")
    ],
    reason: Why,
    kind: Annotated[What, typer.Option(help="What it is.")] = What.QUEUE,
    output: Output = Format.TABLE,
) -> None:
    """Stop a queue, cohort, local queue or flavor. Applying a file does not undo it."""
    from queue_manager.cli.stops import set_stop

    set_stop(client, kind.value, name, policy.value, reason, output)


def stops(client: Client, output: Output = Format.TABLE) -> None:
    """List what is stopped by hand: since when, by whom and why."""
    from queue_manager.cli.stops import show_stops

    show_stops(client, output)


def drain_queue(
    client: Client,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A queue by name or path.", autocompletion=complete.queues)
    ],
    reason: Why,
    let_finish: LetFinish = False,
    undo: Undo = False,
    output: Output = Format.TABLE,
) -> None:
    """Evict what runs in a queue and admit nothing new, until that is undone."""
    from queue_manager.cli.stops import set_stop

    set_stop(client, "queue", name, _policy(let_finish, undo), reason, output)


def drain_flavor(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A flavor.")],
    reason: Why,
    let_finish: LetFinish = False,
    undo: Undo = False,
    output: Output = Format.TABLE,
) -> None:
    """Evict what runs on a flavor and give it to nobody, until that is undone."""
    from queue_manager.cli.stops import set_stop

    set_stop(client, "flavor", name, _policy(let_finish, undo), reason, output)


def _policy(let_finish: bool, undo: bool) -> str:
    if let_finish and undo:
        raise typer.BadParameter("give one of both", param_hint="--let-finish, --undo")
    return (Policy.NONE if undo else Policy.HOLD if let_finish else Policy.HOLD_AND_DRAIN).value
