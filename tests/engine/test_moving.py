"""Another queue for what is there already: never above a limit unless somebody insists, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorQuotas,
    Limits,
    Node,
    Queue,
    ResourceGroup,
    StopPolicy,
)
from queue_manager.engine.decision import Admission
from queue_manager.engine.engine import Engine
from queue_manager.engine.records import Phase
from queue_manager.engine.workload import PodGroup, PodSet, Workload
from tests.engine.generate import (
    COMMON,
    FUTURE,
    NOW,
    batches,
    configurations,
    crowded,
    engine_of,
    nodes,
    over,
    settle,
    snapshot,
)


def total(usage: Mapping[str, Mapping[Cell, int]], configuration: Configuration) -> Counter[Cell]:
    """What all queues use together."""
    found: Counter[Cell] = Counter()
    for name in configuration.queues:
        found.update(usage.get(name, {}))
    return +found


def admitted(engine: Engine) -> list[str]:
    return [uid for uid, record in engine._state.records.items() if record.phase is Phase.ADMITTED]


def put_into_force(engine: Engine, workload: Workload, admission: Admission) -> None:
    """As the controller does with a row that was committed."""
    engine.upsert_workload(workload)
    engine.restore_admission(admission)


@COMMON
@given(
    configurations(), nodes(), batches(2), st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), max_size=6)
)
def test_a_move_without_insisting_never_exceeds_a_limit(
    c: Configuration, n: list[Node], b: list[Workload], wishes: list[tuple[int, str]]
) -> None:
    engine = engine_of(c, n, b)
    settle(engine)
    for number, letter in wishes:
        uids = admitted(engine)
        if not uids:
            return
        uid, queue = uids[number % len(uids)], f"q{letter}"
        record = engine._state.records[uid]
        workload = replace(record.workload, queue=queue)
        before, usage = snapshot(engine), engine.usage()
        admission, obstacle = engine.move(uid, workload, 5)
        assert snapshot(engine) == before
        if obstacle is not None:
            continue
        charge = engine.charge_of(uid)
        put_into_force(engine, workload, admission)
        assert [over(engine, view) for view in (NOW, FUTURE)] == [{}, {}]
        assert [crowded(engine, view) for view in (NOW, FUTURE)] == [{}, {}]
        assert engine.charge_of(uid) == charge
        assert record.standing[NOW] is not None
        assert record.standing[NOW].queue == queue
        assert total(engine.usage(), c) == total(usage, c)
        settle(engine)
        assert [over(engine, view) for view in (NOW, FUTURE)] == [{}, {}]
        assert [crowded(engine, view) for view in (NOW, FUTURE)] == [{}, {}]


@COMMON
@given(configurations(), nodes(), batches(2), st.integers(0, 9), st.sampled_from("abc"))
def test_there_and_back_again_leaves_the_quota_as_it_was(
    c: Configuration, n: list[Node], b: list[Workload], number: int, letter: str
) -> None:
    engine = engine_of(c, n, b)
    settle(engine)
    uids = admitted(engine)
    if not uids:
        return
    uid = uids[number % len(uids)]
    record = engine._state.records[uid]
    home, usage = record.workload, engine.usage()
    assert record.admission is not None
    there, _ = engine.move(uid, replace(home, queue=f"q{letter}"), 5)
    if f"q{letter}" not in c.queues:
        return
    old = record.admission
    put_into_force(engine, replace(home, queue=f"q{letter}"), there)
    put_into_force(engine, home, old)
    assert engine.usage() == usage


def queue(name: str, gpus: int, cohort: str = "", limit: int | None = None, resource: str = "gpu") -> Queue:
    quota = FlavorQuotas("spot", {resource: CellQuota(gpus, limit)})
    return Queue(name, cohort, (ResourceGroup((resource,), (quota,)),))


@pytest.mark.parametrize(
    ("target", "insists", "why"),
    [
        (queue("t", 4), None, ""),
        (queue("t", 3), True, "it is charged 4 gpu of flavor spot, queue t has 3 left, borrowing included"),
        (queue("t", 0, "one"), None, ""),
        (queue("t", 0, "one", 3), True, "queue t has 3 left"),
        (queue("t", 8, resource="cpu"), False, "queue t has no gpu of flavor spot, on which it runs"),
        (replace(queue("t", 8), namespace_selector=None), False, "queue t takes no namespace"),
        (replace(queue("t", 8), stop_policy=StopPolicy.HOLD), False, "queue t is stopped (Hold)"),
        (replace(queue("t", 8), limits=Limits(max_jobs=0)), True, "limit maxJobs of queue t is 0, 0 used"),
        (replace(queue("t", 8), limits=Limits(max_jobs=1)), None, ""),
    ],
    ids=[
        *("fits", "too small", "in its own cohort", "borrowing limit", "other resources", "namespace"),
        *("stopped", "limit", "within its limit"),
    ],
)
def test_what_speaks_against_a_move(target: Queue, insists: bool | None, why: str) -> None:
    configuration = Configuration(
        {}, {"spot": Flavor("spot")}, {"one": Cohort("one")}, {"s": queue("s", 4, "one"), "t": target}
    )
    job = Workload("a", "ns", "a", "s", 1, (PodGroup("g", (PodSet("main", 4, {"gpu": 1}),)),))
    engine = engine_of(configuration, [], [job])
    assert [admission.uid for admission in engine.plan(1).admissions] == ["a"]
    admission, obstacle = engine.move("a", replace(job, queue="t"), 2)
    assert admission.charge == {Cell("spot", "gpu"): 4}
    if insists is None:
        assert obstacle is None
    else:
        assert obstacle is not None
        assert obstacle.may_insist is insists
        assert why in obstacle.message
