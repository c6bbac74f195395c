"""Plays each load without us (the floor), and through our controller with and without webhook and events."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.api_requests import WRITES, api_requests
from benchmarks.load.analysis import Figures, figures
from benchmarks.load.loads import LOADS, Load, configuration, nodes, queue_name
from benchmarks.load.record import Play
from benchmarks.machine import Meter, highest_resident
from benchmarks.report import Report
from benchmarks.world import BARE, World, create_all, world
from tests.control_plane.client import NODE
from tests.e2e.product import wait_for

PLAYER = "the player"
LONGEST = 3600.0
"""Seconds that one play may take."""


@dataclass(frozen=True, slots=True)
class Variant:
    """`floor`: the player starts each Job itself."""

    name: str
    floor: bool = False
    webhook: bool = False
    events: bool = False


VARIANTS: Mapping[str, Variant] = {
    "floor": Variant("floor: the generator starts each Job at once, no queue manager", floor=True),
    "bare": Variant("ours, without webhook and events"),
    "full": Variant("ours, with webhook and events", webhook=True, events=True),
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one play came to. `requests` are all that the API server answered, by (verb, resource)."""

    load: Load
    variant: Variant
    play: Play
    figures: Figures
    requests: Counter[tuple[str, str]]
    processor: Mapping[str, float]
    memory: Mapping[str, int]

    def own_writes(self) -> float:
        """Writes a Job that were not the player's."""
        writes = sum(count for (verb, _), count in self.requests.items() if verb in WRITES)
        return (writes - self.play.writes) / self.load.jobs


def run(
    loads: Sequence[str], variants: Sequence[str], part: int, keep: Path | None
) -> list[tuple[Report, list[Result]]]:
    """One report a load, with what was measured."""
    found = []
    for name in loads:
        load = LOADS[name].scaled(part) if part > 1 else LOADS[name]
        results = []
        for variant in variants:
            results.append(_play(load, VARIANTS[variant], part, keep))
            print(f"  {load.name}, {variant}: {results[-1].figures.wall:.1f} s", file=sys.stderr, flush=True)
        found.append((_report(load, results), results))
    return found


def _play(load: Load, variant: Variant, part: int, keep: Path | None) -> Result:
    with world(keep, **BARE) as made:
        _prepare(made, load)
        if variant.floor:
            made.product.remove_webhooks()
            return _measure(made, load, variant, part)
        made.product.configure_all(configuration(load))
        made.product.controller.command += ["--events", "on" if variant.events else "off"]
        with made.product.running(webhook=variant.webhook):
            return _measure(made, load, variant, part)


def _prepare(made: World, load: Load) -> None:
    names = [queue_name(number) for number in range(load.queues)]
    create_all(made.cluster, ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))
    if not load.racks:
        return
    created = create_all(made.cluster, nodes(load))

    def untaint(obj: dict[str, object]) -> None:
        # Without a node controller nobody else takes off the taint that a new node gets.
        made.cluster.client.patch(NODE, obj["metadata"]["name"], {"spec": {"taints": None}})  # type: ignore[index]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(untaint, created))


def _measure(made: World, load: Load, variant: Variant, part: int) -> Result:
    folder = made.product.folder
    out = folder / "play.json"
    command = [sys.executable, "-m", "benchmarks.load.player", load.name, "--out", str(out), "--part", str(part)]
    command += ["--kubeconfig", str(made.cluster.kubeconfig), *(["--floor"] if variant.floor else [])]
    player = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert player.stdout is not None
        assert player.stdin is not None
        if player.stdout.readline() != "ready\n":
            raise RuntimeError("the player did not start")
        processes = {**made.processes(), PLAYER: [player.pid]}
        before, meter, memory = api_requests(made.cluster), Meter(processes), _Memory(processes)
        player.stdin.write("\n")
        player.stdin.flush()
        children = _children_seconds()
        if player.wait(LONGEST) != 0:
            raise RuntimeError("the player failed")
        # It is gone, and its use is known by now as that of a child that ended.
        spent = {**meter.read()[1], PLAYER: _children_seconds() - children}
        highest = memory.read()
        if not variant.floor:
            wait_for(lambda: not made.product.store.pending_outbox(), "an empty outbox", 300)
        requests = api_requests(made.cluster) - before
    finally:
        if player.poll() is None:
            player.kill()
        player.wait()
    play = msgspec.json.decode(out.read_bytes(), type=Play)
    return Result(load, variant, play, figures(load, play), requests, spent, highest)


def _children_seconds() -> float:
    """Processor seconds of our child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


class _Memory:
    """Peak resident memory of groups of processes; looked at every second, for a process that ends takes it along."""

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = groups
        self._highest: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1):
            self._look()

    def _look(self) -> None:
        for name, pids in self._groups.items():
            try:
                now = sum(highest_resident(pid) for pid in pids)
            except (FileNotFoundError, ProcessLookupError, StopIteration):
                continue
            self._highest[name] = max(now, self._highest.get(name, 0))

    def read(self) -> Mapping[str, int]:
        """Bytes by group; ends the looking."""
        self._stop.set()
        self._thread.join()
        return self._highest


def _report(load: Load, results: Sequence[Result]) -> Report:
    report = Report(f"load {load.name}: {load.queues} queues, {load.jobs} Jobs")
    floor = next((r.figures.wall for r in results if r.variant.floor), 0.0)
    least = max(floor, load.work_seconds)
    report.value("work / quota", f"{load.work_seconds:.1f} s")
    for result in results:
        _lines(report, result, least)
    return report


def _lines(report: Report, result: Result, least: float) -> None:
    got, jobs, name = result.figures, result.load.jobs, result.variant.name
    report.value(name, f"{got.wall:.1f} s = {got.wall / least:.2f} x max(floor, work / quota)" if least else "")
    if not result.variant.floor:
        admission = ", ".join(f"{each} {seconds:.2f} s" for each, seconds in got.to_admission.items())
        report.value("  mean time to admission", admission)
        report.value(
            "  quota in use", f"{100 * got.used:.1f} %; {100 * got.used_in_need:.1f} % while anything had waited > 1 s"
        )
        report.times("  quota free and Job known -> unsuspended", got.idle_to_start)
        report.value("  stopped and started again", f"{got.stops} times")
        report.value("  writes of ours for each Job", f"{result.own_writes():.2f}")
    shown = ", ".join(
        f"{verb} {what} {count / jobs:.2f}"
        for (verb, what), count in result.requests.most_common()
        if count >= jobs / 100
    )
    report.value("  API requests for each Job", shown)
    spent = ", ".join(
        f"{part} {seconds:.0f}" for part, seconds in sorted(result.processor.items(), key=lambda i: -i[1])
    )
    report.value("  processor seconds", f"{spent} (all: {sum(result.processor.values()) / got.wall:.2f} cores)")
    memory = ", ".join(f"{part} {size >> 20}" for part, size in sorted(result.memory.items(), key=lambda i: -i[1]))
    report.value("  peak memory, MiB", memory)
