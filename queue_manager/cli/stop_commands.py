"""The commands `stop`, `drain` and `stops`: queues, local queues, cohorts and flavors that people stop by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.commanding import command
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import Output, Watch

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
Reason = Annotated[
    str, typer.Option(help="Why; needed unless it is only planned. The audit log keeps it.", show_default=False)
]
Planned = Annotated[
    bool, typer.Option("--plan", help="Only tell which jobs would be evicted, kept waiting or started now.")
]
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
            autocompletion=complete.stoppable,
        ),
    ],
    policy: Annotated[
        Policy, typer.Option(help="Hold admits nothing new, HoldAndDrain evicts what runs, too; None ends it.")
    ],
    reason: Reason = "",
    kind: Annotated[What, typer.Option(help="What it is.")] = What.QUEUE,
    planned: Planned = False,
    output: Output = Format.TABLE,
) -> None:
    """Stop a queue, cohort, local queue or flavor. Applying a file does not undo it."""
    _stop(client, kind.value, name, policy.value, reason, planned, output)


def stops(client: Client, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """List what is stopped by hand: since when, by whom and why."""
    from queue_manager.cli.stops import stopped
    from queue_manager.cli.watch import present

    present(client, stopped(client), output, watch)


def drain_queue(
    client: Client,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A queue by name or path.", autocompletion=complete.queues)
    ],
    reason: Reason = "",
    let_finish: LetFinish = False,
    undo: Undo = False,
    planned: Planned = False,
    output: Output = Format.TABLE,
) -> None:
    """Evict what runs in a queue and admit nothing new, until that is undone."""
    _stop(client, "queue", name, _policy(let_finish, undo), reason, planned, output)


def drain_flavor(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A flavor.", autocompletion=complete.flavors)],
    reason: Reason = "",
    let_finish: LetFinish = False,
    undo: Undo = False,
    planned: Planned = False,
    output: Output = Format.TABLE,
) -> None:
    """Evict what runs on a flavor and give it to nobody, until that is undone."""
    _stop(client, "flavor", name, _policy(let_finish, undo), reason, planned, output)


def _policy(let_finish: bool, undo: bool) -> str:
    if let_finish and undo:
        raise typer.BadParameter("give one of both", param_hint="--let-finish, --undo")
    return (Policy.NONE if undo else Policy.HOLD if let_finish else Policy.HOLD_AND_DRAIN).value


def _stop(client: Client, what: str, name: str, policy: str, reason: str, planned: bool, form: Format) -> None:
    from queue_manager.cli.stops import plan_stop, set_stop

    if planned:
        plan_stop(client, what, name, policy, form)
    elif reason:
        set_stop(client, what, name, policy, reason, form)
    else:
        raise typer.BadParameter("say why, or give --plan to see what it would do", param_hint="--reason")
