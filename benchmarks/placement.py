"""The engine alone: what a plan costs with many nodes, and with many workloads that wait in few queues."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from benchmarks.report import Report
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

BLOCK, RACK, HOST = "topology/block", "topology/rack", "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
FLEETS = {"full": (8, 25, 25), "small": (2, 5, 10)}
GANGS = {"full": 512, "small": 16}
WAITING = {"full": 10_000, "small": 200}
ROUNDS = {"full": 100, "small": 10}
QUEUES = 20


def run(size: str, keep: Path | None) -> list[Report]:
    """A report on gangs and one on events."""
    return [_gangs(size), _events(size)]


def _gangs(size: str) -> Report:
    blocks, racks, hosts = FLEETS[size]
    pods = GANGS[size]
    report = Report(f"engine: plan of a gang of {pods} pods with 8 GPUs each, {blocks * racks * hosts} nodes")
    for name, topology in (
        ("required block", TopologyRequest(TopologyMode.REQUIRED, BLOCK)),
        ("preferred rack", TopologyRequest(TopologyMode.PREFERRED, RACK)),
        ("no topology request", None),
    ):
        engine = Engine()
        engine.configure(_configuration(8 * blocks * racks * hosts, queues=1))
        _add_nodes(engine, blocks, racks, hosts)
        samples = []
        for number in range(ROUNDS[size] + 1):
            engine.upsert_workload(_gang(f"gang-{number}", number, pods, topology))
            started = time.perf_counter()
            plan = engine.plan(1_000_000 + number)
            samples.append(time.perf_counter() - started)
            if len(plan.admissions) != 1:
                raise RuntimeError(f"the gang was not admitted: {plan.waiting}")
            engine.evict(f"gang-{number}")
            engine.release(f"gang-{number}")
            engine.remove_workload(f"gang-{number}")
        report.times(f"{name}, caches warm", samples[1:])
        report.value(f"{name}, the first", f"{1000 * samples[0]:.1f} ms")
    return report


def _events(size: str) -> Report:
    waiting, rounds = WAITING[size], ROUNDS[size]
    report = Report(f"engine: one workload of {waiting} that wait in {QUEUES} queues starts where another ended")
    for name, shapes in (("20 shapes", 20), ("all of different shape", waiting)):
        samples, arrivals = _event(waiting, rounds, shapes)
        report.times(f"{name}: release and plan", samples)
        report.times(f"{name}: arrival and plan", arrivals)
    report.note("an arrival is a new workload at the end of a full queue")
    return report


def _event(waiting: int, rounds: int, shapes: int) -> tuple[list[float], list[float]]:
    engine, random = Engine(), Random(1)
    engine.configure(_configuration(64, queues=QUEUES, topology=False))
    running = [_single(f"first-{number}", f"queue-{number % QUEUES}", number, 64) for number in range(QUEUES)]
    for workload in running:
        engine.upsert_workload(workload)
    admitted = [admission.uid for admission in engine.plan(1).admissions]
    for number in range(waiting):
        # The shapes differ in what nobody counts here, so that each start needs what one ended workload frees.
        engine.upsert_workload(
            _single(f"later-{number}", f"queue-{random.randrange(QUEUES)}", 1000 + number, 64, number % shapes)
        )
    engine.plan(2)
    samples, arrivals = [], []
    for number in range(rounds):
        uid = admitted.pop(0)
        started = time.perf_counter()
        engine.evict(uid)
        engine.release(uid)
        engine.remove_workload(uid)
        plan = engine.plan(3 + number)
        samples.append(time.perf_counter() - started)
        admitted += [admission.uid for admission in plan.admissions]
        arrival = _single(f"new-{number}", f"queue-{number % QUEUES}", 10**9 + number, 64, number % shapes)
        started = time.perf_counter()
        engine.upsert_workload(arrival)
        engine.plan(3 + number)
        arrivals.append(time.perf_counter() - started)
    return samples, arrivals


def _configuration(gpus: int, queues: int, topology: bool = True) -> Configuration:
    """Queues of one cohort, each with this nominal quota."""
    levels = (BLOCK, RACK, HOST)
    quotas = FlavorQuotas("gpus", {GPU: CellQuota(gpus), "cpu": CellQuota(10**9)})
    group = ResourceGroup((GPU, "cpu"), (quotas,))
    return Configuration(
        topologies={"racks": Topology("racks", levels)} if topology else {},
        flavors={"gpus": Flavor("gpus", topology="racks" if topology else "")},
        cohorts={"all": Cohort("all")},
        queues={
            f"queue-{number}": Queue(f"queue-{number}", cohort="all", resource_groups=(group,))
            for number in range(queues)
        },
    )


def _add_nodes(engine: Engine, blocks: int, racks: int, hosts: int) -> None:
    for block in range(blocks):
        for rack in range(racks):
            for host in range(hosts):
                name = f"b{block}-r{rack}-n{host}"
                labels = {BLOCK: f"b{block}", RACK: f"b{block}-r{rack}", HOST: name}
                engine.upsert_node(Node(name, labels, {GPU: 8, "cpu": 96_000, "memory": 1 << 40, "pods": 110}))


def _gang(uid: str, created: int, pods: int, topology: TopologyRequest | None) -> Workload:
    pod_set = PodSet("node", pods, {GPU: 8, "cpu": 1000}, topology=topology)
    return Workload(uid, "team", uid, "queue-0", created, (PodGroup("node", (pod_set,)),))


def _single(uid: str, queue: str, created: int, gpus: int, shape: int = 0) -> Workload:
    pod_set = PodSet("main", 1, {GPU: gpus, "cpu": 1000 + shape})
    return Workload(uid, "team", uid, queue, created, (PodGroup("main", (pod_set,)),))
