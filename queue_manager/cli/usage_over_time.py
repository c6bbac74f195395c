"""`usage` of a span of time: who used how many hours of what, beside the quota there was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.output import Table
from queue_manager.cli.watch import View
from queue_manager.config import human

Answer = Mapping[str, Any]
NUMBERS = ("HOURS", "AVERAGE", "QUOTA HOURS", "OF QUOTA")
TOTAL = "(all)"
MIDNIGHT = "T00:00:00Z"


def usage_over_time(client: Client, name: str, query: Mapping[str, Any]) -> View:
    """A line for each group and bucket: one bucket with the greatest first, several in the order of time."""
    sort = "" if query["step"] else "-used"

    def read() -> Answer:
        node: dict[str, Any] = {client.kind_of(name).lower(): name} if name else {}
        return client.usage(**query, **node, sort=sort)

    def names(item: Answer) -> str:
        return "/".join(str(value) for key, value in item.items() if key not in MEASURES and value is not None)

    return View(read, table, name=names)


MEASURES = ("start", "end", "usedSeconds", "average", "nominalSeconds")


def table(answer: Answer) -> Table:
    """Base units become hours: of GPUs, CPUs, bytes (1.5Ti)."""
    by = [word for word in answer["by"] if word != "resource"]
    with_quota = any(item["nominalSeconds"] is not None for item in answer["items"])
    numbers = NUMBERS if with_quota else NUMBERS[:2]
    columns = [*(["FROM"] if answer["step"] else []), *(_heading(word) for word in by), "RESOURCE", *numbers]
    rows = [*_rows(answer, by, len(numbers)), *_totals(answer, by, len(numbers))]
    kept = answer["keptSince"]
    since = f"; the ledger knows what ended since {kept[:10]}" if kept and kept > answer["from"] else ""
    empty = "" if rows else f"nothing was used from {answer['from']} to {answer['to']}{since}"
    return Table(columns, rows, numbers, columns[-len(numbers) - 2] if by else "RESOURCE", empty)


def _heading(word: str) -> str:
    return {"priorityClass": "PRIORITY CLASS"}.get(word, word.upper())


def _rows(answer: Answer, by: list[str], numbers: int) -> Iterator[list[object]]:
    # Of one bucket each resource for itself, its greatest user first.
    items = answer["items"] if answer["step"] else sorted(answer["items"], key=lambda item: item["resource"])
    days = all(item["start"].endswith(MIDNIGHT) or item["start"] == answer["from"] for item in items)
    for item in items:
        whole = days and item["start"].endswith(MIDNIGHT)
        start = [item["start"][:10] if whole else human.moment(datetime.fromisoformat(item["start"]))]
        groups = [item[word] or "-" for word in by]
        yield [*(start if answer["step"] else []), *groups, *_measures(item, numbers)]


def _measures(item: Answer, numbers: int) -> list[object]:
    resource, used, quota = item["resource"], item["usedSeconds"], item["nominalSeconds"]
    share = f"{100 * used / quota:.0f} %" if quota else ""
    found: list[object] = [
        human.resource_name(resource),
        human.hours(resource, used),
        human.amount(resource, round(item["average"])) if item["average"] >= 10 else _small(resource, item["average"]),
        "" if quota is None else human.hours(resource, quota),
        share,
    ]
    return found[: numbers + 1]


def _small(resource: str, average: float) -> str:
    """Half a GPU is not none."""
    return f"{average:.3g}" if "/" in resource else human.amount(resource, round(average))


def _totals(answer: Answer, by: list[str], numbers: int) -> Iterator[list[object]]:
    """All groups together, by resource, where there is one bucket and more than one group."""
    if answer["step"] or not by:
        return
    for resource in sorted({item["resource"] for item in answer["items"]}):
        items = [item for item in answer["items"] if item["resource"] == resource]
        if len(items) < 2:
            continue
        quotas = [item["nominalSeconds"] for item in items if item["nominalSeconds"] is not None]
        total = {
            "resource": resource,
            "usedSeconds": sum(item["usedSeconds"] for item in items),
            "average": sum(item["average"] for item in items),
            "nominalSeconds": sum(quotas) if quotas else None,
        }
        yield [TOTAL, *[""] * (len(by) - 1), *_measures(total, numbers)]
