"""What is stopped by hand."""

from __future__ import annotations

import sys

from queue_manager.cli.changes import names_of, show_changes, show_effects
from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, print_data, print_table
from queue_manager.client.types import Stop
from queue_manager.config.human import clean


def plan_stop(client: Client, what: str, name: str, policy: str, form: Format) -> None:
    """Who would feel it."""
    if what == "local-queue":
        answer = client.plan_stop_local_queue(*_local(name), policy)
    elif what == "cohort":
        answer = client.plan_stop_cohort(name, policy)
    elif what == "flavor":
        answer = client.plan_stop_flavor(name, policy)
    else:
        answer = client.plan_stop_queue(name, policy)
    if form is not Format.TABLE:
        print_data(answer, form, names_of(answer))
        return
    show_changes(answer)
    if answer["changes"]:
        show_effects(answer)


def _local(name: str) -> tuple[str, str]:
    namespace, slash, local = name.partition("/")
    if not (namespace and slash and local) or "/" in local:
        raise CommandError(f"{name!r} is not the name of a local queue", "write it like namespace/name")
    return namespace, local


def set_stop(client: Client, what: str, name: str, policy: str, reason: str, form: Format) -> None:
    """Stops something, or ends that, and says what counts now."""
    if what == "local-queue":
        found = client.stop_local_queue(*_local(name), policy, reason=reason)
    elif what == "cohort":
        found = client.stop_cohort(name, policy, reason=reason)
    elif what == "flavor":
        found = client.stop_flavor(name, policy, reason=reason)
    else:
        found = client.stop_queue(name, policy, reason=reason)
    if form is not Format.TABLE:
        print_data(found, form, [_name(found)])
        return
    print(clean(f"{found['kind']} {_name(found)}: {found['effective']}"))
    if found["message"]:
        print(clean(found["message"]), file=sys.stderr)


def show_stops(client: Client, form: Format) -> None:
    """Everything that is stopped by hand."""
    found = list(client.stops())
    if form is not Format.TABLE:
        print_data(found, form, [_name(each) for each in found])
        return
    rows: list[list[object]] = [
        [each["kind"], _name(each), each["policy"], each["by"], each["at"] or "", each["reason"]] for each in found
    ]
    print_table(("KIND", "NAME", "POLICY", "BY", "SINCE", "REASON"), rows, give_way="REASON")


def _name(stop: Stop) -> str:
    return f"{stop['namespace']}/{stop['name']}" if stop["namespace"] else stop["name"]
