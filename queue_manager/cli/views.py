"""What people ask for most: the queue tree, workloads, the usage of a queue, what became of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.output import Table, Text
from queue_manager.cli.watch import View, one
from queue_manager.client import operations
from queue_manager.config import human

Node = Mapping[str, Any]
NUMBERS = ("USED", "NOMINAL", "BORROWED", "LENT", "DRAINING", "WAITING")


def queues(client: Client) -> View:
    """The tree, a line for each flavor and resource of a node."""
    columns = ("QUEUE", "RUN", "WAIT", "FLAVOR", "RESOURCE", *NUMBERS, "NOTE")

    def table(tree: Node) -> Table:
        rows = list(_queue_rows(tree["items"]))
        return Table(columns, rows, ("RUN", "WAIT", *NUMBERS), "NOTE", "" if rows else "no queue is configured yet")

    return View(client.tree, table, lambda tree: _leaves(tree["items"]), lambda node: node["name"])


def _leaves(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        if node["kind"] == "Queue":
            yield node
        yield from _leaves(node["children"])


def _queue_rows(nodes: Iterable[Node], depth: int = 0) -> Iterator[list[object]]:
    for node in nodes:
        mark = "/" if node["kind"] == "Cohort" else ""
        counts = node["workloads"]
        first: list[object] = [
            f"{'  ' * depth}{node['name']}{mark}",
            counts.get("running", 0),
            counts.get("waiting", 0),
        ]
        note = _note(node)
        for cell in node["cells"] or [None]:
            yield [*first, *_cell(cell), note]
            first, note = ["", "", ""], ""
        yield from _queue_rows(node["children"], depth + 1)


def _note(node: Node) -> str:
    if not node["configured"] and node["kind"] == "Queue":
        return "deleted, still in use"
    stopped = (
        "" if node["stopPolicy"] == "None" else f"stopped ({node['stopPolicy']}) {node.get('stopped', '')}".strip()
    )
    return str(node["inactive"] or stopped)


def _cell(cell: Mapping[str, Any] | None) -> list[object]:
    if cell is None:
        return [""] * 8
    names = [name.lower() for name in NUMBERS]
    amounts = [human.amount(cell["resource"], cell[name]) if cell[name] or name in names[:2] else "" for name in names]
    return [cell["flavor"], human.resource_name(cell["resource"]), *amounts]


def workloads(client: Client, query: Mapping[str, Any], limit: int) -> View:
    """A line for each workload, newest first."""
    page_size = min(limit, 1000) if limit else 1000

    def read() -> Node:
        items = list(client.listed(operations.workloads(**query, limit=page_size), limit))
        return {"items": items}

    def table(data: Node) -> Table:
        now = datetime.now(UTC)
        rows = [
            [
                f"{item['namespace']}/{item['name']}",
                item["kind"],
                item["path"] or item["localQueue"],
                item["priority"],
                item["state"],
                human.age(datetime.fromisoformat(item["created"]), now),
                item["message"] or item["reason"],
            ]
            for item in data["items"]
        ]
        columns = ("WORKLOAD", "KIND", "QUEUE", "PRIORITY", "STATE", "AGE", "WHY")
        return Table(columns, rows, ("PRIORITY", "AGE"), "WHY", "" if rows else _none(client, query))

    return View(read, table, name=lambda item: f"{item['namespace']}/{item['name']}")


def _none(client: Client, query: Mapping[str, Any]) -> str:
    """That there is none; and where a queue is named that is not there, the nearest one."""
    for kind in ("queue", "cohort"):
        name = query[kind]
        known = [*client.node_names(kind.title())] if name else []
        if name and name not in known and name.rpartition("/")[2] not in known:
            return f"no workload matches: there is no {kind} {name!r}{client.nearest(name, known)}"
    return "no workload matches"


def usage(client: Client, name: str) -> View:
    """A line for each flavor and resource of a queue or cohort; without a name of everything together."""
    columns = ("FLAVOR", "RESOURCE", *NUMBERS, "OWN", "MAY BORROW", "MAY LEND")

    def limit(cell: Node, key: str) -> str:
        amount = cell.get(key)
        return "" if amount is None else human.amount(cell["resource"], amount)

    def rows(node: Node) -> list[list[object]]:
        return [
            [
                *_cell(cell),
                human.amount(cell["resource"], cell["own"]),
                limit(cell, "borrowingLimit"),
                limit(cell, "lendingLimit"),
            ]
            for cell in node["cells"]
        ]

    def table(node: Node) -> Table:
        empty = "" if node["cells"] else f"{node['path'] or 'the cluster'} has no quota"
        return Table(columns, rows(node), columns[2:], "RESOURCE", empty)

    return one(lambda: _usage(client, name), table, lambda node: node["path"])


def _usage(client: Client, name: str) -> Node:
    if not name:
        return {"path": "", "cells": _sum(client.tree()["items"])}
    return client.cohort_usage(name) if client.kind_of(name) == "Cohort" else client.queue_usage(name)


def _sum(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Cells of several nodes together; limits are those of none."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for node in nodes:
        for cell in node["cells"]:
            key = (cell["flavor"], cell["resource"])
            known = cells.setdefault(key, {"flavor": key[0], "resource": key[1]})
            for amount in (*(each.lower() for each in NUMBERS), "own"):
                known[amount] = known.get(amount, 0) + cell[amount]
    return list(cells.values())


def history(client: Client, namespace: str, name: str, kind: str) -> View:
    """What a job was given and what people did to it, in the order of time."""

    def shown(data: Node) -> Table:
        rows = sorted([*_admissions(data["admissions"]), *_actions(data["actions"])], key=lambda row: str(row[0]))
        rows = [[human.moment(datetime.fromisoformat(str(row[0]))), *row[1:]] for row in rows]
        return Table(("TIME", "WHO", "WHAT", "WHY"), rows, (), "WHY", "" if rows else "nothing has become of it yet")

    return one(lambda: client.history(namespace, name, kind=kind), shown)


def _admissions(entries: Iterable[Node]) -> Iterator[list[object]]:
    for entry in entries:
        yield [entry["admitted"], "", f"admitted to {entry['queue']}", ""]
        if entry["started"]:
            yield [entry["started"], "", "started", ""]
        if entry["evicted"]:
            yield [entry["evicted"], "", f"evicted ({entry['underlyingCause'] or entry['cause']})", entry["message"]]
        if entry["ended"]:
            yield [
                entry["ended"],
                "",
                "pods are gone" if entry["evicted"] else "ended",
                "" if entry["evicted"] else entry["cause"],
            ]


def _actions(entries: Iterable[Node]) -> Iterator[list[object]]:
    for entry in entries:
        yield [entry["at"], entry["who"], _action(entry["action"], entry["arguments"]), entry["reason"]]


def _action(action: str, arguments: Mapping[str, Any]) -> str:
    """What somebody asked for, with what they gave for it."""
    to = arguments.get("queue") or arguments.get("priorityClass")
    more = [f"to {to}"] if to else []
    more += ["with force"] if arguments.get("force") else []
    more += [f"for {arguments['requeueAfter']} s"] if arguments.get("requeueAfter") else []
    more += [f"{arguments['check']}: {arguments['state']}"] if "check" in arguments else []
    return " ".join([action, *more])


def explanation(client: Client, namespace: str, name: str, kind: str) -> View:
    """Why a job waits."""
    from queue_manager.cli.explanation import explanation_lines

    workload: dict[str, Any] = {}

    def read() -> Any:
        workload.update(client.workload(namespace, name, kind=kind))
        return client.explanation(namespace, name, kind=kind)

    return one(
        read,
        lambda found: Text(list(explanation_lines(workload, found, datetime.now(UTC)))),
        lambda _: f"{namespace}/{name}",
    )
