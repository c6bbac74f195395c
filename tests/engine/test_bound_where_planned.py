"""A pod that is bound where it was planned changes nothing for those who wait, so nobody is tried again."""

from __future__ import annotations

from queue_manager.engine.configuration import (
    CellQuota,
    Configuration,
    Flavor,
    FlavorQuotas,
    Node,
    Preemption,
    PreemptionPolicy,
    Queue,
    ResourceGroup,
    Topology,
)
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest, Workload

HOST = "kubernetes.io/hostname"


def workload(uid: str, created: int) -> Workload:
    pod_set = PodSet(name="main", count=2, requests={"gpu": 8})
    request = TopologyRequest(TopologyMode.REQUIRED, "rack")
    return Workload(uid, "ns", uid, "q", created, (PodGroup("main", (pod_set,)),), topology=request)


def test_a_binding_as_planned_wakes_nobody_and_another_one_does() -> None:
    groups = (ResourceGroup(("gpu",), (FlavorQuotas("f", {"gpu": CellQuota(16)}),)),)
    preemption = Preemption(PreemptionPolicy.LOWER_PRIORITY)
    engine = Engine()
    engine.configure(
        Configuration(
            {"t": Topology("t", ("rack", HOST))},
            {"f": Flavor("f", {}, (), (), "t")},
            {},
            {"q": Queue("q", "", groups, preemption=preemption, namespace_selector=())},
        )
    )
    for number in range(4):
        engine.upsert_node(Node(f"n{number}", {"rack": "r", HOST: f"n{number}"}, {"gpu": 8, "pods": 10}))
    engine.upsert_workload(workload("a", 1))
    assert engine.plan(1_000_000).admissions
    engine.upsert_workload(workload("b", 2))
    engine.plan(2_000_000)
    planned = dict(engine._state.records["a"].planned["main"])
    assert sum(planned.values()) == 2
    other = next(name for name in engine._state.fleet.nodes if name not in planned)

    engine.bind("a", "main", dict.fromkeys(sorted(planned)[:1], 1))
    assert not engine._state.dirty
    assert not engine._state.nodes_changed
    engine.bind("a", "main", {other: 1})
    assert engine._state.nodes_changed
