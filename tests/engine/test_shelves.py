"""Who has no chance is passed over, and is not looked at again until what it lacks is free."""

from __future__ import annotations

import pytest

from queue_manager.engine.configuration import (
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorQuotas,
    Queue,
    ResourceGroup,
)
from queue_manager.engine.decision import Reason
from queue_manager.engine.engine import Engine
from queue_manager.engine.nominate import Nominator
from queue_manager.engine.workload import PodGroup, PodSet, Workload


def configuration(gpus: int, cpus: int = 100) -> Configuration:
    quotas = {"gpu": CellQuota(gpus), "cpu": CellQuota(cpus)}
    group = ResourceGroup(("gpu", "cpu"), (FlavorQuotas("f", quotas),))
    return Configuration(
        flavors={"f": Flavor("f")},
        cohorts={"c": Cohort("c")},
        queues={name: Queue(name, "c", (group,)) for name in ("q1", "q2")},
    )


def workload(uid: str, queue: str, created: int, gpus: int, cpus: int = 1) -> Workload:
    pod_sets = (PodSet("main", 1, {"gpu": gpus, "cpu": cpus}),)
    return Workload(uid, "ns", uid, queue, created, (PodGroup("main", pod_sets),))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uids in the order in which they are nominated."""
    tried: list[str] = []
    nominate = Nominator.nominate

    def note(self: Nominator) -> object:
        tried.append(self._record.uid)
        return nominate(self)

    monkeypatch.setattr(Nominator, "nominate", note)
    return tried


def busy(waiting: int) -> Engine:
    engine = Engine()
    engine.configure(configuration(2))
    for number in range(4):
        engine.upsert_workload(workload(f"runs{number}", "q1", number, 1))
    assert len(engine.plan(1).admissions) == 4
    for number in range(waiting):
        engine.upsert_workload(workload(f"waits{number}", "q2", 10 + number, 1, 1 + number))
    assert not engine.plan(1).admissions
    return engine


def test_nobody_is_tried_after_a_change_of_what_nobody_waits_for(tries: list[str]) -> None:
    engine = busy(20)
    tries.clear()
    engine.configure(configuration(2, cpus=200))
    assert not engine.plan(2).admissions
    assert tries == []


def test_one_free_place_costs_one_try_and_an_arrival_none(tries: list[str]) -> None:
    engine = busy(20)
    tries.clear()
    engine.evict("runs0")
    engine.release("runs0")
    engine.remove_workload("runs0")
    plan = engine.plan(2)
    assert [admission.uid for admission in plan.admissions] == ["waits0"]
    assert tries == ["waits0"]
    engine.upsert_workload(workload("new", "q2", 99, 1, 7))
    engine.plan(3)
    assert tries == ["waits0"]


def test_reasons_are_worked_out_when_they_are_read_and_tell_the_state_that_the_plan_left(tries: list[str]) -> None:
    engine = busy(3)
    engine.upsert_workload(workload("late", "q2", 99, 1))
    tries.clear()
    plan = engine.plan(2)
    assert tries == []
    engine.configure(configuration(5))
    (waiting,) = plan.waiting
    assert (waiting.uid, waiting.reason, waiting.position) == ("late", Reason.WAITING_FOR_QUOTA, 4)
    assert "1 gpu short in cohort c" in waiting.message


def test_an_edit_that_makes_it_hopeless_is_told() -> None:
    engine = busy(1)
    engine.configure(configuration(2, cpus=0))
    told = {waiting.uid: waiting.reason for waiting in engine.plan(2).waiting}
    assert told == {"waits0": Reason.EXCEEDS_MAX_QUOTA}


def test_the_first_of_each_queue_are_found_in_its_order() -> None:
    engine = busy(5)
    engine.upsert_workload(workload("first", "q2", 5, 1, 50))
    assert engine.first_waiting(2) == ["first", "waits0"]
