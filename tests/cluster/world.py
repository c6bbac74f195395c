"""A small simulated cluster on a virtual clock, and short ways to look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    Object,
    PatchType,
    Resource,
)
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.cluster.simulated.fleet import GPU, RACK_LABEL, demo_nodes, train_job
from queue_manager.cluster.simulated.kubelet import RUN_TIME
from queue_manager.cluster.simulated.runtimes import all_runtimes

NS = "team"
MANAGER = "queue-manager.io/manager"


class World:
    """2 blocks x 2 racks x 4 nodes x 8 GPUs."""

    def __init__(self, clock: VirtualClock, cluster: SimulatedCluster) -> None:
        self.clock = clock
        self.cluster = cluster

    def get(self, resource: Resource, name: str) -> Object:
        return self.cluster.state.get(resource, NS if resource.namespaced else "", name)

    def find(self, resource: Resource, name: str) -> Object | None:
        return self.cluster.state.peek(resource, NS if resource.namespaced else "", name)

    def pods(self, phase: str = "", **labels: str) -> list[Object]:
        found = self.cluster.state.storage.all(PODS)
        return [pod for pod in found if not phase or pod["status"]["phase"] == phase]

    def running(self) -> int:
        return len(self.pods("Running"))

    async def create(self, resource: Resource, body: Object) -> Object:
        return await self.cluster.create(resource, NS if resource.namespaced else "", body)

    async def patch(self, resource: Resource, name: str, *operations: Object) -> Object:
        return await self.cluster.patch(resource, NS, name, list(operations), PatchType.JSON)

    async def until(self, happened: Callable[[], Any], within: float = 120, what: str = "") -> None:
        await self.clock.run_until(happened, within, what)


@asynccontextmanager
async def world(seed: int = 1, **options: Any) -> AsyncIterator[World]:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, Random(seed), **options)
    for node in demo_nodes(2, 2, 4):
        cluster.add_node(node)
    await cluster.create(NAMESPACES, "", {"metadata": {"name": NS}})
    for runtime in all_runtimes():
        await cluster.create(CLUSTER_TRAINING_RUNTIMES, "", runtime)
    running = asyncio.create_task(cluster.run())
    await clock.advance(0)
    try:
        yield World(clock, cluster)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def suspended(name: str, *, nodes: int = 2, seconds: int = 30, **options: Any) -> Object:
    """A TrainJob as our webhook leaves it."""
    job = train_job(name, queue="team", nodes=nodes, seconds=seconds, **options)
    job["spec"] |= {"suspend": True, "runtimePatches": [{"manager": MANAGER}]}
    return job


def placement(job: str = "node", **pod_spec: Any) -> Object:
    """The content of our entry: pod spec fields for one replicated job."""
    template = {"spec": {"template": {"spec": pod_spec}}}
    return {"template": {"spec": {"replicatedJobs": [{"name": job, "template": template}]}}}


def start(where: Object, index: int = 0) -> list[Object]:
    """One write: placement and unsuspension."""
    return [
        {"op": "test", "path": f"/spec/runtimePatches/{index}/manager", "value": MANAGER},
        {"op": "add", "path": f"/spec/runtimePatches/{index}/trainingRuntimeSpec", "value": where},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]


def rack(name: str) -> dict[str, str]:
    return {RACK_LABEL: name}


SUSPEND: Object = {"op": "replace", "path": "/spec/suspend", "value": True}
RESUME: Object = {"op": "replace", "path": "/spec/suspend", "value": False}

__all__ = ["GPU", "JOBS", "JOB_SETS", "NS", "PODS", "RACK_LABEL", "RUN_TIME", "TRAIN_JOBS", "World", "world"]


def job(name: str, *, seconds: float | None = None, cpu: str = "1", pod: Object | None = None, **spec: Any) -> Object:
    """A batch/v1 Job."""
    container = {"name": "main", "image": "example.com/none", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
    annotations = {RUN_TIME: f"{seconds}s"} if seconds is not None else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"template": template, **spec}}


def job_set(name: str, *entries: Object, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"replicatedJobs": list(entries), **spec}}


def entry(name: str, *, replicas: int = 1, seconds: float | None = None, outcome: str = "", **job_spec: Any) -> Object:
    """A replicated job of a JobSet."""
    annotations = {RUN_TIME: f"{seconds}s"} if seconds is not None else {}
    if outcome:
        annotations["simulated.queue-manager.io/outcome"] = outcome
    container = {"name": "main", "image": "example.com/none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"backoffLimit": 0, "template": pod, **job_spec}}}
