"""A cluster where much waits: nodes, Jobs that run with their pods, and Jobs that wait, all taken in by the product."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.report import Report
from benchmarks.world import World
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import JOBS, NAMESPACES, NODES, PODS, PatchType
from queue_manager.cluster.transport import ApiServer
from queue_manager.store.records import State, WorkloadRow
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, GPU, RACK, TOPOLOGY, Object, config, job, wait_for

T = TypeVar("T")
GPUS = 8
"""GPUs of a node, and of each pod."""
NODES_EACH = 2
"""Pods of each Job: as many nodes."""
ROOM = 10
"""Jobs that may start in the first queue when the controller is started next."""
SHAPES = 40
WRITERS = 32


@dataclass(frozen=True, slots=True)
class Crowd:
    """`blocks` x `racks` x `hosts` nodes; Jobs are spread evenly over the queues, each of a namespace of its own."""

    blocks: int
    racks: int
    hosts: int
    queues: int
    running: int
    waiting: int

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return self.blocks * self.racks * self.hosts


def configuration(crowd: Crowd, room: int) -> Iterator[Object]:
    """Queues with quota for the Jobs that run; the first one has room for some more."""
    yield TOPOLOGY
    yield FLAVOR
    each = crowd.running // crowd.queues
    for number in range(crowd.queues):
        places = each + (room if number == 0 else 0)
        yield _queue(queue_name(number), places * NODES_EACH)
        yield config("LocalQueue", "work", {"queue": queue_name(number)}, namespace=queue_name(number))


def _queue(name: str, pods: int) -> Object:
    quotas = [{"name": GPU, "nominalQuota": pods * GPUS}, {"name": "cpu", "nominalQuota": pods * SHAPES}]
    flavors = [{"name": "gpus", "resources": quotas}]
    group = {"coveredResources": [GPU, "cpu"], "flavors": flavors}
    return config("Queue", name, {"namespaceSelector": {}, "resourceGroups": [group]})


def queue_name(number: int) -> str:
    """Name of a queue and of its namespace."""
    return f"team-{number:03}"


def make_crowd(report: Report, made: World, crowd: Crowd) -> None:
    """Fills the API server, and the database through the controller, which is stopped then."""
    asyncio.run(_Filler(report, made, crowd).fill())


class _Filler:
    def __init__(self, report: Report, made: World, crowd: Crowd) -> None:
        self._report, self._made, self._crowd = report, made, crowd
        self._api = ApiServer(
            Credentials.default(str(made.cluster.kubeconfig)), user_agent="benchmark", connections=WRITERS
        )

    async def fill(self) -> None:
        crowd, product = self._crowd, self._made.product
        try:
            names = [queue_name(number) for number in range(crowd.queues)]
            await self._all(({"metadata": {"name": name}} for name in names), self._namespace)
            await self._all(iter(gpu_fleet(crowd.blocks, crowd.racks, crowd.hosts, gpus=GPUS)), self._node)
            product.configure_all(configuration(crowd, 0))
            with product.running(webhook=False):
                began = time.perf_counter()
                await self._all((_job("runs", number, crowd) for number in range(crowd.running)), self._job)
                await asyncio.to_thread(self._wait, State.RUNNING, crowd.running)
                seconds = time.perf_counter() - began
                self._report.note(f"{crowd.running} Jobs were created, taken in and started within {seconds:.0f} s")
                rows = [row for row in product.store.load_workloads() if row.state is State.RUNNING]
                await self._all(_pods(rows), self._pod)
                began = time.perf_counter()
                await self._all((_job("waits", number, crowd) for number in range(crowd.waiting)), self._job)
                await asyncio.to_thread(self._wait, State.WAITING, crowd.waiting)
                seconds = time.perf_counter() - began
                self._report.note(f"{crowd.waiting} Jobs were created and taken in within {seconds:.0f} s")
        finally:
            await self._api.close()

    def _wait(self, state: State, count: int) -> None:
        store = self._made.store

        def there() -> bool:
            counts = store.queue_counts().values()
            return sum(each.get(state, 0) for each in counts) == count

        wait_for(there, f"{count} {state}", 3600)

    async def _all(self, items: Iterator[T], write: Callable[[T], Awaitable[object]]) -> None:
        async def worker() -> None:
            for item in items:
                await write(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(worker())

    async def _namespace(self, body: Object) -> None:
        await self._api.create(NAMESPACES, "", body)

    async def _node(self, body: Object) -> None:
        await self._api.create(NODES, "", body)
        # Without a node controller nobody else takes off the taint that a new node gets.
        await self._api.patch(NODES, "", body["metadata"]["name"], {"spec": {"taints": None}}, PatchType.MERGE)

    async def _job(self, body: Object) -> None:
        await self._api.create(JOBS, body["metadata"]["namespace"], body)

    async def _pod(self, body: Object) -> None:
        await self._api.create(PODS, body["metadata"]["namespace"], body)


def _job(prefix: str, number: int, crowd: Crowd) -> Object:
    body = job(f"{prefix}-{number:06}", "work", parallelism=NODES_EACH, gpus=GPUS, suspend=True)
    body["metadata"]["namespace"] = queue_name(number % crowd.queues)
    body["metadata"]["annotations"]["queue-manager.io/required-topology"] = RACK
    resources = body["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"] = {"cpu": str(1 + number % SHAPES), GPU: str(GPUS)}
    return body


def _pods(rows: Iterable[WorkloadRow]) -> Iterator[Object]:
    """The pods of running Jobs, bound to nodes of the racks that these were given."""
    used: dict[str, int] = defaultdict(int)
    for row in rows:
        assert row.admission is not None
        for assigned in row.admission.admission.pod_sets:
            yield from _pods_of(row, assigned, used)


def _pods_of(row: WorkloadRow, assigned: Any, used: dict[str, int]) -> Iterator[Object]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": row.name, "uid": row.uid, "controller": True}
    selector = dict(assigned.selector)
    for number in range(assigned.count):
        rack = selector[RACK]
        used[rack] += 1
        yield {
            "metadata": {
                "name": f"{row.name}-{number}",
                "namespace": row.namespace,
                "labels": {"job-name": row.name, "batch.kubernetes.io/job-name": row.name},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": f"{rack}-n{used[rack]}",
                "nodeSelector": selector,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "example", "resources": {"limits": {GPU: str(GPUS)}}}],
            },
        }
