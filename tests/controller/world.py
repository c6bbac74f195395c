"""The whole controller on a virtual clock: simulated cluster, real store, one seed for everything random."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any
from unittest import mock

from sqlalchemy import text

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    Object,
    Resource,
)
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.cluster.simulated.clock import START
from queue_manager.cluster.simulated.faults import Faults
from queue_manager.cluster.simulated.fleet import gpu_node
from queue_manager.cluster.simulated.runtimes import all_runtimes
from queue_manager.controller import term
from queue_manager.controller.controller import Controller
from queue_manager.store.records import State, Wish, WorkloadRow
from queue_manager.store.store import Store

OURS = "queue-manager"
CONFIGURATION = """
apiVersion: queue-manager.io/v1
kind: Topology
metadata: {name: racks}
spec:
  levels:
  - nodeLabel: topology.queue-manager.io/block
  - nodeLabel: topology.queue-manager.io/rack
  - nodeLabel: kubernetes.io/hostname
---
apiVersion: queue-manager.io/v1
kind: Flavor
metadata: {name: gpus}
spec: {topologyName: racks}
---
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {name: team}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: gpus, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
---
apiVersion: queue-manager.io/v1
kind: PriorityClass
metadata: {name: high}
spec: {value: 100}
"""


async def inline(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Database calls right where they are made: nothing else runs meanwhile."""
    return function(*arguments, **named)


async def silence() -> AsyncIterator[str]:
    """No notifications; the world tells the term itself."""
    await asyncio.get_running_loop().create_future()
    yield ""


async def no_timed_work(*_: Any) -> None:
    """Nothing happens by the wall clock."""
    await asyncio.get_running_loop().create_future()


