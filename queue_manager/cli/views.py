"""`queues`, `workloads` and `explain`: what people ask for most."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, print_data, print_table
from queue_manager.client import operations
from queue_manager.config import human
from queue_manager.config.human import clean

Node = Mapping[str, Any]


def show_queues(client: Client, form: Format) -> None:
    """The tree, a line for each flavor and resource of a node."""
    tree = client.tree()
    if form is not Format.TABLE:
        print_data(tree, form)
        return
    numbers = ("USED", "NOMINAL", "BORROWED", "LENT", "DRAINING", "WAITING")
    columns = ("QUEUE", "RUN", "WAIT", "FLAVOR", "RESOURCE", *numbers, "NOTE")
    print_table(columns, _queue_rows(tree["items"]), right=("RUN", "WAIT", *numbers), give_way="NOTE")


def _queue_rows(nodes: Iterable[Node], depth: int = 0) -> Iterator[list[object]]:
    for node in nodes:
        mark = "/" if node["kind"] == "Cohort" else ""
        counts = node["workloads"]
        first: list[object] = [
            f"{'  ' * depth}{node['name']}{mark}",
            counts.get("running", 0),
            counts.get("waiting", 0),
        ]
        note = node["inactive"] or ("" if node["stopPolicy"] == "None" else f"stopped ({node['stopPolicy']})")
        if not node["configured"] and node["kind"] == "Queue":
            note = "deleted, still in use"
        for cell in node["cells"] or [None]:
            yield [*first, *_cell(cell), note]
            first, note = ["", "", ""], ""
        yield from _queue_rows(node["children"], depth + 1)


def _cell(cell: Mapping[str, Any] | None) -> list[object]:
    if cell is None:
        return [""] * 8
    names = ("used", "nominal", "borrowed", "lent", "draining", "waiting")
    amounts = [human.amount(cell["resource"], cell[name]) if cell[name] or name in names[:2] else "" for name in names]
    return [cell["flavor"], human.resource_name(cell["resource"]), *amounts]


def show_workloads(client: Client, query: Mapping[str, Any], limit: int, form: Format) -> None:
    """A line for each workload, newest first."""
    page_size = min(limit, 1000) if limit else 1000
    items = list(client.listed(operations.workloads(**query, limit=page_size), limit))
    if form is not Format.TABLE:
        print_data({"items": items}, form)
        return
    now = datetime.now(UTC)
    rows = (
        [
            f"{item['namespace']}/{item['name']}",
            item["kind"],
            item["path"] or item["localQueue"],
            item["priority"],
            item["state"],
            human.age(datetime.fromisoformat(item["created"]), now),
            item["message"] or item["reason"],
        ]
        for item in items
    )
    columns = ("WORKLOAD", "KIND", "QUEUE", "PRIORITY", "STATE", "AGE", "WHY")
    print_table(columns, rows, right=("PRIORITY", "AGE"), give_way="WHY")
    if not items:
        print("no workload matches", file=sys.stderr)


def job_name(workload: str) -> tuple[str, str]:
    """Namespace and name of `namespace/name`."""
    namespace, slash, name = workload.partition("/")
    if not slash or not namespace or not name or "/" in name or {namespace, name} & {".", ".."}:
        raise CommandError(f"{workload!r} is not the name of a workload", "write it like namespace/name")
    return namespace, name


def show_explanation(client: Client, workload: str, kind: str, form: Format) -> None:
    """Why a workload waits, in words and numbers."""
    namespace, name = job_name(workload)
    found = client.workload(namespace, name, kind=kind)
    explanation = client.explanation(namespace, name, kind=kind)
    if form is not Format.TABLE:
        print_data(explanation, form)
        return
    for line in explanation_lines(found, explanation, datetime.now(UTC)):
        print(clean(line).rstrip())


def explanation_lines(found: Node, explanation: Node, now: datetime) -> Iterator[str]:
    """The answer to "why is my job waiting", line by line."""
    since = human.age(datetime.fromisoformat(explanation["since"]), now)
    queue = found["path"] or f"{found['localQueue']} (not known)"
    yield f"{found['kind']} {found['namespace']}/{found['name']}: {found['state']}, created {since} ago"
    position = f", position {explanation['position']}" if explanation["position"] else ""
    yield f"queue {queue}{position}, priority {found['priority']}"
    if explanation["message"] or explanation["reason"]:
        yield f"{explanation['message'] or explanation['reason']}"
    if explanation["estimatedStart"]:
        yield f"estimated start: {explanation['estimatedStart']}"
    if explanation["blockers"]:
        yield ""
        yield "in the way:"
    for number, blocker in enumerate(explanation["blockers"], 1):
        yield from _blocker_lines(number, blocker)


def _blocker_lines(number: int, blocker: Node) -> Iterator[str]:
    where = " ".join(part for part in (blocker["node"], blocker["flavor"], blocker["resource"]) if part)
    message = blocker["message"] or blocker["type"]
    yield f"{number:>3}. {message}"
    if where or blocker["requested"] or blocker["missing"]:
        resource = blocker["resource"]
        amounts = ", ".join(
            f"{name} {human.amount(resource, blocker[name]) if resource else blocker[name]}"
            for name in ("requested", "available", "missing")
        )
        yield f"     {blocker['type']} at {where or 'the cluster'}: {amounts}"
    if blocker["holders"]:
        yield f"     held by {', '.join(blocker['holders'])}"
