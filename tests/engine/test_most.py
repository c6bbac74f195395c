"""Plans that end after so many admissions, for a caller who can't start more at present; the next one goes on."""

from __future__ import annotations

from queue_manager.engine.configuration import (
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    Queue,
    ResourceGroup,
)
from queue_manager.engine.decision import Plan
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet, Workload

QUEUES = ("blue", "green", "red")


def engine_with(cpus: int) -> Engine:
    """Three queues of so many CPUs in a cohort, whose workloads evict those of lower priority in their own queue, and
    take back what the queue has lent."""
    engine = Engine()
    group = ResourceGroup(("cpu",), (FlavorQuotas("cpus", {"cpu": CellQuota(cpus)}),))
    evicts = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
    queues = {name: Queue(name, cohort="all", resource_groups=(group,), preemption=evicts) for name in QUEUES}
    engine.configure(Configuration(flavors={"cpus": Flavor("cpus")}, cohorts={"all": Cohort("all")}, queues=queues))
    return engine


def arrive(engine: Engine, queue: str, name: str, created: int = 0, priority: int = 0, cpus: int = 1) -> None:
    """A workload of one pod."""
    groups = (PodGroup("main", (PodSet("main", 1, {"cpu": cpus}),)),)
    engine.upsert_workload(Workload(f"{queue}-{name}", queue, name, queue, created, groups, priority=priority))


def uids(plan: Plan) -> set[str]:
    """Who is admitted."""
    return {admission.uid for admission in plan.admissions}


def test_a_plan_ends_with_the_round_that_brings_enough_and_the_next_one_goes_on() -> None:
    engine = engine_with(4)
    for queue in QUEUES:
        for number in range(3):
            arrive(engine, queue, str(number), created=number)
    first = engine.plan(10, 2)
    assert (uids(first), first.more) == ({"blue-0", "green-0", "red-0"}, True)
    second = engine.plan(11, 4)
    assert (uids(second), second.more) == ({f"{queue}-{number}" for queue in QUEUES for number in (1, 2)}, True)
    third = engine.plan(12, 4)
    assert (uids(third), third.more) == (set(), False)


def test_plans_of_one_round_each_admit_whom_one_plan_admits() -> None:
    whole, parts = engine_with(3), engine_with(3)
    for engine in (whole, parts):
        for queue in QUEUES:
            for number in range(5):
                arrive(engine, queue, str(number), created=number, priority=number % 3, cpus=1 + number % 2)
    admitted: set[str] = set()
    plan = parts.plan(10, 1)
    while plan.more:
        admitted |= uids(plan)
        plan = parts.plan(10, 1)
    assert admitted | uids(plan) == uids(whole.plan(10))


def test_without_room_for_a_start_nobody_is_admitted_or_evicted() -> None:
    engine = engine_with(1)
    arrive(engine, "blue", "runs", cpus=3)
    assert uids(engine.plan(1)) == {"blue-runs"}
    arrive(engine, "red", "owns", created=2)
    none = engine.plan(2, 0)
    assert (none.admissions, none.evictions, none.more) == ((), (), True)
    assert [eviction.uid for eviction in engine.plan(3, 1).evictions] == ["blue-runs"]


def test_nobody_is_evicted_for_a_better_one_that_comes_before_his_turn() -> None:
    engine = engine_with(2)
    for number in range(4):
        arrive(engine, "blue", str(number), created=number)
    assert uids(engine.plan(10, 1)) == {"blue-0"}
    arrive(engine, "blue", "urgent", created=11, priority=9, cpus=5)
    plan = engine.plan(12)
    assert (uids(plan), plan.evictions, plan.more) == ({"blue-urgent"}, (), False)