class World:
    """2 racks of 2 nodes of 4 GPUs unless told otherwise (`rack`: nodes of a rack); one queue `team` with 16 GPUs.
    `lag`: the longest time that controllers of the cluster take to notice a change, in seconds."""

    def __init__(
        self,
        store: Store,
        seed: int = 0,
        faults: Faults | None = None,
        nodes: int = 4,
        rack: int = 2,
        *,
        lag: float = 0.0,
        start: datetime = START,
        configuration: str = CONFIGURATION,
        events: bool | None = None,
    ) -> None:
        self._events = events
        self.clock = VirtualClock(start)
        self.random = Random(seed)
        self.store = store
        self.cluster = SimulatedCluster(self.clock, Random(seed), faults=faults, lag=lag)
        self.user = self.cluster.as_user("ann")
        for number in range(nodes):
            name = f"rack-{number // rack}"
            self.cluster.add_node(gpu_node(f"n{number}", "block-0", name, 4))
        for runtime in all_runtimes():
            self.cluster.state.create(CLUSTER_TRAINING_RUNTIMES, "", runtime, manager="kubectl")
        self.cluster.state.create(NAMESPACES, "", {"metadata": {"name": "ns"}}, manager="kubectl")
        self.controller: Controller | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._starts = 0
        # It would walk all that the tests of this process have made, a tenth of a second each time.
        self._unsettled = mock.patch.object(term, "settle_garbage")
        self.configure(configuration)

    def configure(self, yaml: str) -> None:
        """Applies configuration; a running controller hears of it."""
        apply_text(Context(self.store, lambda: datetime.now(UTC)), yaml, file="test.yaml")
        if self.controller is not None and self.controller.term is not None:
            self.controller.term.configuration_changed()

    async def __aenter__(self) -> World:
        self._unsettled.start()
        self._tasks.append(asyncio.create_task(self.cluster.run()))
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._unsettled.stop()

    async def start(self) -> None:
        """A new controller process, as it were."""
        self._starts += 1
        self.controller = Controller(
            self.store,
            self.cluster,
            holder=f"controller-{self._starts}",
            clock=self.clock,
            random=Random(self.random.getrandbits(32)),
            in_thread=inline,
            hints=silence,
            timed=no_timed_work,
            virtual=True,
            events=self._events,
        )
        self._running = asyncio.create_task(self.controller.run())

    async def kill(self) -> None:
        """The process dies where it stands; its lease is not given back in order."""
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        self.controller = None

    async def restart(self, after: float = 0.0) -> None:
        """The process dies, and another one is started after so many seconds."""
        await self.kill()
        if after:
            await self.clock.advance(after)
        await self.start()

    async def until(self, check: Callable[[], Any], what: str = "", within: float = 120.0) -> None:
        """Lets virtual time pass until `check` is true."""
        if self._running.done():
            self._running.result()
        await self.clock.run_until(check, within, what)

    def ask(self, name: str, wish: Wish, *, reason: str = "because", **arguments: Any) -> int:
        """What the API does when somebody asks something of a workload; a running controller hears of it."""
        row = self.known_row(name)
        now = self.clock.now()
        id_ = self.store.instruct(row.uid, wish, arguments, who="eve", reason=reason, source="test", now=now)
        assert id_ is not None
        if self.controller is not None and self.controller.term is not None:
            self.controller.term.instructions_given()
        return id_

    def answer(self, name: str, check: str, state: str, *, message: str = "", after: int | None = None) -> int:
        """What the API does when a check answers."""
        return self.ask(name, Wish.CHECK, check=check, state=state, message=message, requeueAfter=after)

    # --- what is there ------------------------------------------------------------------------------------------

    async def submit(self, obj: Object, resource: Resource = TRAIN_JOBS) -> Object:
        """Creates a job as its user; suspended, as the webhook would have it."""
        obj = {**obj, "spec": {**obj["spec"], "suspend": True}}
        return await self.user.create(resource, "ns", obj)

    def row(self, name: str) -> WorkloadRow | None:
        """The newest workload of that name."""
        found = self.store.find_workloads("ns", name)
        return max(found, key=lambda row: row.created_at) if found else None

    def known_row(self, name: str) -> WorkloadRow:
        """The newest workload of that name, which is there."""
        row = self.row(name)
        assert row is not None, f"there is no workload {name}"
        return row

    async def until_ready(self) -> None:
        """Lets time pass until the controller leads and has caught up."""
        await self.until(lambda: self.controller and self.controller.term and self.controller.term.ready, "it leads")

    def state(self, name: str) -> State | None:
        """Its state."""
        query = text(
            "SELECT state FROM workloads WHERE namespace = 'ns' AND name = :name ORDER BY created_at DESC LIMIT 1"
        )
        with self.store.engine.connect() as connection:
            found = connection.execute(query, {"name": name}).scalar()
        return State(found) if found else None

    async def until_state(self, name: str, state: State, within: float = 120.0) -> WorkloadRow:
        """Lets time pass until the workload is in the state."""
        row = self.row(name)
        await self.until(lambda: self.state(name) is state, f"{name} {state}: {row}", within)
        return self.known_row(name)

    def pods(self, name: str = "") -> list[Object]:
        """Pods that have not ended, of one job (by name prefix) or all."""
        pods = self.cluster.state.storage.all(PODS)
        alive = [p for p in pods if (p.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        return [pod for pod in alive if pod["metadata"]["name"].startswith(name)]

    def charged(self, queue: str = "team") -> int:
        """GPUs in open intervals of the ledger, loans aside."""
        query = text(
            "SELECT coalesce(sum(amount), 0) FROM ledger WHERE queue = :queue AND until IS NULL"
            " AND resource = 'nvidia.com/gpu' AND state <> 'reclaimed-loan'"
        )
        with self.store.engine.connect() as connection:
            return int(connection.execute(query, {"queue": queue}).scalar_one())

    def admissions(self, name: str) -> int:
        """How often it was admitted."""
        query = text(
            "SELECT count(*) FROM admissions a JOIN workloads w ON w.uid = a.workload_uid WHERE w.name = :name"
        )
        with self.store.engine.connect() as connection:
            return int(connection.execute(query, {"name": name}).scalar_one())

    def says(self, name: str, resource: Resource = TRAIN_JOBS) -> tuple[str, str]:
        """Our annotations on an object: the state and the message, "" for none."""
        [obj] = [obj for obj in self.cluster.state.storage.all(resource) if obj["metadata"]["name"] == name]
        said = obj["metadata"].get("annotations") or {}
        return said.get("queue-manager.io/state", ""), said.get("queue-manager.io/message", "")

    def events(self, name: str) -> list[str]:
        """Reasons of our events on an object, in order."""
        found = self.cluster.state.storage.all(EVENTS)
        return [e["reason"] for e in found if e["involvedObject"]["name"] == name and e["source"]["component"] == OURS]


def settings(timeout: str = "60s", *, recovery: str = "", limit: int | None = None, **requeuing: Any) -> str:
    """Settings with short times to get ready; backoff begins with 10 s."""
    strategy = {"backoffBaseSeconds": 10, "backoffMaxSeconds": 30, **requeuing}
    if limit is not None:
        strategy["backoffLimitCount"] = limit
    wait = {"timeout": timeout, "requeuingStrategy": strategy, **({"recoveryTimeout": recovery} if recovery else {})}
    head = "apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {name: default}\n"
    return f"{head}spec: {json.dumps({'waitForPodsReady': wait})}\n"


def with_checks(*checks: str) -> str:
    """The configuration with these checks on queue `team`."""
    listed = json.dumps([{"name": name} for name in checks])
    return CONFIGURATION.replace(
        "  namespaceSelector: {}\n", f"  namespaceSelector: {{}}\n  admissionChecks: {listed}\n"
    )


def train_job(
    name: str,
    nodes: int,
    *,
    seconds: int = 30,
    gpus: int = 4,
    high: bool = False,
    ready_after: str = "",
    **annotations: str,
) -> Object:
    """A TrainJob for queue `team`; `ready_after` is how long its pods take to be ready, or `never`."""
    labels = {"queue-manager.io/queue": "team", **({"queue-manager.io/priority-class": "high"} if high else {})}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"simulated.queue-manager.io/run-time": f"{seconds}s"}
            | ({"simulated.queue-manager.io/ready-after": ready_after} if ready_after else {})
            | {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": nodes, "resourcesPerNode": {"limits": {"nvidia.com/gpu": str(gpus)}}},
        },
    }


