"""Places in a large topology: what a search, a node and the state cost, and how full racks get."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.machine import use_of
from benchmarks.report import Report
from queue_manager.engine.configuration import (
    CellQuota,
    Configuration,
    Flavor,
    FlavorQuotas,
    Node,
    Queue,
    ResourceGroup,
    Topology,
)
from queue_manager.engine.demand import Demand
from queue_manager.engine.engine import Engine
from queue_manager.engine.fleet import Fleet, PodFilter
from queue_manager.engine.scopes import Misfit, Scope
from queue_manager.engine.topology import Placement
from queue_manager.engine.tree import FUTURE
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest, Workload

ZONE, BLOCK, RACK, HOST = "topology/zone", "topology/block", "topology/rack", "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
FLEETS = {"full": (4, 10, 5, 100), "small": (2, 2, 2, 10)}
GANGS = {"full": (64, 4096), "small": (8, 30)}
SAMPLES = {"full": 200, "small": 5}
SEEDS = {"full": 100, "small": 3}
ANY = PodFilter((), (), ())
RACKS, IN_RACK, LARGEST = 10, 64, 16


def run(size: str, keep: Path | None) -> list[Report]:
    """A report on times and memory, one on how full racks get."""
    return [_costs(size), _filling(size)]


def _costs(size: str) -> Report:
    zones, blocks, racks, hosts = FLEETS[size]
    nodes = list(_nodes(zones, blocks, racks, hosts))
    report = Report(f"engine: topology of {len(nodes)} nodes ({zones} zones x {blocks} blocks x {racks} racks)")
    resident = use_of([os.getpid()]).resident
    started = time.perf_counter()
    engine = _engine(8 * len(nodes), (ZONE, BLOCK, RACK, HOST))
    for node in nodes:
        engine.upsert_node(node)
    small, large = GANGS[size]
    first = _plan(engine, small, TopologyRequest(TopologyMode.REQUIRED, RACK), 0)
    report.value("state of all nodes, first gang placed", f"{time.perf_counter() - started:.2f} s", "2 s")
    report.value("memory for it", f"{(use_of([os.getpid()]).resident - resident) / 2**20:.0f} MB", "100 MB")
    report.value("of that the first plan", f"{1000 * first:.1f} ms")
    fleet = Fleet(UndoLog())
    for node in nodes:
        fleet.upsert(node)
    changes = []
    for number in range(SAMPLES[size]):
        node = nodes[number * 7919 % len(nodes)]
        changed = replace(node, allocatable={**node.allocatable, GPU: 8 - number % 2, "cpu": 96_000 - number})
        began = time.perf_counter()
        engine.upsert_node(changed)
        changes.append(time.perf_counter() - began)
        engine.upsert_node(node)
    report.value("one node changes", f"{1e6 * sorted(changes)[len(changes) // 2]:.0f} us (median)", "50 us")
    for what, pods, request, wanted in (
        (f"required rack, {small} pods", small, TopologyRequest(TopologyMode.REQUIRED, RACK), "1 ms"),
        (
            f"preferred block, {large} pods",
            large,
            TopologyRequest(TopologyMode.PREFERRED, BLOCK),
            "20 ms",
        ),
        (f"no wish, {small} pods", small, TopologyRequest(TopologyMode.UNCONSTRAINED), ""),
    ):
        count = max(3, SAMPLES[size] * small // (pods * 4))
        searches = [_search(fleet, pods, request) for _ in range(count + 1)]
        report.times(f"{what}: search alone", searches[1:], wanted)
        report.times(f"{what}: whole plan", [_plan(engine, pods, request, n) for n in range(count)])
    return report


def _filling(size: str) -> Report:
    report = Report(f"engine: {RACKS} racks of {IN_RACK} nodes filled with gangs of 1-{LARGEST} nodes in a rack")
    seeds = range(SEEDS[size])
    ours = [_filled(seed) for seed in seeds]
    best = [_packed(seed, min) for seed in seeds]
    least = [_packed(seed, max) for seed in seeds]
    report.value("GPUs in use when the first gang fails, mean", f"{_mean(ours):.2f} %", "98 %, and not below best fit")
    report.value("best fit", f"{_mean(best):.2f} %")
    report.value("least fit", f"{_mean(least):.2f} %")
    return report


def _filled(seed: int) -> float:
    """Share of GPUs that our engine gives away until the first gang fails."""
    random, engine, used = Random(seed), _engine(8 * RACKS * IN_RACK, (RACK, HOST)), 0
    for node in _nodes(1, 1, RACKS, IN_RACK):
        engine.upsert_node(node)
    number = 0
    while True:
        pods = random.randint(1, LARGEST)
        engine.upsert_workload(_gang(f"g{number}", number, pods, TopologyRequest(TopologyMode.REQUIRED, RACK)))
        if not engine.plan(1 + number).admissions:
            return 100 * used / (RACKS * IN_RACK)
        used += pods
        number += 1


def _packed(seed: int, choose: Callable[[list[int]], int]) -> float:
    """The same gangs put into the rack with least (min) or most (max) room."""
    random, racks, used = Random(seed), [IN_RACK] * RACKS, 0
    while True:
        pods = random.randint(1, LARGEST)
        fitting = [room for room in racks if room >= pods]
        if not fitting:
            return 100 * used / (RACKS * IN_RACK)
        racks[racks.index(choose(fitting))] -= pods
        used += pods


def _mean(shares: list[float]) -> float:
    return sum(shares) / len(shares)


def _plan(engine: Engine, pods: int, request: TopologyRequest, number: int) -> float:
    """Seconds of a plan that admits one gang; the gang is gone afterwards."""
    uid = f"gang-{number}"
    engine.upsert_workload(_gang(uid, number, pods, request))
    started = time.perf_counter()
    plan = engine.plan(1_000_000 + number)
    seconds = time.perf_counter() - started
    if len(plan.admissions) != 1:
        raise RuntimeError(f"the gang was not admitted: {plan.waiting}")
    engine.evict(uid)
    engine.release(uid)
    engine.remove_workload(uid)
    return seconds


def _search(fleet: Fleet, pods: int, request: TopologyRequest) -> float:
    """Seconds of the search for places alone; what it found is taken and given back, as in a plan."""
    forest = fleet.forest((ZONE, BLOCK, RACK, HOST), {})
    demand = Demand(0, "node", pods, {GPU: 8, "cpu": 1000, "pods": 1}, (0, 0), forest, ANY, fleet.mask(ANY))
    started = time.perf_counter()
    found = Placement(fleet, (FUTURE,), (demand,)).place(Scope(request, (demand,)))
    seconds = time.perf_counter() - started
    if isinstance(found, Misfit):
        raise RuntimeError(f"no place was found: {found}")
    taken = {node: {GPU: 8 * count, "cpu": 1000 * count, "pods": count} for node, count in found[0].items()}
    fleet.occupy(taken, FUTURE)
    fleet.vacate(taken, FUTURE)
    return seconds


def _engine(gpus: int, levels: tuple[str, ...]) -> Engine:
    quotas = FlavorQuotas("gpus", {GPU: CellQuota(gpus), "cpu": CellQuota(10**9)})
    engine = Engine()
    engine.configure(
        Configuration(
            topologies={"racks": Topology("racks", levels)},
            flavors={"gpus": Flavor("gpus", topology="racks")},
            queues={"queue": Queue("queue", resource_groups=(ResourceGroup((GPU, "cpu"), (quotas,)),))},
        )
    )
    return engine


def _nodes(zones: int, blocks: int, racks: int, hosts: int) -> list[Node]:
    return [
        Node(
            f"z{zone}-b{block}-r{rack}-n{host}",
            {ZONE: f"z{zone}", BLOCK: f"b{block}", RACK: f"r{rack}", HOST: f"z{zone}-b{block}-r{rack}-n{host}"},
            {GPU: 8, "cpu": 96_000, "memory": 1 << 40, "pods": 110},
        )
        for zone in range(zones)
        for block in range(blocks)
        for rack in range(racks)
        for host in range(hosts)
    ]


def _gang(uid: str, created: int, pods: int, topology: TopologyRequest | None) -> Workload:
    pod_set = PodSet("node", pods, {GPU: 8, "cpu": 1000}, topology=topology)
    return Workload(uid, "team", uid, "queue", created, (PodGroup("node", (pod_set,)),))
