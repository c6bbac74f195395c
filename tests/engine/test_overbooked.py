"""Nodes on which more is planned than they offer are known as such, also right after a restart."""

from __future__ import annotations

from queue_manager.engine.configuration import Node
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Workload
from tests.engine import scenario

HOST = "kubernetes.io/hostname"


def node(foreign: int = 0) -> Node:
    return Node("n0", {HOST: "n0"}, {"gpu": 8, "pods": 10}, foreign={"gpu": foreign} if foreign else {})


def engine_of() -> Engine:
    engine = Engine()
    engine.configure(
        scenario.configuration(
            {
                "topologies": {"t": [HOST]},
                "flavors": {"f": {"topology": "t"}},
                "queues": {"q": {"quota": {"f": {"gpu": 100}}}},
            }
        )
    )
    engine.upsert_node(node())
    return engine


def workload(uid: str) -> Workload:
    return scenario.workload(uid, {"queue": "q", "gpu": 8, "around": {"required": HOST}}, 1)


def test_a_node_is_overbooked_by_foreign_pods_beside_what_is_planned_there() -> None:
    engine = engine_of()
    engine.upsert_workload(workload("a"))
    (admission,) = engine.plan(1_000_000).admissions
    assert not engine.is_overbooked("n0")
    engine.upsert_node(node(foreign=1))
    assert engine.is_overbooked("n0")
    assert not engine.is_overbooked("n1"), "nobody knows it"

    restarted = engine_of()
    restarted.upsert_node(node(foreign=1))
    restarted.upsert_workload(workload("a"))
    restarted.restore_admission(admission)
    assert restarted.is_overbooked("n0"), "before any plan"