def batch_job(name: str, parallelism: int, *, completions: int = 0, gpus: int = 4, seconds: int = 30) -> Object:
    """A batch/v1 Job for queue `team`."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
    }
    metadata = {"annotations": {"simulated.queue-manager.io/run-time": f"{seconds}s"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"queue-manager.io/queue": "team"}},
        "spec": {
            "parallelism": parallelism,
            "completions": completions or parallelism,
            "template": {"metadata": metadata, "spec": pod},
        },
    }


def elastic_job(name: str, parallelism: int, *, completions: int = 0, gpus: int = 4, seconds: int = 30) -> Object:
    """A batch/v1 Job that may change its size while it runs."""
    job = batch_job(name, parallelism, completions=completions, gpus=gpus, seconds=seconds)
    job["metadata"]["annotations"] = {"queue-manager.io/elastic": "true"}
    return job


def job_set(name: str, replicas: int, pods: int, *, gpus: int = 2, seconds: int = 30, restarts: int = 0) -> Object:
    """A JobSet of one replicated job for queue `team`."""
    template = batch_job(name, pods, gpus=gpus, seconds=seconds)["spec"]["template"]
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"queue-manager.io/queue": "team"}},
        "spec": {
            "replicatedJobs": [{"name": "workers", "replicas": replicas, "template": {"spec": spec}}],
            **({"failurePolicy": {"maxRestarts": restarts}} if restarts else {}),
        },
    }


__all__ = ["JOBS", "World", "batch_job", "elastic_job", "job_set", "train_job"]
