"""Pods of an elastic Job are let through one write after the other: what changes meanwhile counts from then on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.port import ApiError, Object
from queue_manager.cluster.simulated import VirtualClock
from queue_manager.cluster.simulated.clock import settle
from queue_manager.controller.pod_gates import PodGates
from queue_manager.controller.seats import Seats
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import DomainCount
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.gates import GATE, TOPOLOGY_GATE
from queue_manager.kinds.kind import PodPlacement, Write
from queue_manager.store.records import State, WorkloadRow
from tests.store.builders import admitted, workload

UID = "uid-1"


class OnePodSet(JobKind):
    """All pods are of the pod set of the rows here."""

    def pod_set_of(self, pod: Object) -> str:
        return "node"


def elastic_row(pods: int) -> WorkloadRow:
    """A running workload with that many pods admitted."""
    pod_set = PodSet("node", pods, {"nvidia.com/gpu": 8}, elastic=True)
    row = workload(UID, pod_groups=(PodGroup("main", (pod_set,)),))
    return admitted(row, gpus=8 * pods, state=State.RUNNING)


@dataclass
class Pods:
    """The caches, the last row and the API server of one Job with gated pods; `meanwhile` happens during a write."""

    row: WorkloadRow | None
    count: int = 4
    leads: bool = True
    sent: list[str] = field(default_factory=list)
    fails: Exception | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)
    meanwhile: Callable[[], Any] = lambda: None

    def __post_init__(self) -> None:
        self.pods: dict[str, Object] = {f"p{number}": gated(f"p{number}") for number in range(self.count)}
        lookup: Any = self
        seats = Seats(
            lookup,
            lambda uid: list(self.pods.values()),
            lambda row: OnePodSet(),
            lambda row: {"node": PodPlacement(4), "main": PodPlacement(4)},
            lambda host: host,
        )
        events: Any = self
        self.gates = PodGates(
            seats,
            lambda uid: self.row,
            lambda: self.leads,
            self.send,
            self.clock,
            Random(0),
            events,
            parallel=1,
        )

    def send(self, write: Write) -> Awaitable[Object | None]:
        return self._send(write)

    async def _send(self, write: Write) -> Object | None:
        await self.clock.sleep(0)
        self.meanwhile()
        if self.fails is not None:
            raise self.fails
        self.sent.append(write.name)
        self.pods[write.name] = {**self.pods[write.name], "spec": {}}
        return None

    async def look(self) -> list[str]:
        """What was let through once nothing moves any more."""
        self.gates.look(UID)
        await settle()
        return self.sent


def gated(name: str) -> Object:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": GATE}]}, "status": {"phase": "Pending"}}


async def test_all_that_are_admitted_are_let_through() -> None:
    assert await Pods(elastic_row(3)).look() == ["p0", "p1", "p2"]


async def test_no_pod_follows_once_fewer_are_admitted() -> None:
    world = Pods(elastic_row(4))

    def shrinks() -> None:
        world.row = elastic_row(2)

    world.meanwhile = shrinks
    assert await world.look() == ["p0", "p1"]


async def test_no_pod_follows_once_the_workload_drains() -> None:
    world = Pods(elastic_row(4))

    def is_evicted() -> None:
        world.row = replace(elastic_row(4), state=State.DRAINING)

    world.meanwhile = is_evicted
    assert await world.look() == ["p0"]


async def test_no_pod_follows_while_the_lease_is_uncertain() -> None:
    world = Pods(elastic_row(4))

    def loses_the_lease() -> None:
        world.leads = False

    world.meanwhile = loses_the_lease
    assert await world.look() == ["p0"]
    world.leads = True
    world.meanwhile = lambda: None
    await world.clock.advance(60)
    assert world.sent == ["p0", "p1", "p2", "p3"]


async def test_a_failed_write_is_tried_again() -> None:
    world = Pods(elastic_row(1))
    world.fails = ApiError(503, "ServiceUnavailable", "later")
    assert await world.look() == []
    world.fails = None
    await world.clock.advance(60)
    assert world.sent == ["p0"]


async def test_whatever_goes_wrong_is_tried_again_after_a_pause_and_nothing_is_left_over() -> None:
    world = Pods(elastic_row(2))
    world.fails = ValueError("not readable")
    tries = 0

    def news() -> None:
        nonlocal tries
        tries += 1
        world.gates.look(UID)

    world.meanwhile = news
    assert await world.look() == []
    assert tries == 2, "news do not shorten the pause"
    world.fails, world.meanwhile = None, lambda: None
    await world.clock.advance(60)
    assert world.sent == ["p0", "p1"]
    assert world.gates.passed(UID) == {"uid-p0", "uid-p1"}


@pytest.mark.parametrize(
    ("node", "passes"),
    [
        ({}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({"spec": {"unschedulable": True}}, False),
        (None, False),
    ],
)
def test_a_pinned_pod_waits_for_its_node_while_nobody_could_start_there(node: Object | None, passes: bool) -> None:
    pod = gated("p0")
    pod["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    row = elastic_row(1)
    assert row.admission is not None
    (assigned,) = row.admission.admission.pod_sets
    places = (DomainCount(("n0",), 1),)
    pinned = replace(assigned, name="node", count=1, levels=(HOSTNAME,), domains=places, pinned=True)
    admission = replace(row.admission.admission, pod_sets=(pinned,))
    row = replace(row, admission=replace(row.admission, admission=admission))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    lookup: Any = Nodes(None if node is None else {"metadata": {"name": "n0"}, **ready, **node})
    seats = Seats(lookup, lambda uid: [pod], lambda row: OnePodSet(), lambda row: {"node": PodPlacement(1)}, str)
    found = seats.find(row, {})
    assert [let.pod for let in found.let] == (["uid-p0"] if passes else [])
    assert found.held_up is not passes


@dataclass
class Nodes:
    """One node, or none."""

    node: Object | None

    def get(self, resource: object, namespace: str, name: str) -> Object | None:
        return self.node
