"""Commands of every day: what is there, why it waits, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.commanding import Job, command
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import MOMENT, Fields, Output, Watch, Why, fields_for

if TYPE_CHECKING:
    from queue_manager.cli.client import Client


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for function in (queues, workloads, usage, explain, history, hold, release):
        command(app)(function)


def queues(client: Client, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show the queue tree with quotas and use."""
    from queue_manager.cli import views
    from queue_manager.cli.watch import present

    present(client, views.queues(client), output, watch)


def workloads(
    client: Client,
    queue: Annotated[
        str, typer.Option(help="Name or path of a queue.", show_default=False, autocompletion=complete.queues)
    ] = "",
    cohort: Annotated[
        str,
        typer.Option(
            help="Name or path of a cohort: all queues below.", show_default=False, autocompletion=complete.cohorts
        ),
    ] = "",
    state: Annotated[
        list[str] | None,
        typer.Option(help="waiting, running ...; repeatable.", show_default=False, autocompletion=complete.states),
    ] = None,
    user: Annotated[str, typer.Option(help="Who submitted it.", show_default=False)] = "",
    kind: Annotated[str, typer.Option(help="TrainJob, JobSet or Job.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace.", show_default=False)] = "",
    text: Annotated[str, typer.Option(help="Part of the name.", show_default=False)] = "",
    sort: Annotated[
        str, typer.Option(help="created, finished, priority or name; with - the greatest first.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 100,
    fields: Fields = "",
    output: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """List workloads with their state and why they wait."""
    from queue_manager.cli import views
    from queue_manager.cli.watch import present

    query = {"queue": queue, "cohort": cohort, "state": state or [], "user": user, "kind": kind}
    query |= {"namespace": namespace, "text": text, "sort": sort, "fields": fields_for(fields, output)}
    view = views.workloads(client, query, limit)
    present(client, view, output, watch)


def usage(
    client: Client,
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE|COHORT", help="By name or path; all together without.", autocompletion=complete.nodes
        ),
    ] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="queue, cohort, namespace, user, flavor, kind or priority-class; repeatable.",
            show_default=False,
            autocompletion=complete.groups,
        ),
    ] = None,
    since: Annotated[str, typer.Option("--from", help=f"Not before: {MOMENT}.", show_default=False)] = "",
    until: Annotated[str, typer.Option("--to", help="Before; else until now.", show_default=False)] = "",
    step: Annotated[str, typer.Option(help="A line for each 1h, 1d, 7d, month ...", show_default=False)] = "",
    level: Annotated[
        int | None,
        typer.Option(min=1, help="With --by cohort: cohorts of this level, 1 the roots.", show_default=False),
    ] = None,
    resource: Annotated[str, typer.Option(help="nvidia.com/gpu, or gpu; cpu ...", show_default=False)] = "",
    flavor: Annotated[str, typer.Option(help="Name.", show_default=False, autocompletion=complete.flavors)] = "",
    user: Annotated[str, typer.Option(help="Who submitted it.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace.", show_default=False)] = "",
    kind: Annotated[str, typer.Option(help="TrainJob, JobSet or Job.", show_default=False)] = "",
    priority_class: Annotated[str, typer.Option(help="Priority class.", show_default=False)] = "",
    fields: Fields = "",
    output: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show what a queue or cohort uses, borrows and lends now; or, with any option, what was used over time.

    Hours of GPUs of last month by team: usage --by cohort --from last-month --to this-month --resource nvidia.com/gpu
    """
    from queue_manager.cli import views
    from queue_manager.cli.usage_over_time import usage_over_time
    from queue_manager.cli.watch import present

    groups = [{"priority-class": "priorityClass"}.get(group, group) for group in by or ()]
    over_time = {"by": groups, "since": since, "until": until, "step": step, "level": level, "resource": resource}
    over_time |= {"flavor": flavor, "user": user, "namespace": namespace, "kind": kind}
    over_time |= {"priority_class": priority_class, "fields": fields_for(fields, output)}
    if any(over_time.values()):
        present(client, usage_over_time(client, name, over_time), output, watch)
    else:
        present(client, views.usage(client, name), output, watch)


def explain(client: Client, job: Job, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Tell why a job waits: what is short, who holds it, and what would let it start."""
    from queue_manager.cli import views
    from queue_manager.cli.watch import present

    with client.naming(job):
        present(client, views.explanation(client, job.namespace, job.name, job.kind), output, watch)


def history(client: Client, job: Job, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Tell what a job was given, how that ended, and what people did to it."""
    from queue_manager.cli import views
    from queue_manager.cli.watch import present

    with client.naming(job):
        present(client, views.history(client, job.namespace, job.name, job.kind), output, watch)


def hold(client: Client, job: Job, reason: Why, output: Output = Format.TABLE) -> None:
    """Take a job out of its queue, or stop it, until it is released."""
    from queue_manager.cli.actions import act

    act(client, "hold", job, output, reason=reason)


def release(client: Client, job: Job, reason: Why, output: Output = Format.TABLE) -> None:
    """Let a job queue again that is held, deactivated or backing off."""
    from queue_manager.cli.actions import act

    act(client, "release", job, output, reason=reason)
