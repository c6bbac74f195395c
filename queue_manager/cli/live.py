"""The live terminal view of `up --demo`: queue tree with bars, workloads with reasons, last events.

A snapshot is `{"title", "url", "notes": [text], "tree": [nodes of GET /api/v1/tree], "workloads": [items of GET
/api/v1/workloads], "events": [{"at": datetime, "text": text}]}`; keys may be missing. Where stdout is no terminal, new
events are printed as plain lines instead.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from queue_manager.config import human
from queue_manager.config.human import clean

Snapshot = Mapping[str, Any]

STATE_STYLES = {
    "running": "green",
    "starting": "cyan",
    "reserved": "cyan",
    "waiting": "yellow",
    "held": "magenta",
    "draining": "red",
    "failed": "red",
    "finished": "dim",
    "deactivated": "dim",
}
BAR = 24


def run_live(snapshot: Callable[[], Snapshot], stop: threading.Event, interval: float = 0.5) -> None:
    """Shows snapshots until `stop` is set. Blocks, so it wants a thread of its own, where `snapshot` is called too."""
    if not sys.stdout.isatty():
        _print_events(snapshot, stop, interval)
        return
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            live.update(render(snapshot(), console.height), refresh=True)
            stop.wait(interval)


def _print_events(snapshot: Callable[[], Snapshot], stop: threading.Event, interval: float) -> None:
    printed: set[tuple[str, str]] = set()
    while True:
        last = stop.is_set()
        shown = snapshot()
        for line in [*shown.get("notes", ()), *(_event_line(event) for event in shown.get("events", ()))]:
            key = ("line", line)
            if key not in printed:
                printed.add(key)
                print(line, flush=True)
        if last:
            return
        stop.wait(interval)


def _event_line(event: Mapping[str, Any]) -> str:
    return f"{event['at']:%H:%M:%S} {clean(event['text'])}"


def render(snapshot: Snapshot, height: int = 40) -> RenderableType:
    """One snapshot as a screen of `height` lines: what does not fit is counted, not cut off silently."""
    tree, left_out = _fitting(list(_rows(snapshot.get("tree", ()))), max(5, height // 2))
    notes = [Text(clean(note), style="yellow") for note in snapshot.get("notes", ())]
    events = list(snapshot.get("events", ()))[-6:]
    workloads = sorted(snapshot.get("workloads", ()), key=_interest)
    used = 2 + len(notes) + len(tree) + bool(left_out) + 2 + (len(events) + 1 if events else 0) + 2
    room = max(3, height - used)
    parts: list[RenderableType] = [_title(snapshot), *notes, _tree_table(tree)]
    if left_out:
        parts.append(Text(f"... and {left_out} more queues and cohorts", style="dim"))
    parts.append(Rule(style="dim"))
    parts.append(_workload_table(workloads[:room]))
    if len(workloads) > room:
        parts.append(Text(f"... and {len(workloads) - room} more", style="dim"))
    if events:
        parts.append(Rule(style="dim"))
        parts += [
            Text(_event_line(event), style="dim", no_wrap=True, overflow="ellipsis") for event in reversed(events)
        ]
    return Group(*parts)


def _title(snapshot: Snapshot) -> Text:
    line = Text(clean(snapshot.get("title", "Queue Manager")), style="bold", no_wrap=True, overflow="ellipsis")
    if url := snapshot.get("url"):
        line.append(f"   {clean(url)}", style="underline cyan not bold")
    return line


def _rows(nodes: Iterable[Mapping[str, Any]], depth: int = 0) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for node in nodes:
        yield depth, node
        yield from _rows(node.get("children", ()), depth + 1)


def _fitting(rows: list[tuple[int, Mapping[str, Any]]], room: int) -> tuple[list[tuple[int, Mapping[str, Any]]], int]:
    """Rows that fit, in order, and how many are left out: idle ones first, then the deepest."""
    if len(rows) <= room:
        return rows, 0
    by_weight = sorted(range(len(rows)), key=lambda index: (not _is_busy(rows[index][1]), rows[index][0], index))
    kept = sorted(by_weight[:room])
    return [rows[index] for index in kept], len(rows) - len(kept)


def _is_busy(node: Mapping[str, Any]) -> bool:
    return any(node.get("workloads", {}).values()) or any(
        cell["used"] or cell["waiting"] for cell in node.get("cells", ())
    )


def _headline(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # Accelerators are what people look for; CPU and memory only where there is nothing else.
    devices = [cell for cell in cells if cell["resource"] not in ("cpu", "memory", "pods", "ephemeral-storage")]
    return list(devices or cells)[:2]


def _tree_table(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Table:
    table = Table.grid(padding=(0, 2))
    sides: tuple[Literal["left", "right"], ...] = ("left", "left", "left", "right", "left", "right")
    for justify in sides:
        table.add_column(justify=justify, no_wrap=True)
    for depth, node in rows:
        name = Text("  " * depth + clean(node["name"]), style="bold" if node["kind"] == "Cohort" else "")
        counts = node.get("workloads", {})
        busy = Text(f"{counts.get('running', 0)} run {counts.get('waiting', 0)} wait", style="dim")
        cells = _headline(node.get("cells", ()))
        if not cells:
            table.add_row(name, "", "", "", "", busy)
        for index, cell in enumerate(cells):
            first = index == 0
            label = Text(f"{clean(cell['flavor'])} {clean(human.resource_name(cell['resource']))}", style="dim")
            table.add_row(name if first else "", label, bar(cell), amounts(cell), extras(cell), busy if first else "")
    return table


def bar(cell: Mapping[str, Any], width: int = BAR) -> Text:
    """Used, draining and borrowed against nominal; the scale ends at whichever is greater."""
    nominal, used, draining = int(cell["nominal"]), int(cell["used"]), int(cell["draining"])
    scale = max(nominal, used, 1)

    def place(amount: int) -> int:
        return min(width, (amount * width + scale - 1) // scale)

    end, solid, own = place(used), place(max(0, used - draining)), place(min(used, nominal))
    text = Text()
    for position in range(width):
        if position < solid:
            text.append("█", style="blue" if position < own else "magenta")
        elif position < end:
            text.append("▒", style="red")
        else:
            text.append("·", style="dim")
    return text


def amounts(cell: Mapping[str, Any]) -> str:
    """`56 / 64` in units for people."""
    used, nominal = (human.amount(cell["resource"], cell[name]) for name in ("used", "nominal"))
    return f"{used} / {nominal}"


def extras(cell: Mapping[str, Any]) -> Text:
    """What is borrowed, lent, draining and waited for, where there is any."""
    styles = {"borrowed": "magenta", "lent": "cyan", "draining": "red", "waiting": "yellow"}
    text = Text()
    for name, style in styles.items():
        if cell[name]:
            text.append(f"{human.amount(cell['resource'], cell[name])} {name}  ", style=style)
    return text


_ORDER = ("draining", "starting", "reserved", "waiting", "held", "running", "failed", "finished", "deactivated")


_OVER = ("failed", "finished", "deactivated")


def _interest(workload: Mapping[str, Any]) -> tuple[int, float]:
    """What is going on before what is over; of the former the oldest first, of the latter the newest."""
    state = workload["state"]
    created = _created(workload).timestamp()
    return _ORDER.index(state) if state in _ORDER else len(_ORDER), -created if state in _OVER else created


def _created(workload: Mapping[str, Any]) -> datetime:
    created = workload["created"]
    return datetime.fromisoformat(created) if isinstance(created, str) else created


def _workload_table(workloads: Iterable[Mapping[str, Any]]) -> Table:
    now = datetime.now(UTC)
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, None, None, None, 1):
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    for each in workloads:
        table.add_row(
            Text(each["state"], style=STATE_STYLES.get(each["state"], "")),
            clean(f"{each['namespace']}/{each['name']}"),
            Text(clean(each["queue"]), style="dim"),
            Text(human.age(_created(each), now), style="dim"),
            Text(clean(each.get("message") or each.get("reason") or ""), style="dim"),
        )
    return table
