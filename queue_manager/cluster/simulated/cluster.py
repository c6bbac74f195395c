"""The simulated cluster: an API server in memory and the controllers, scheduler and kubelets around it."""

from __future__ import annotations

from random import Random

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import CRDS, NAMESPACES
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.client import SimulatedClient
from queue_manager.cluster.simulated.crds import definitions
from queue_manager.cluster.simulated.faults import Faults


class SimulatedCluster(SimulatedClient):
    """Implements `port.Cluster` for our controller; `as_user` gives the same cluster to somebody else.

    Only the requests of this object meet `faults` and `latency`. The same seed, clock and requests give the same run.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random | None = None,
        *,
        faults: Faults | None = None,
        latency: float = 0.0,
        job_controllers: bool = True,
        history: int = 10_000,
    ) -> None:
        random = random or Random(0)
        self.state = ApiState(clock, random, history)
        super().__init__(self.state, clock, faults=faults, latency=latency)
        for name in ("default", "kube-system"):
            self.state.create(NAMESPACES, "", {"metadata": {"name": name}}, manager="kube-apiserver")
        if job_controllers:
            for crd in definitions():
                self.state.create(CRDS, "", crd, manager="kubectl")

    def as_user(self, user: str, groups: tuple[str, ...] = (), field_manager: str = "kubectl") -> SimulatedClient:
        """The cluster as another user sees it, without faults."""
        return SimulatedClient(self.state, self._clock, user=user, groups=groups, field_manager=field_manager)
