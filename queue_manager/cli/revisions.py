"""`revisions` and `rollback`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_manager.cli.changes import change_lines, show_applied
from queue_manager.cli.client import Client
from queue_manager.cli.output import Format, Table, print_data
from queue_manager.cli.watch import View
from queue_manager.client import operations
from queue_manager.config.human import clean, moment


def revisions(client: Client, query: Mapping[str, Any], limit: int) -> View:
    """A line for each change, newest first."""
    columns = ("REVISION", "TIME", "AUTHOR", "CHANGES", "REASON")

    def read() -> Any:
        return {"items": list(client.listed(operations.revisions(**query, limit=min(limit, 100) or 100), limit))}

    def table(data: Any) -> Table:
        rows = [[item["number"], _time(item), item["author"], _summary(item), item["reason"]] for item in data["items"]]
        return Table(columns, rows, ("REVISION",), "REASON", "" if rows else "no revision matches")

    return View(read, table, name=lambda item: str(item["number"]))


def show_revision(client: Client, number: int, form: Format) -> None:
    """One change, field by field."""
    item = client.revision(number)
    if form is not Format.TABLE:
        print_data(item, form, [str(number)])
        return
    reason = f": {item['reason']}" if item["reason"] else ""
    print(clean(f"revision {item['number']}, {_time(item)}, {item['author']}{reason}"))
    for line in change_lines(item["changes"]):
        print(clean(line))


def roll_back(client: Client, number: int, *, reason: str, if_plan: str, form: Format) -> None:
    """Asks for the rollback."""
    show_applied(client.roll_back(number, reason=reason, if_plan=if_plan), form)


def _time(item: Mapping[str, Any]) -> str:
    return moment(datetime.fromisoformat(item["at"]))


def _summary(item: Mapping[str, Any]) -> str:
    counted = Counter(change["action"] for change in item["changes"])
    return ", ".join(f"{counted[action]} {action}" for action in ("created", "changed", "deleted") if counted[action])
