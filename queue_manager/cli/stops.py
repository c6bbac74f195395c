"""What is stopped by hand."""

from __future__ import annotations

import sys

from queue_manager.cli.changes import show_plan
from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, Table, print_data
from queue_manager.cli.watch import View
from queue_manager.client.types import Stop
from queue_manager.config.human import clean


def plan_stop(client: Client, what: str, name: str, policy: str, form: Format) -> None:
    """Who would feel it."""
    if what == "local-queue":
        answer = client.plan_stop_local_queue(*_local(name), policy)
    else:
        plan = {"cohort": client.plan_stop_cohort, "flavor": client.plan_stop_flavor, "queue": client.plan_stop_queue}
        answer = plan[what](name, policy)
    show_plan(answer, form)


def _local(name: str) -> tuple[str, str]:
    namespace, slash, local = name.partition("/")
    if not (namespace and slash and local) or "/" in local:
        raise CommandError(f"{name!r} is not the name of a local queue", "write it like namespace/name")
    return namespace, local


def set_stop(client: Client, what: str, name: str, policy: str, reason: str, form: Format) -> None:
    """Stops something, or ends that, and says what counts now."""
    if what == "local-queue":
        found = client.stop_local_queue(*_local(name), policy, reason=reason)
    else:
        stop = {"cohort": client.stop_cohort, "flavor": client.stop_flavor, "queue": client.stop_queue}
        found = stop[what](name, policy, reason=reason)
    if form is not Format.TABLE:
        print_data(found, form, [_name(found)])
        return
    print(clean(f"{found['kind']} {_name(found)}: {found['effective']}"))
    if found["message"]:
        print(clean(found["message"]), file=sys.stderr)


def stopped(client: Client) -> View:
    """Everything that is stopped by hand."""
    columns = ("KIND", "NAME", "POLICY", "BY", "SINCE", "REASON")

    def table(found: list[Stop]) -> Table:
        rows = [
            [each["kind"], _name(each), each["policy"], each["by"], each["at"] or "", each["reason"]] for each in found
        ]
        return Table(columns, rows, (), "REASON", "" if rows else "nothing is stopped by hand")

    return View(lambda: list(client.stops()), table, lambda found: found, _name)


def _name(stop: Stop) -> str:
    return f"{stop['namespace']}/{stop['name']}" if stop["namespace"] else stop["name"]
