"""A controller that starts where much waits: when it decides first, what it takes of memory and processor, and what
workloads that ended long ago change in that."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from benchmarks.machine import Meter, highest_resident, use_of
from benchmarks.report import Report
from benchmarks.rest import make_history
from benchmarks.start_world import ROOM, Crowd, configuration, make_crowd
from benchmarks.world import BARE, World, world
from queue_manager.store.records import State
from tests.e2e.product import Product, wait_for

SIZES = {
    "full": (Crowd(blocks=20, racks=50, hosts=20, queues=100, running=9_800, waiting=100_000), 1_000_000, 60.0),
    "small": (Crowd(blocks=1, racks=4, hosts=25, queues=5, running=10, waiting=200), 5_000, 5.0),
}
"""Nodes, queues and Jobs; workloads that ended; seconds of each steady part."""
LONGEST = 600.0


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: a start, what it uses while little happens, and the same with a long history."""
    crowd, ended, seconds = SIZES[size]
    report = Report(
        f"start: {crowd.waiting} Jobs wait and {crowd.running} run in {crowd.queues} queues, {crowd.nodes} nodes"
    )
    with ExitStack() as stack:
        made = stack.enter_context(world(keep, **BARE))
        made.product.controller.command += ["--events", "off"]
        made.product.remove_webhooks()
        make_crowd(report, made, crowd)
        room = ROOM
        for what in ("start", "the same again", f"with {ended} workloads that ended"):
            if "ended" in what:
                make_history(made.store.engine, ended)
            room += ROOM
            _start(report, made, crowd, what, room, seconds)
    report.note(made.floor())
    return [report]


def _start(report: Report, made: World, crowd: Crowd, what: str, room: int, seconds: float) -> None:
    """There is room for ROOM more in the first queue, which the controller learns when it starts."""
    product = made.product
    product.configure_all(configuration(crowd, room))
    before, lines = _running(product), len(product.log_lines())
    product.controller.process = None  # as a program of its own, which has to load everything
    with product.controller.log.open("ab") as log:
        process = subprocess.Popen(product.controller.program, stdout=log, stderr=log)
    began = time.time()
    try:
        wait_for(lambda: _running(product) >= before + ROOM, "the first decision", LONGEST)
        decided = time.time() - began
        spent_decided = use_of([process.pid]).seconds
        wait_for(lambda: product.metrics() and product._http("/readyz") == "ok\n", "ready", LONGEST)
        wait_for(lambda: not product.store.pending_outbox(), "an empty outbox", LONGEST)
        looked = _looked(product, lines, began)
        spent = use_of([process.pid]).seconds
        report.value(f"{what}: first decision committed", f"{decided:.1f} s (processor {spent_decided:.1f} s)", "15 s")
        report.value("  state read, all Jobs looked at", f"{looked} (processor {spent:.1f} s)", "90 s")
        _steady(report, made, process.pid, seconds)
        most, now = highest_resident(process.pid), use_of([process.pid]).resident
        report.value("  memory now, most ever", f"{now / 1e6:.0f} MB, {most / 1e6:.0f} MB", "600 MB")
    finally:
        process.terminate()
        process.wait()


def _running(product: Product) -> int:
    counts = product.store.queue_counts().values()
    return sum(count for each in counts for state, count in each.items() if state is not State.WAITING)


def _looked(product: Product, lines: int, began: float) -> str:
    """What the log says of the milestones of the start."""
    found = {}
    for line in product.log_lines()[lines:]:
        if line.get("event") in ("state read", "all looked at"):
            at = datetime.fromisoformat(line["timestamp"]).timestamp() - began
            found.setdefault(str(line["event"]), at)
    return ", ".join(f"{name} after {at:.1f} s" for name, at in found.items())


def _steady(report: Report, made: World, pid: int, seconds: float) -> None:
    parts = {"controller": [pid], "postgres": made.processes()["postgres"]}
    meter = Meter(parts)
    time.sleep(seconds)
    passed, spent = meter.read()
    words = ", ".join(f"{name} {100 * used / passed:.1f} %" for name, used in spent.items())
    report.value("  processor while nothing happens", words)
