"""The engine alone, one process: what each kind of work costs (issue 4, "Cost"). Everything is generated the same way
each time; times are wall time, and of each its ratio to the calibration loop is told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import ParamSpec

from benchmarks.engine_world import World, WorldSize, busy_world, crowd, fair_world, full_queue, single
from benchmarks.machine import spin
from benchmarks.report import Line, Report, percentile
from queue_manager.controller.garbage import settle_garbage
from queue_manager.engine import undo
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Workload

P = ParamSpec("P")
FULL_PASS = {"full": WorldSize(10, 100, 50), "small": WorldSize(2, 5, 5)}
SHAPES = {"full": 1000, "small": 40}
CROWDS = {"full": (10_000, 100_000), "small": (200, 2_000)}
FAIR_QUEUES = {"full": (10, 50), "small": (2, 5)}
RUNNING = {"full": 10_000, "small": 500}
REPEATS = {"full": 3, "small": 1}
EVENTS = {"full": 100, "small": 10}
VICTIMS = 100


@dataclass(slots=True)
class Table:
    """Collects the rows; `spun` is the calibration in milliseconds."""

    report: Report
    spun: float

    def seconds(self, what: str, samples: Sequence[float], wanted: str) -> None:
        """A row of something that takes long, measured a few times."""
        middle = median(samples)
        value = f"{middle:.2f} s (of {len(samples)}: {min(samples):.2f} to {max(samples):.2f})"
        self._add(what, value, wanted, 1000 * middle)

    def milliseconds(self, what: str, samples: Sequence[float], wanted: str = "") -> float:
        """A row of something that is measured often; returns its median in milliseconds."""
        middle, most = (1000 * percentile(samples, p) for p in (50, 95))
        self._add(what, f"p50 {middle:.2f} / p95 {most:.2f} ms (n={len(samples)})", wanted, middle)
        return middle

    def _add(self, what: str, value: str, wanted: str, milliseconds: float) -> None:
        self.report.lines.append(Line(what, value, wanted, f"{milliseconds / self.spun:.2f} x calibration"))


def run(size: str, keep: Path | None) -> list[Report]:
    """The table."""
    built = "compiled" if not undo.__file__.endswith(".py") else "pure Python"
    table = Table(Report(f"engine, {built}: cost of one piece of work"), spin())
    _passes(table, size)
    _events(table, size)
    _search(table, size)
    _fair(table, size)
    _memory(table, size)
    table.report.note("garbage collection as in the controller's process; explanations are worked out when read")
    table.report.note("wanted of the issue: pure Python (compiled); p50 is compared")
    return [table.report]


def _timed(work: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> float:
    started = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - started


def _passes(table: Table, size: str) -> None:
    world = FULL_PASS[size]
    samples, after = [], []
    for _ in range(REPEATS[size]):
        found = busy_world(world)
        settle_garbage()
        samples.append(_timed(_expect, found.engine, world.queues))
        after += [_timed(_edit_and_plan, found, number) for number in range(10)]
    what = f"{world.waiting} waiting in {world.queues} queues: a full pass that admits {world.queues}"
    table.seconds(what, samples, "1.5 s (0.3 s)")
    table.milliseconds("the same with nothing to admit, after one quota edit", after, "20 ms")


def _expect(engine: Engine, admissions: int) -> None:
    found = len(engine.plan(1).admissions)
    if found != admissions:
        raise RuntimeError(f"{found} workloads were admitted, not {admissions}")


def _edit_and_plan(world: World, number: int) -> None:
    """One more or one less of what everybody waits for, in another queue each time: too little to admit anybody."""
    world.engine.configure(world.edited(number))
    _expect(world.engine, 0)


def _events(table: Table, size: str) -> None:
    medians: list[tuple[float, float]] = []
    for waiting in CROWDS[size]:
        arrivals, finishes = _steady(waiting, SHAPES[size], EVENTS[size])
        shape = f"{waiting} waiting of {SHAPES[size]} shapes"
        medians.append(
            (
                table.milliseconds(f"one arrival, {shape}", arrivals, "2 ms"),
                table.milliseconds(f"one finish, {shape}", finishes, "2 ms"),
            )
        )
    (few_a, few_f), (many_a, many_f) = medians
    table.report.value(
        "with ten times as many waiting: arrival, finish", f"{many_a / few_a:.2f} x, {many_f / few_f:.2f} x", "1.5 x"
    )


def _steady(waiting: int, shapes: int, events: int) -> tuple[list[float], list[float]]:
    """Arrivals, and ends of one that ran; the next one starts in its place."""
    engine, running, queues = crowd(waiting, shapes)
    settle_garbage()
    arrivals, finishes = [], []
    for number in range(events):
        queue = queues[number % len(queues)]
        arrival = single(f"new-{number}", queue, 10**9 + number, number % shapes)
        arrivals.append(_timed(_arrive, engine, arrival))
        finishes.append(_timed(_finish, engine, running, 10 + number))
    return arrivals, finishes


def _arrive(engine: Engine, arrival: Workload) -> None:
    engine.upsert_workload(arrival)
    _expect(engine, 0)


def _finish(engine: Engine, running: list[str], now: int) -> None:
    """The one that runs longest ends; who starts in its place joins `running`."""
    uid = running.pop(0)
    engine.evict(uid)
    engine.release(uid)
    engine.remove_workload(uid)
    started = [admission.uid for admission in engine.plan(now).admissions]
    if len(started) != 1:
        raise RuntimeError(f"{len(started)} workloads started in one free place")
    running += started


def _search(table: Table, size: str) -> None:
    running = RUNNING[size]
    engine = full_queue(running)
    settle_garbage()
    numbers, samples = count(), []

    def search() -> None:
        engine.upsert_workload(single(f"high-{next(numbers)}", "queue", 10**9, 0, VICTIMS, priority=10))
        found = len(engine.plan(2).evictions)
        if found != VICTIMS:
            raise RuntimeError(f"{found} victims, not {VICTIMS}")

    for number in range(10 * REPEATS[size]):
        samples.append(_timed(search))
        engine.revoke()
        engine.remove_workload(f"high-{number}")
    what = f"preemption search: queue of {running} running, {VICTIMS} victims needed"
    table.milliseconds(what, samples, "100 ms (30 ms)")


def _fair(table: Table, size: str) -> None:
    engine, running, queues = fair_world(*FAIR_QUEUES[size])
    settle_garbage()
    samples = [_timed(_finish, engine, running, 10 + number) for number in range(EVENTS[size])]
    table.milliseconds(f"fair sharing, 3 levels, all {queues} queues contend, one admission", samples, "5 ms (1 ms)")


def _memory(table: Table, size: str) -> None:
    waiting = CROWDS[size][1]
    command = [sys.executable, "-m", "benchmarks.engine_memory", str(waiting), str(SHAPES[size])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after = (int(word) / 1e6 for word in done.stdout.split())
    value = f"{after:.0f} MB, the whole process ({before:.0f} MB of it before anything is configured)"
    table.report.value(f"memory: {waiting} waiting", value, "300 MB")
