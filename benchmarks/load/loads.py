"""What is played: queues, classes of Jobs, intervals and run times of Kueue's published load tests (kueue.md, 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.control_plane.client import Object
from tests.control_plane.nodes import node
from tests.e2e.product import config

NOMINAL = 20
"""CPUs of each queue; it may borrow up to BORROWING more from its cohort."""
BORROWING = 100
BLOCK = "load.queue-manager.io/block"
RACK = "load.queue-manager.io/rack"
HOST = "kubernetes.io/hostname"
LOCAL_QUEUE = "load"
FLAVOR = "cpus"


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods of a Job: `pods` of `milli` milli-CPUs each, with `annotations` on the Job; `count` Jobs of it a queue."""

    count: int
    pods: int
    milli: int
    annotations: Mapping[str, str]

    @property
    def total(self) -> int:
        """Milli-CPUs of the whole Job."""
        return self.pods * self.milli


@dataclass(frozen=True, slots=True)
class Class:
    """Jobs of a queue that differ at most in their topology request. Times in milliseconds."""

    name: str
    shapes: tuple[Shape, ...]
    priority: int
    runs: int
    interval: int

    @property
    def count(self) -> int:
        """Jobs of this class in each queue."""
        return sum(shape.count for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Load:
    """One load test. `racks` x `hosts` nodes of 96 CPUs where there is a topology."""

    name: str
    cohorts: int
    queues_per_cohort: int
    classes: tuple[Class, ...]
    racks: int = 0
    hosts: int = 0

    @property
    def queues(self) -> int:
        """Queues in all."""
        return self.cohorts * self.queues_per_cohort

    @property
    def jobs(self) -> int:
        """Jobs in all."""
        return self.queues * sum(each.count for each in self.classes)

    @property
    def work_seconds(self) -> float:
        """Run time of all Jobs of a cohort times their CPUs, over its quota: no queue manager can be faster."""
        work = sum(shape.count * shape.total * each.runs for each in self.classes for shape in each.shapes)
        return work / 1_000_000 / NOMINAL

    def scaled(self, part: int) -> Load:
        """The same with one `part`-th of the cohorts and of each shape's Jobs, at least one: to try it out."""
        classes = tuple(
            replace(each, shapes=tuple(replace(s, count=max(1, s.count // part)) for s in each.shapes))
            for each in self.classes
        )
        return replace(self, cohorts=max(1, self.cohorts // part), classes=classes)


def _plain(name: str, count: int, cpus: int, priority: int, runs: int, interval: int) -> Class:
    return Class(name, (Shape(count, 1, 1000 * cpus, {}),), priority, runs, interval)


def _gangs(name: str, counts: tuple[int, int, int], pods: int, milli: int, slice_size: int, *times: int) -> Class:
    wishes: tuple[Mapping[str, str], ...] = (
        {"queue-manager.io/required-topology": RACK},
        {"queue-manager.io/preferred-topology": RACK},
        {
            "queue-manager.io/preferred-topology": RACK,
            "queue-manager.io/balanced": "true",
            "queue-manager.io/slice-topology": HOST,
            "queue-manager.io/slice-size": str(slice_size),
        },
    )
    shapes = tuple(Shape(count, pods, milli, wish) for count, wish in zip(counts, wishes, strict=True))
    priority, runs, interval = times
    return Class(name, shapes, priority, runs, interval)


LOADS: Mapping[str, Load] = {
    load.name: load
    for load in (
        Load(
            "baseline", 5, 6,
            (
                _plain("small", 350, 1, 50, 200, 100),
                _plain("medium", 100, 5, 100, 500, 500),
                _plain("large", 50, 20, 200, 1000, 1200),
            ),
        ),
        Load(
            "tas", 5, 6,
            (
                _gangs("small", (120, 120, 110), 2, 500, 1, 50, 200, 100),
                _gangs("medium", (34, 33, 33), 4, 1250, 2, 100, 500, 500),
                _gangs("large", (17, 17, 16), 8, 2500, 4, 200, 1000, 1200),
            ),
            racks=10, hosts=64,
        ),
        Load(
            "large-scale", 10, 100,
            (
                _plain("small", 35, 1, 50, 150, 60),
                _plain("medium", 11, 5, 100, 350, 300),
                _plain("large", 4, 20, 200, 700, 700),
            ),
        ),
    )
}  # fmt: skip


def queue_name(number: int) -> str:
    """Name of a queue, and of its namespace."""
    return f"load-{number:04}"


def cohort_name(load: Load, number: int) -> str:
    """Name of the cohort of a queue."""
    return f"cohort-{number // load.queues_per_cohort:02}"


def configuration(load: Load) -> Iterator[Object]:
    """Cohorts, queues with their local queues, priority classes and the flavor."""
    if load.racks:
        yield config("Topology", "racks", {"levels": [{"nodeLabel": key} for key in (BLOCK, RACK, HOST)]})
    yield config("Flavor", FLAVOR, {"topologyName": "racks"} if load.racks else {})
    for each in load.classes:
        yield config("PriorityClass", each.name, {"value": each.priority})
    for number in range(load.cohorts):
        yield config("Cohort", f"cohort-{number:02}")
    for number in range(load.queues):
        name = queue_name(number)
        quota = {"name": "cpu", "nominalQuota": NOMINAL, "borrowingLimit": BORROWING}
        spec: dict[str, Any] = {
            "cohortName": cohort_name(load, number),
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        }
        yield config("Queue", name, spec)
        yield config("LocalQueue", LOCAL_QUEUE, {"queue": name}, namespace=name)


def nodes(load: Load) -> Iterator[Object]:
    """The nodes of a topology: one block of racks."""
    for rack in range(load.racks):
        for host in range(load.hosts):
            labels = {BLOCK: "block", RACK: f"rack-{rack}"}
            yield node(f"rack-{rack}-host-{host}", labels=labels, resources={"memory": "256Gi"})


def job_body(name: str, each: Class, shape: Shape) -> dict[str, Any]:
    """A suspended Job as the generator creates it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {"queue-manager.io/queue": LOCAL_QUEUE, "queue-manager.io/priority-class": each.name},
            "annotations": dict(shape.annotations),
        },
        "spec": {
            "suspend": True,
            "parallelism": shape.pods,
            "completions": shape.pods,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "example",
                            "resources": {"requests": {"cpu": f"{shape.milli}m"}},
                        }
                    ],
                }
            },
        },
    }
