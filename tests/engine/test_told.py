"""What a plan tells is what was so when it was made, whenever it is read."""

from __future__ import annotations

from dataclasses import replace

from queue_manager.engine.configuration import (
    CellQuota,
    Configuration,
    Flavor,
    FlavorQuotas,
    Queue,
    ResourceGroup,
    Starvation,
)
from queue_manager.engine.decision import EVICTION_WORDS, EvictionReason, Reason
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, Workload

MINUTE = 60_000_000


def one_queue(gpus: int, starvation: Starvation | None = None) -> Engine:
    group = ResourceGroup(("gpu",), (FlavorQuotas("f", {"gpu": CellQuota(gpus)}),))
    queues = {"q": Queue("q", "", (group,))}
    engine = Engine()
    engine.configure(Configuration(flavors={"f": Flavor("f")}, queues=queues, starvation=starvation))
    return engine


def job(uid: str, created: int, gpus: int) -> Workload:
    return Workload(uid, "ns", uid, "q", created, (PodGroup("main", (PodSet("main", 1, {"gpu": gpus}),)),))


def test_a_question_about_a_later_time_does_not_move_the_time_of_the_plan() -> None:
    engine = one_queue(4, Starvation(MINUTE))
    engine.upsert_workload(replace(job("runs", 1, 4), max_run_time=10 * MINUTE))
    engine.plan(1)
    engine.upsert_workload(job("waits", 2, 4))
    plan = engine.plan(2 * MINUTE)
    engine.explain("waits", 30 * MINUTE)
    (told,) = plan.waiting
    assert "should be complete at 1970-01-01 00:10:00 UTC" in told.message
    assert told.estimated_start < 11 * MINUTE


def test_a_gate_that_opens_after_a_plan_does_not_change_what_it_told() -> None:
    engine = one_queue(4)
    for uid in ("one", "two"):
        engine.upsert_workload(job(uid, 1, 1))
    engine.gate(frozenset())
    plan = engine.plan(1)
    assert [admission.uid for admission in plan.admissions] == ["one"]
    engine.gate(None)
    assert [(told.uid, told.reason) for told in plan.waiting] == [("two", Reason.WAITING_FOR_PODS_READY)]


def test_every_reason_of_an_eviction_can_be_told_in_words() -> None:
    assert set(EVICTION_WORDS) == set(EvictionReason)
