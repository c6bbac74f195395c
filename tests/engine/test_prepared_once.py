"""What a shape asks of a queue is prepared once for all queues that have quota of the same cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queue_manager.engine import state
from queue_manager.engine.configuration import CellQuota, Configuration, Flavor, FlavorQuotas, Queue, ResourceGroup
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Taint
from tests.engine.test_shelves import configuration, workload


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of queues in the order in which something is prepared for them."""
    names: list[str] = []
    prepare = state.prepare

    def note(ask: object, queue: Queue, rules: Configuration) -> object:
        names.append(queue.name)
        return prepare(ask, queue, rules)  # type: ignore[arg-type]

    monkeypatch.setattr(state, "prepare", note)
    return names


def test_queues_of_one_layout_share_it(prepared: list[str]) -> None:
    engine = Engine()
    engine.configure(configuration(2))
    for number, queue in enumerate(("q1", "q2", "q1", "q2")):
        engine.upsert_workload(workload(f"w{number}", queue, number, 1))
    engine.upsert_workload(workload("larger", "q2", 9, 2))
    assert prepared == ["q1", "q2"]


def test_a_queue_with_other_flavors_does_not(prepared: list[str]) -> None:
    engine, c = Engine(), configuration(2)
    quotas = {"gpu": CellQuota(2), "cpu": CellQuota(100)}
    other = Queue("q3", "c", (ResourceGroup(("gpu", "cpu"), (FlavorQuotas("g", quotas),)),))
    engine.configure(replace(c, flavors={**c.flavors, "g": Flavor("g")}, queues={**c.queues, "q3": other}))
    for queue in ("q1", "q2", "q3"):
        engine.upsert_workload(workload(queue, queue, 1, 1))
    assert prepared == ["q1", "q3"]
    assert [a.pod_sets[0].flavors["gpu"] for a in engine.plan(1).admissions] == ["f", "f", "g"]


def test_it_is_prepared_anew_when_a_flavor_changes(prepared: list[str]) -> None:
    engine, c = Engine(), configuration(2)
    engine.configure(c)
    engine.upsert_workload(workload("one", "q1", 1, 1))
    engine.configure(replace(c, flavors={"f": Flavor("f", node_taints=(Taint("broken", "", "NoSchedule"),))}))
    engine.upsert_workload(workload("two", "q2", 2, 1))
    assert prepared == ["q1", "q1"]
    assert not engine.plan(1).admissions
