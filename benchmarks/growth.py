"""How the cost of one event grows with what there is: ten times the workloads, the queues, the nodes. The engine alone,
by processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.report import Report, percentile
from queue_manager.controller.garbage import settle_garbage
from queue_manager.engine.configuration import (
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorQuotas,
    Node,
    Queue,
    ResourceGroup,
    Topology,
)
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest, Workload

GPU, BLOCK, RACK, HOST = "nvidia.com/gpu", "block", "rack", "host"
GPUS, PODS, HOSTS, RACKS = 8, 2, 20, 10
"""GPUs of a node and of a pod; pods of a gang; hosts of a rack; racks of a block."""
IN_COHORT, SHAPES = 20, 50


@dataclass(frozen=True, slots=True)
class Size:
    """`waiting` gangs, `queues` in cohorts of 20, `nodes` that are all in use."""

    waiting: int
    queues: int
    nodes: int


SIZES = {"full": (Size(10_000, 100, 2_000), 100), "small": (Size(200, 20, 200), 10)}
"""The smallest; how often each event is measured."""
GROWN: dict[str, Callable[[Size], Size]] = {
    "as it is": lambda size: size,
    "10 x waiting": lambda size: replace(size, waiting=10 * size.waiting),
    "10 x queues": lambda size: replace(size, queues=10 * size.queues),
    "10 x nodes": lambda size: replace(size, nodes=10 * size.nodes),
    "all three": lambda size: Size(10 * size.waiting, 10 * size.queues, 10 * size.nodes),
}


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: each event in each world, and its ratio to the smallest world."""
    base, rounds = SIZES[size]
    report = Report(f"growth: {base.waiting} wait in {base.queues} queues, {base.nodes} nodes in use; then more")
    least: dict[str, float] = {}
    for name, grown in GROWN.items():
        made = _World(grown(base))
        settle_garbage()
        for event, samples in made.measure(rounds).items():
            middle, most = 1000 * percentile(samples, 50), 1000 * percentile(samples, 95)
            ratio = middle / least.setdefault(event, middle)
            report.value(f"{name}: {event}", f"p50 {middle:.2f} / p95 {most:.2f} ms = {ratio:.1f} x")
    report.note("an event with the pass that follows it; processor time; gangs of 2 pods of 8 GPUs in one rack")
    return [report]


@dataclass(slots=True)
class _World:
    size: Size
    engine: Engine = field(default_factory=Engine)
    running: list[str] = field(default_factory=list)
    created: int = 0
    configuration: Configuration = field(init=False)

    def __post_init__(self) -> None:
        self.configuration = _configuration(self.size)
        self.engine.configure(self.configuration)
        for number in range(self.size.nodes):
            self.engine.upsert_node(_node(number))
        places = self.size.nodes // PODS
        for _ in range(places):
            self.engine.upsert_workload(self._gang())
        self.running += [admission.uid for admission in self.engine.plan(1).admissions]
        if len(self.running) != places:
            raise RuntimeError(f"{len(self.running)} gangs started in {places} places")
        for _ in range(self.size.waiting):
            self.engine.upsert_workload(self._gang())
        self.engine.plan(2)

    def measure(self, rounds: int) -> dict[str, list[float]]:
        """Seconds of each event, one after the other."""
        events = {
            "an arrival": self._arrive,
            "an end, and who starts": self._end,
            "a node's change": self._node,
            "an edit": self._edit,
        }
        return {name: [_timed(event, number) for number in range(rounds)] for name, event in events.items()}

    def _gang(self) -> Workload:
        number, self.created = self.created, self.created + 1
        topology = TopologyRequest(TopologyMode.REQUIRED, RACK)
        pod_set = PodSet(
            "main", PODS, {GPU: GPUS, "cpu": 1000 + number // self.size.queues % SHAPES}, topology=topology
        )
        queue = f"queue-{number % self.size.queues}"
        return Workload(f"uid-{number}", "team", f"job-{number}", queue, number, (PodGroup("main", (pod_set,)),))

    def _arrive(self, number: int) -> None:
        self.engine.upsert_workload(self._gang())
        self._plan(0)

    def _end(self, number: int) -> None:
        uid = self.running.pop(0)
        self.engine.evict(uid)
        self.engine.release(uid)
        self.engine.remove_workload(uid)
        self._plan(1)

    def _node(self, number: int) -> None:
        """It has a little less of what nobody lacks."""
        node = _node(number)
        self.engine.upsert_node(replace(node, allocatable={**node.allocatable, "memory": (1 << 40) - number - 1}))
        self._plan(0)

    def _edit(self, number: int) -> None:
        """One GPU more in a queue, or again less: too little to start anybody."""
        queue = self.configuration.queues[f"queue-{number // 2 % self.size.queues}"]
        fresh = replace(queue, resource_groups=(_group(self.size, 1 - number % 2),))
        self.configuration = replace(self.configuration, queues={**self.configuration.queues, fresh.name: fresh})
        self.engine.configure(self.configuration)
        self._plan(0)

    def _plan(self, admissions: int) -> None:
        found = self.engine.plan(3).admissions
        if len(found) != admissions:
            raise RuntimeError(f"{len(found)} workloads were admitted, not {admissions}")
        self.running += [admission.uid for admission in found]


def _timed(event: Callable[[int], None], number: int) -> float:
    began = time.process_time()
    event(number)
    return time.process_time() - began


def _group(size: Size, more: int = 0) -> ResourceGroup:
    gpus = size.nodes * GPUS // size.queues + more
    quotas = FlavorQuotas("gpus", {GPU: CellQuota(gpus), "cpu": CellQuota(10**9)})
    return ResourceGroup((GPU, "cpu"), (quotas,))


def _configuration(size: Size) -> Configuration:
    names = [f"queue-{number}" for number in range(size.queues)]
    cohorts = [f"cohort-{number}" for number in range(size.queues // IN_COHORT)]
    return Configuration(
        topologies={"racks": Topology("racks", (BLOCK, RACK, HOST))},
        flavors={"gpus": Flavor("gpus", topology="racks")},
        cohorts={name: Cohort(name) for name in cohorts},
        queues={
            name: Queue(name, cohort=cohorts[number % len(cohorts)], resource_groups=(_group(size),))
            for number, name in enumerate(names)
        },
    )


def _node(number: int) -> Node:
    rack, block = number // HOSTS, number // HOSTS // RACKS
    labels = {BLOCK: f"b{block}", RACK: f"r{rack}", HOST: f"n{number}"}
    return Node(f"n{number}", labels, {GPU: GPUS, "cpu": 96_000, "memory": 1 << 40, "pods": 110})
