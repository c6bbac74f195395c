"""The simulated cluster: an API server in memory and the controllers, scheduler and kubelets around it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import CRDS, NAMESPACES, NODES, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.client import SimulatedClient
from queue_manager.cluster.simulated.crds import definitions
from queue_manager.cluster.simulated.exclusive import ExclusivePods
from queue_manager.cluster.simulated.faults import Faults
from queue_manager.cluster.simulated.garbage import GarbageCollector
from queue_manager.cluster.simulated.job_controller import JobController
from queue_manager.cluster.simulated.jobset_controller import JobSetController
from queue_manager.cluster.simulated.kubelet import Kubelet, Pace, ready_condition
from queue_manager.cluster.simulated.machinery import Machinery
from queue_manager.cluster.simulated.node_lifecycle import NodeLifecycle
from queue_manager.cluster.simulated.retention import Retention
from queue_manager.cluster.simulated.scheduler import Scheduler
from queue_manager.cluster.simulated.trainer_controller import TrainerController


class SimulatedCluster(SimulatedClient):
    """Implements `port.Cluster` for our controller; `as_user` gives the same cluster to somebody else.

    Only the requests of this object meet `faults` and `latency`. The same seed, clock and requests give the same run.
    Controllers act in `run()`, or in `step()` for what is due now. `lag` is how late each may notice a change.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random | None = None,
        *,
        faults: Faults | None = None,
        latency: float = 0.0,
        lag: float = 0.0,
        pace: Pace = Pace(),  # noqa: B008 - immutable
        crds: Iterable[Object] | None = None,
        history: int = 2_000,
    ) -> None:
        random = random or Random(0)
        self.state = ApiState(clock, random, history)
        super().__init__(self.state, clock, faults=faults, latency=latency)
        self.retention = Retention(self.state, clock)
        self.machinery = Machinery(
            (
                self.retention,
                GarbageCollector(self.state),
                TrainerController(self.state, clock),
                JobSetController(self.state),
                JobController(self.state, random),
                Scheduler(self.state, random),
                NodeLifecycle(self.state, clock),
                Kubelet(self.state, clock, random, pace),
            ),
            clock,
            random,
            lag,
        )
        self.state.mutators.append(ExclusivePods(self.state).mutate)
        self.state.storage.listen(self.machinery.noticed)
        for name in ("default", "kube-system"):
            self.state.create(NAMESPACES, "", {"metadata": {"name": name}}, manager="kube-apiserver")
        for crd in definitions() if crds is None else crds:
            self.state.create(CRDS, "", crd, manager="kubectl")

    def as_user(self, user: str, groups: tuple[str, ...] = (), field_manager: str = "kubectl") -> SimulatedClient:
        """The cluster as another user sees it, without faults."""
        return SimulatedClient(self.state, self._clock, user=user, groups=groups, field_manager=field_manager)

    def step(self) -> int:
        """Lets the controllers do what is due now; answers how much it was."""
        return self.machinery.step()

    async def run(self) -> None:
        """Lets the controllers act as time goes on, until cancelled."""
        await self.machinery.run()

    def add_node(self, node: Object) -> Object:
        """Adds a node, Ready unless it says otherwise."""
        status = {"conditions": [ready_condition(self._clock)], **(node.get("status") or {})}
        return self.state.create(NODES, "", {**node, "status": status}, manager="kubelet")

    def remove_node(self, node: str) -> None:
        """Deletes a node; its pods follow after a while."""
        self.state.delete(NODES, "", node)

    def change_node(self, node: str, **spec: Any) -> None:
        """Changes fields of its spec: `unschedulable`, `taints`."""
        old = self.state.get(NODES, "", node)
        self.state.update(NODES, old, {**old, "spec": {**(old.get("spec") or {}), **spec}}, manager="kubectl")

    def set_ready(self, node: str, ready: bool) -> None:
        """Lets a node's kubelet fall silent, or come back."""
        old = self.state.get(NODES, "", node)
        status = {**old["status"], "conditions": [ready_condition(self._clock, ready)]}
        self.state.update(NODES, old, {**old, "status": status}, manager="kubelet", subresource="status")
