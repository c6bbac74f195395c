"""Worlds for the engine's figures: queues, quotas and workloads, the same each time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Cohort,
    Configuration,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    Queue,
    ResourceGroup,
)
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, Workload

FLAVORS = ("h100", "a100", "l40", "spot")
GPU, CPU, MEMORY, DISK = RESOURCES = ("nvidia.com/gpu", "cpu", "memory", "ephemeral-storage")
GPUS = 8
"""GPUs of one workload: what everybody waits for; of the other resources there is enough."""
PLENTY = 10**15
CROWD_QUEUES = 20


@dataclass(frozen=True, slots=True)
class WorldSize:
    """`cohorts` with `queues_each`, in each queue one workload of each of `shapes`."""

    cohorts: int
    queues_each: int
    shapes: int

    @property
    def queues(self) -> int:
        """All queues."""
        return self.cohorts * self.queues_each

    @property
    def waiting(self) -> int:
        """All workloads that wait."""
        return self.queues * self.shapes


@dataclass(slots=True)
class World:
    """An engine and its configuration."""

    engine: Engine
    configuration: Configuration

    def edited(self, number: int) -> Configuration:
        """With one GPU more, or again less, in one queue; kept for the next edit."""
        name = f"queue-{number // 2}"
        gpus = GPUS + 1 - number % 2
        queue = replace(self.configuration.queues[name], resource_groups=(group({"spot": gpus}),))
        self.configuration = replace(self.configuration, queues={**self.configuration.queues, name: queue})
        return self.configuration


def group(gpus: dict[str, int], usual: int = GPUS) -> ResourceGroup:
    """One resource group of 4 flavors and 4 resources; only GPUs are scarce."""
    return ResourceGroup(
        RESOURCES,
        tuple(
            FlavorQuotas(flavor, {r: CellQuota(gpus.get(flavor, usual) if r == GPU else PLENTY) for r in RESOURCES})
            for flavor in FLAVORS
        ),
    )


def single(uid: str, queue: str, created: int, shape: int, gpus: int = GPUS, priority: int = 0) -> Workload:
    """A workload of one pod; shapes differ in what there is enough of."""
    requests = {GPU: gpus, CPU: 1000 + shape, MEMORY: 1 << 30, DISK: 1 << 30}
    return Workload(uid, "team", uid, queue, created, (PodGroup("main", (PodSet("main", 1, requests),)),), priority)


def admitted(workload: Workload, flavor: str, at: int) -> Admission:
    """Its admission on one flavor."""
    requests = workload.pod_sets[0].requests
    flavors = dict.fromkeys(requests, flavor)
    charge = {Cell(flavor, resource): amount for resource, amount in requests.items()}
    return Admission(workload.uid, workload.queue, (PodSetAssignment("main", 1, flavors),), charge, at)


def run_at_once(engine: Engine, workload: Workload, flavor: str) -> None:
    """The workload runs already."""
    engine.upsert_workload(workload)
    engine.restore_admission(admitted(workload, flavor, workload.created))


def busy_world(size: WorldSize) -> World:
    """Three of the four flavors are full in every queue, the fourth has room for one workload a queue."""
    names = [f"queue-{number}" for number in range(size.queues)]
    configuration = Configuration(
        flavors={flavor: Flavor(flavor) for flavor in FLAVORS},
        cohorts={f"cohort-{number}": Cohort(f"cohort-{number}") for number in range(size.cohorts)},
        queues={
            name: Queue(name, cohort=f"cohort-{number % size.cohorts}", resource_groups=(group({}),))
            for number, name in enumerate(names)
        },
    )
    engine = Engine()
    engine.configure(configuration)
    for name in names:
        for number, flavor in enumerate(FLAVORS[:-1]):
            run_at_once(engine, single(f"{name}-runs-{number}", name, number, number), flavor)
    for shape in range(size.shapes):
        for number, name in enumerate(names):
            engine.upsert_workload(single(f"{name}-waits-{shape}", name, 1000 + shape * size.queues + number, shape))
    return World(engine, configuration)


def crowd(waiting: int, shapes: int) -> tuple[Engine, list[str], list[str]]:
    """A steady state: everything is in use, `waiting` workloads of `shapes` shapes wait in the queues of one cohort.
    Returns the engine, who runs, and the queues."""
    names = [f"queue-{number}" for number in range(CROWD_QUEUES)]
    engine = Engine()
    engine.configure(
        Configuration(
            flavors={flavor: Flavor(flavor) for flavor in FLAVORS},
            cohorts={"all": Cohort("all")},
            queues={name: Queue(name, cohort="all", resource_groups=(group({}),)) for name in names},
        )
    )
    running = []
    for name in names:
        for number, flavor in enumerate(FLAVORS):
            running.append(f"{name}-runs-{number}")
            run_at_once(engine, single(running[-1], name, number, number), flavor)
    for number in range(waiting):
        shape = number % shapes
        engine.upsert_workload(single(f"later-{number}", names[shape % len(names)], 1000 + number, shape))
    engine.plan(2)
    return engine, running, names


def full_queue(running: int) -> Engine:
    """One queue that is full of small workloads; a higher priority may evict them."""
    queue = Queue(
        "queue",
        resource_groups=(group({FLAVORS[0]: running}, 0),),
        preemption=Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY),
    )
    engine = Engine()
    engine.configure(Configuration(flavors={flavor: Flavor(flavor) for flavor in FLAVORS}, queues={"queue": queue}))
    for number in range(running):
        run_at_once(engine, single(f"runs-{number}", "queue", number, number % 10, 1), FLAVORS[0])
    engine.plan(1)
    return engine


def fair_world(cohorts: int, queues_each: int) -> tuple[Engine, list[str], int]:
    """Three levels: all, cohorts, queues. Everything is in use, in each queue three workloads wait: whoever ends, all
    queues contend for the place. Returns the engine, who runs, and the number of queues."""
    names = [f"queue-{number}" for number in range(cohorts * queues_each)]
    below = [f"cohort-{number}" for number in range(cohorts)]
    engine = Engine()
    engine.configure(
        Configuration(
            flavors={flavor: Flavor(flavor) for flavor in FLAVORS},
            cohorts={"all": Cohort("all"), **{name: Cohort(name, "all") for name in below}},
            queues={
                name: Queue(name, cohort=below[number % cohorts], resource_groups=(group({}),))
                for number, name in enumerate(names)
            },
            fair_sharing=FairSharing(),
        )
    )
    running = []
    for name in names:
        for number, flavor in enumerate(FLAVORS):
            running.append(f"{name}-runs-{number}")
            run_at_once(engine, single(running[-1], name, number, number), flavor)
    for shape in range(3):
        for number, name in enumerate(names):
            engine.upsert_workload(single(f"{name}-waits-{shape}", name, 1000 + shape * len(names) + number, shape))
    engine.plan(2)
    return engine, running, len(names)
