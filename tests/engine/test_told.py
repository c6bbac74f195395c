"""What a plan tells is what was so when it was made, whenever it is read."""

from __future__ import annotations

from queue_manager.engine.decision import EVICTION_WORDS, EvictionReason, Reason
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Workload
from tests.engine.scenario import configuration, workload

MINUTE = 60_000_000


def one_queue(**more: dict[str, str]) -> Engine:
    engine = Engine()
    engine.configure(configuration({"flavors": {"f": {}}, "queues": {"q": {"quota": {"f": {"gpu": 4}}}}, **more}))
    return engine


def job(uid: str, created: int, gpus: int, **more: str) -> Workload:
    return workload(uid, {"queue": "q", "gpu": gpus, **more}, created)


def test_a_question_about_a_later_time_does_not_move_the_time_of_the_plan() -> None:
    engine = one_queue(starvation={"after": "1m"})
    engine.upsert_workload(job("runs", 1, 4, maxRunTime="10m"))
    engine.plan(1)
    engine.upsert_workload(job("waits", 2, 4))
    plan = engine.plan(2 * MINUTE)
    engine.explain("waits", 30 * MINUTE)
    (told,) = plan.waiting
    assert "should be complete at 1970-01-01 00:10:00 UTC" in told.message
    assert told.estimated_start < 11 * MINUTE


def test_a_gate_that_opens_after_a_plan_does_not_change_what_it_told() -> None:
    engine = one_queue()
    for uid in ("one", "two"):
        engine.upsert_workload(job(uid, 1, 1))
    engine.gate(frozenset())
    plan = engine.plan(1)
    assert [admission.uid for admission in plan.admissions] == ["one"]
    engine.gate(None)
    assert [(told.uid, told.reason) for told in plan.waiting] == [("two", Reason.WAITING_FOR_PODS_READY)]


def test_every_reason_of_an_eviction_can_be_told_in_words() -> None:
    assert set(EVICTION_WORDS) == set(EvictionReason)
