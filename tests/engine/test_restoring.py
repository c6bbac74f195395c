"""Admissions that are known before the nodes are: after a restart either may come first."""

from __future__ import annotations

from queue_manager.engine.configuration import Node
from queue_manager.engine.engine import Engine
from queue_manager.engine.tree import FUTURE
from tests.engine.scenario import configuration, workload

CONFIGURATION = configuration(
    {
        "topologies": {"t": ["zone", "rack"]},
        "flavors": {"f": {"topology": "t"}},
        "queues": {"q": {"quota": {"f": {"gpu": 100}}}},
    }
)


def add(engine: Engine, rack: str) -> None:
    labels = {"zone": "z", "rack": rack, "kubernetes.io/hostname": f"n-{rack}"}
    engine.upsert_node(Node(f"n-{rack}", labels, {"gpu": 8, "pods": 10}))


def configured() -> Engine:
    engine = Engine()
    engine.configure(CONFIGURATION)
    return engine


def used(engine: Engine) -> dict[str, int]:
    return {name: amounts["gpu"] for name, amounts in engine._state.fleet.occupied[FUTURE].items()}


def test_pods_whose_nodes_become_known_after_several_plans_take_room_on_them() -> None:
    """Racks are the narrowest level here: which nodes pods are on is not in the admission."""
    first = configured()
    for rack in ("r0", "r1"):
        add(first, rack)
    gang = workload("gang", {"queue": "q", "pods": 2, "gpu": 8, "required": "zone"}, 1)
    first.upsert_workload(gang)
    (admission,) = first.plan(1000).admissions

    again = configured()
    again.upsert_workload(gang)
    again.restore_admission(admission)
    again.plan(2000)
    again.upsert_workload(workload("late", {"queue": "q", "pods": 1, "gpu": 8, "required": "rack"}, 2))
    for now, rack in enumerate(("r0", "r1"), 3):
        add(again, rack)
        assert [one.uid for one in again.plan(now * 1000).admissions] == []
    assert used(again) == {"n-r0": 8, "n-r1": 8}
    add(again, "r2")
    assert [one.uid for one in again.plan(5000).admissions] == ["late"]
    assert used(again) == {"n-r0": 8, "n-r1": 8, "n-r2": 8}
