"""A pod that is bound where it was planned changes nothing for those who wait, so nobody is tried again."""

from __future__ import annotations

from queue_manager.engine.configuration import Node
from queue_manager.engine.engine import Engine
from tests.engine.scenario import configuration, workload

HOST = "kubernetes.io/hostname"


def test_a_binding_as_planned_wakes_nobody_and_another_one_does() -> None:
    engine = Engine()
    engine.configure(
        configuration(
            {
                "topologies": {"t": ["rack", HOST]},
                "flavors": {"f": {"topology": "t"}},
                "queues": {"q": {"withinQueue": "LowerPriority", "quota": {"f": {"gpu": 16}}}},
            }
        )
    )
    gang = {"queue": "q", "pods": 2, "gpu": 8, "around": {"required": "rack"}}
    for number in range(4):
        engine.upsert_node(Node(f"n{number}", {"rack": "r", HOST: f"n{number}"}, {"gpu": 8, "pods": 10}))
    engine.upsert_workload(workload("a", gang, 1))
    assert engine.plan(1_000_000).admissions
    engine.upsert_workload(workload("b", gang, 2))
    engine.plan(2_000_000)
    planned = dict(engine._state.records["a"].planned["main"])
    assert sum(planned.values()) == 2
    other = next(name for name in engine._state.fleet.nodes if name not in planned)

    engine.bind("a", "main", dict.fromkeys(sorted(planned)[:1], 1))
    assert not engine._state.dirty
    assert not engine._state.nodes_changed
    engine.bind("a", "main", {other: 1})
    assert engine._state.nodes_changed
