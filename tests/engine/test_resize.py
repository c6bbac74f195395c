"""What must hold when running workloads change their size, whatever the tree and the order of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.configuration import Configuration, Node
from queue_manager.engine.decision import Admission
from queue_manager.engine.engine import Engine
from queue_manager.engine.records import Phase, Record
from queue_manager.engine.workload import Workload
from tests.engine.generate import (
    COMMON,
    FUTURE,
    NOW,
    batches,
    configurations,
    copy_of,
    crowded,
    engine_of,
    nodes,
    over,
    settle,
    snapshot,
)


def elastic(workload: Workload) -> Workload:
    """All its pods may be more or fewer; they run together, so that sizes can be compared."""
    return resized(workload, lambda count: count, elastic=True, stages=(0, 0))


def resized(workload: Workload, size: Callable[[int], int], **more: object) -> Workload:
    def pod_sets(found):
        return tuple(replace(p, count=size(p.count), **more) for p in found)

    return replace(workload, pod_groups=tuple(replace(g, pod_sets=pod_sets(g.pod_sets)) for g in workload.pod_groups))


def running(engine: Engine) -> list[Record]:
    return [r for r in list(engine._state.records.values()) if r.phase is Phase.ADMITTED]


def grow_all(engine: Engine, by: int) -> None:
    for record in running(engine):
        engine.upsert_workload(resized(record.workload, lambda count: count + by))


def sound(engine: Engine) -> None:
    """No limit is passed, what was admitted is charged and placed, and who lacks pods is told why."""
    for view in (NOW, FUTURE):
        assert over(engine, view) == {}
        assert crowded(engine, view) == {}
    for record in running(engine):
        admission = record.admission
        assert admission is not None
        assert dict(engine.charge_of(record.uid)) == dict(admission.charge)
        sizes = {p.name: p.count for p in admission.pod_sets}
        lacking = any(p.count > sizes[p.name] for p in record.workload.pod_sets)
        waiting = engine.explain(record.uid, 0)
        assert (waiting is not None) == lacking
        assert waiting is None or (waiting.uid == record.uid and waiting.blockers)
        for pod_set in admission.pod_sets:
            if pod_set.domains is not None:
                assert sum(domain.count for domain in pod_set.domains) == pod_set.count


@COMMON
@given(configurations(), nodes(), batches(), st.integers(1, 3))
def test_growing_keeps_all_limits_and_comes_to_rest(
    c: Configuration, n: list[Node], b: list[Workload], by: int
) -> None:
    engine = engine_of(c, n, [elastic(w) for w in b])
    settle(engine)
    grow_all(engine, by)
    settle(engine, start=100_000, check=lambda plan: sound(engine))
    again = engine.plan(200_000)
    assert (again.admissions, again.evictions, again.waiting, again.resizes) == ((), (), (), ())


@COMMON
@given(configurations(), nodes(), batches(), st.integers(1, 3))
def test_a_plan_with_resizes_is_taken_back_exactly(c: Configuration, n: list[Node], b: list[Workload], by: int) -> None:
    engine = engine_of(c, n, [elastic(w) for w in b])
    settle(engine)
    grow_all(engine, by)
    engine._state.log.forget()
    before = snapshot(engine)
    first = engine.plan(100_000)
    engine.revoke()
    assert snapshot(engine) == before
    assert engine.plan(100_000) == first


@COMMON
@given(configurations(), nodes(), batches(), st.integers(1, 3))
def test_a_restart_changes_nothing(c: Configuration, n: list[Node], b: list[Workload], by: int) -> None:
    engine = engine_of(c, n, [elastic(w) for w in b])
    settle(engine)
    grow_all(engine, by)
    other = copy_of(engine)
    mine, theirs = engine.plan(100_000), other.plan(100_000)
    assert mine.resizes == theirs.resizes
    assert mine.evictions == theirs.evictions


@COMMON
@given(configurations(), nodes(), batches(), st.integers(1, 3))
def test_up_and_down_again_leaves_the_charge_as_it_was(
    c: Configuration, n: list[Node], b: list[Workload], by: int
) -> None:
    engine = engine_of(c, n, [elastic(w) for w in b])
    settle(engine)
    before: dict[str, Admission] = {r.uid: r.admission for r in running(engine) if r.admission is not None}
    grow_all(engine, by)
    plan = engine.plan(100_000)
    for resize in plan.resizes:
        record = engine._state.records[resize.uid]
        if record.phase is not Phase.ADMITTED:
            continue
        small = {p.name: p.count for p in before[resize.uid].pod_sets}
        engine.upsert_workload(resized(record.workload, lambda count: count - by))
        engine.restore_admission(engine.shrunk(resize.uid, small))
        assert dict(engine.charge_of(resize.uid)) == dict(before[resize.uid].charge)
    assert over(engine) == {}
    assert crowded(engine) == {}
