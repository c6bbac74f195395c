"""Who may be evicted is kept in order between searches, and known anew when that order changes."""

from __future__ import annotations

from dataclasses import replace

from queue_manager.engine.configuration import (
    CellQuota,
    Configuration,
    Flavor,
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    Queue,
    ResourceGroup,
)
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, Workload


def workload(uid: str, priority: int, cpus: int = 1) -> Workload:
    """One pod in queue `team`."""
    pod_set = PodSet("main", 1, {"cpu": cpus})
    return Workload(uid, "team", uid, "team", 0, (PodGroup("main", (pod_set,)),), priority=priority)


def full_queue(*running: Workload) -> Engine:
    """A queue of as many CPUs as there are workloads, all running; somebody looked for victims there in vain."""
    engine = Engine()
    quotas = FlavorQuotas("cpus", {"cpu": CellQuota(len(running))})
    queue = Queue(
        "team",
        resource_groups=(ResourceGroup(("cpu",), (quotas,)),),
        preemption=Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
    )
    engine.configure(Configuration(flavors={"cpus": Flavor("cpus")}, queues={"team": queue}))
    for each in running:
        engine.upsert_workload(each)
    assert len(engine.plan(1).admissions) == len(running)
    engine.upsert_workload(workload("looked", 0))
    assert not engine.plan(2).evictions
    return engine


def test_a_priority_that_is_lowered_makes_a_running_workload_the_first_to_go() -> None:
    a, b = workload("a", 20), workload("b", 10)
    engine = full_queue(a, b)
    engine.upsert_workload(replace(a, priority=5))
    engine.upsert_workload(workload("urgent", 100))
    assert [eviction.uid for eviction in engine.plan(3).evictions] == ["a"]


def test_a_checkpoint_makes_a_running_workload_the_first_to_go() -> None:
    a, b = workload("a", 10), workload("b", 10)
    engine = full_queue(a, b)
    engine.upsert_workload(replace(b, checkpointed_at=3))
    engine.upsert_workload(workload("urgent", 100))
    assert [eviction.uid for eviction in engine.plan(4).evictions] == ["b"]


def test_who_has_gone_is_not_evicted_again() -> None:
    a, b = workload("a", 5), workload("b", 10)
    engine = full_queue(a, b)
    engine.upsert_workload(workload("urgent", 100))
    assert [eviction.uid for eviction in engine.plan(3).evictions] == ["a"]
    engine.upsert_workload(workload("urgent too", 100))
    assert [eviction.uid for eviction in engine.plan(4).evictions] == ["b"]


def end(engine: Engine, uid: str) -> None:
    """A workload finishes."""
    engine.evict(uid)
    engine.release(uid)
    engine.remove_workload(uid)


def test_who_could_evict_nobody_is_tried_again_once_there_is_somebody() -> None:
    engine = full_queue(workload("h1", 100), workload("h2", 100))
    engine.remove_workload("looked")
    engine.upsert_workload(workload("wide", 50, cpus=2))
    engine.plan(3)
    engine.upsert_workload(workload("low", 1))
    end(engine, "h1")
    assert [admission.uid for admission in engine.plan(4).admissions] == ["low"]
    end(engine, "h2")
    assert [eviction.uid for eviction in engine.plan(5).evictions] == ["low"]
