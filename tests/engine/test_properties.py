"""What must hold whatever the tree, the workloads and the order of events."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.configuration import Configuration, Node, QueueingStrategy
from queue_manager.engine.decision import Plan
from queue_manager.engine.engine import Engine
from queue_manager.engine.records import Phase
from queue_manager.engine.workload import Workload
from queue_manager.simulate.semantics import Semantics
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
    with_quota,
)


def sound(engine: Engine) -> None:
    """Limits, nodes, gangs and explanations of one state."""
    for view in (NOW, FUTURE):
        assert over(engine, view) == {}
        assert crowded(engine, view) == {}
    for uid, record in engine._state.records.items():
        waiting = engine.explain(uid, 0)
        assert (waiting is not None) == (record.phase is Phase.WAITING)
        if waiting is not None:
            assert waiting.message
            assert waiting.blockers
        if record.admission is not None:
            wanted = {p.name: p.count for p in record.workload.pod_sets}
            assert {p.name: p.count for p in record.admission.pod_sets} == wanted
            for pod_set in record.admission.pod_sets:
                if pod_set.domains is not None:
                    assert sum(domain.count for domain in pod_set.domains) == pod_set.count


@COMMON
@given(configurations(), nodes(), batches())
def test_every_pass_keeps_all_limits_and_comes_to_rest(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    engine = engine_of(c, n, b)
    settle(engine, check=lambda plan: sound(engine))


@COMMON
@given(configurations(), nodes(), batches())
def test_a_second_pass_changes_nothing(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    engine = engine_of(c, n, b)
    engine.plan(1)
    again = engine.plan(2)
    assert (again.admissions, again.evictions, again.waiting) == ((), (), ())


@COMMON
@given(configurations(), nodes(), batches(), st.integers(0, 1 << 30))
def test_the_order_of_input_does_not_matter(c: Configuration, n: list[Node], b: list[Workload], seed: int) -> None:
    shuffle = random.Random(seed)
    first = settle(engine_of(c, n, b))
    for items in (n, b):
        shuffle.shuffle(items)
    flavors, queues, cohorts = (list(m.items()) for m in (c.flavors, c.queues, c.cohorts))
    for rows in (flavors, queues, cohorts):
        shuffle.shuffle(rows)
    c = replace(c, flavors=dict(flavors), queues=dict(queues), cohorts=dict(cohorts))
    assert settle(engine_of(c, n, b)) == first


@COMMON
@given(configurations(), nodes(), batches(), st.sampled_from(Semantics))
def test_revoke_restores_the_state_exactly(
    c: Configuration, n: list[Node], b: list[Workload], semantics: Semantics
) -> None:
    engine = engine_of(replace(c, policies=semantics.policies), n, b)
    for step in range(4):
        before = snapshot(engine)
        plan = engine.plan(step * 1000)
        for record in list(engine._state.records):
            engine.explain(record, step * 1000)
        engine.revoke()
        assert snapshot(engine) == before
        assert engine.plan(step * 1000) == plan
        for eviction in plan.evictions:
            engine.release(eviction.uid)


@COMMON
@given(configurations(), nodes(), batches(3, 9))
def test_nobody_starts_past_one_that_waits_in_a_strict_queue(
    c: Configuration, n: list[Node], b: list[Workload]
) -> None:
    strict = {name: replace(queue, strategy=QueueingStrategy.STRICT_FIFO) for name, queue in c.queues.items()}
    engine = engine_of(replace(c, queues=strict), n, b)

    def check(plan: Plan) -> None:
        records = engine._state.records
        waiting = [r for r in records.values() if r.phase is Phase.WAITING and r.group is not None]
        for started in (records[admission.uid] for admission in plan.admissions):
            queue = started.workload.queue
            assert not [r.uid for r in waiting if r.workload.queue == queue and r.order < started.order]

    settle(engine, check=check)


@COMMON
@given(configurations(), nodes(), batches(4, 10))
def test_nobody_is_evicted_twice_by_the_same(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    pairs: Counter[tuple[str, str]] = Counter()

    def count(plan: Plan) -> None:
        pairs.update((e.uid, e.by) for e in plan.evictions)

    settle(engine_of(c, n, b), check=count)
    assert all(times == 1 for times in pairs.values())
    assert not any((by, uid) in pairs for uid, by in pairs)


events = st.lists(
    st.tuples(st.sampled_from(["submit", "finish", "remove", "release", "hold", "quota", "node"]), st.integers(0, 99)),
    max_size=12,
)


def play(engine: Engine, batch: list[Workload], kind: str, number: int) -> None:
    """One outside event on something that it can happen to, chosen by number."""
    state = engine._state

    def one_of(phase: Phase) -> str:
        found = sorted(uid for uid, r in state.records.items() if r.phase is phase)
        return found[number % len(found)] if found else ""

    if kind == "submit":
        engine.upsert_workload(batch[number % len(batch)])
    elif kind == "finish" and (uid := one_of(Phase.ADMITTED)):
        engine.evict(uid)
    elif kind == "remove" and (uid := one_of(Phase.WAITING)):
        engine.remove_workload(uid)
    elif kind == "release" and (uid := one_of(Phase.DRAINING)):
        engine.release(uid)
    elif kind == "hold" and (uid := one_of(Phase.WAITING)):
        engine.suspend_workload(uid, not state.records[uid].held)
    elif kind == "quota":
        names = sorted(state.configuration.queues)
        engine.configure(with_quota(state.configuration, names[number % len(names)], number % 9))
    elif kind == "node":
        name = f"n{number % 5}"
        if name in state.fleet.nodes:
            engine.remove_node(name)
        else:
            amounts = {"cpu": number % 7, "gpu": number % 5, "pods": 4}
            labels = {"pool": "spot", "rack": f"r{number % 2}", "kubernetes.io/hostname": name}
            engine.upsert_node(Node(name, labels, amounts))


@COMMON
@given(configurations(), nodes(), batches(3, 9), events)
def test_passes_never_make_overuse_worse_and_an_incremental_pass_misses_nothing(
    c: Configuration, n: list[Node], b: list[Workload], happens: list[tuple[str, int]]
) -> None:
    engine = engine_of(c, n, b[: len(b) // 2])
    for step, (kind, number) in enumerate(happens):
        play(engine, b, kind, number)
        before = over(engine), crowded(engine)
        engine.plan(step * 1000)
        for old, new in zip(before, (over(engine), crowded(engine)), strict=True):
            assert all(new[key] <= old.get(key, 0) for key in new)
        fresh = copy_of(engine)
        missed = fresh.plan(step * 1000 + 500)
        assert (missed.admissions, missed.evictions) == ((), ())
        assert fresh.usage() == engine.usage()
