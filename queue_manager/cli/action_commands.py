"""The commands `move`, `reprioritise` and `evict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.commanding import Job, command
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import Output, Why

if TYPE_CHECKING:
    from queue_manager.cli.client import Client


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for function in (move, reprioritise, evict):
        command(app)(function)


def move(
    client: Client,
    job: Job,
    queue: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE",
            help="A local queue of its namespace, or a queue by name or path.",
            autocompletion=complete.queues,
        ),
    ],
    reason: Why,
    force: Annotated[bool, typer.Option("--force", help="Also when it is over a limit there.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Put a job into another queue. One that runs goes on running, and is charged there."""
    from queue_manager.cli.actions import act

    act(client, "move", job, output, reason=reason, queue=queue, force=force)


def reprioritise(
    client: Client,
    job: Job,
    priority_class: Annotated[
        str,
        typer.Argument(
            metavar="CLASS", help="A priority class of the configuration.", autocompletion=complete.priority_classes
        ),
    ],
    reason: Why,
    output: Output = Format.TABLE,
) -> None:
    """Give a job another priority class."""
    from queue_manager.cli.actions import act

    act(client, "reprioritise", job, output, reason=reason, priorityClass=priority_class)


def evict(
    client: Client,
    job: Job,
    reason: Why,
    requeue_after: Annotated[
        str, typer.Option(help="How long it stays out of its queue: 90s, 10m.", metavar="TIME", show_default=False)
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Stop a job that runs; it queues again with its old place in time."""
    from queue_manager.cli.actions import act

    more = {"requeueAfter": requeue_after} if requeue_after else {}
    act(client, "evict", job, output, reason=reason, **more)
