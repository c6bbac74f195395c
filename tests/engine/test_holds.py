"""Holds for the starving: the bound in a stream that never ends, and what a hold must never do."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorQuotas,
    Node,
    Preemption,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    ResourceGroup,
    Starvation,
    Topology,
)
from queue_manager.engine.decision import BlockerType
from queue_manager.engine.engine import Engine
from queue_manager.engine.holds import end_of
from queue_manager.engine.records import Phase
from queue_manager.engine.tree import FUTURE
from queue_manager.engine.workload import Workload
from tests.engine.generate import copy_of, crowded, engine_of, over, snapshot
from tests.engine.stream import MINUTE, Stream, job

EXAMPLES = int(os.environ.get("ENGINE_EXAMPLES", "25"))
COMMON = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
AFTER = 30 * MINUTE
SECOND = 1_000_000
RACK, HOST = "rack", "kubernetes.io/hostname"


def queue(name: str, gpus: int, cohort: str = "", strategy: str = "BestEffortFIFO") -> Queue:
    group = ResourceGroup(("gpu",), (FlavorQuotas("h", {"gpu": CellQuota(gpus)}),))
    return Queue(name, cohort, (group,), QueueingStrategy(strategy))


def world(*queues: Queue, racks: int = 0, after: int = AFTER) -> tuple[Configuration, list[Node]]:
    """64 GPUs: a number, or racks of two nodes with 8 GPUs each."""
    flavor = Flavor("h", {"pool": "h"}, topology="t" if racks else "")
    found = [
        Node(f"n{rack}{i}", {"pool": "h", RACK: f"r{rack}", HOST: f"n{rack}{i}"}, {"gpu": 8, "pods": 100})
        for rack in range(racks)
        for i in range(2)
    ]
    cohorts = {q.cohort: Cohort(q.cohort) for q in queues if q.cohort}
    topologies = {"t": Topology("t", (RACK, HOST))}
    configuration = Configuration(topologies, {"h": flavor}, cohorts, {q.name: q for q in queues})
    return replace(configuration, starvation=Starvation(after) if after else None), found


def one_gpu(known: bool, name: str = "q") -> Callable[[random.Random, str, int], Workload]:
    def small(rng: random.Random, uid: str, now: int) -> Workload:
        return job(uid, name, now, 1, rng.randint(2, 20) * MINUTE if known else 0)

    return small


def run_until_started(stream: Stream, gang: Workload, most: int = 3000) -> tuple[int, int]:
    """When the gang started, and by when it had to: the longest maximum run time of what ran as its hold began."""
    bound = 0
    for _ in range(most):
        ran = {uid: stream.limit_ends[uid] for uid in stream.running}
        at = stream.now
        plan = stream.step()
        if not bound and any(hold.uid == gang.uid for hold in plan.holds):
            ran |= {a.uid: stream.limit_ends[a.uid] for a in plan.admissions}
            bound = max([at, *ran.values()])
        if gang.uid in stream.started:
            return stream.started[gang.uid], bound
    raise AssertionError("the gang does not start")


@pytest.mark.parametrize("known", [True, False], ids=["known ends", "unknown ends"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("racks", [0, 4], ids=["a number", "nodes"])
def test_a_gang_in_a_stream_of_small_jobs_starts_within_the_bound(seed: int, racks: int, known: bool) -> None:
    configuration, found = world(queue("q", 64), racks=racks)
    stream = Stream(configuration, found, one_gpu(known), seed)
    for _ in range(100):
        stream.step()
    gang = job("gang", "q", stream.now, 8, 60 * MINUTE, pods=8)
    stream.submit(gang)
    stream.backlog += 1
    started, bound = run_until_started(stream, gang)
    assert gang.created + AFTER <= started <= bound + 10_000  # a pass counts its rounds in microseconds


@pytest.mark.parametrize("seed", range(3))
def test_without_a_hold_the_same_gang_starves(seed: int) -> None:
    configuration, found = world(queue("q", 64), after=0)
    stream = Stream(configuration, found, one_gpu(True), seed)
    for _ in range(100):
        stream.step()
    stream.submit(job("gang", "q", stream.now, 8, 60 * MINUTE, pods=8))
    stream.backlog += 1
    for _ in range(3000):
        stream.step()
    assert "gang" not in stream.started


def test_backfill_keeps_the_cluster_in_use_while_a_hold_stands() -> None:
    """With known ends most of what the hold waits for is used meanwhile; with unknown ends it can't be."""
    use = {}
    for known in (True, False):
        configuration, found = world(queue("q", 64))
        stream = Stream(configuration, found, one_gpu(known), 1, backlog=200)
        for _ in range(100):
            stream.step()
        gang = job("gang", "q", stream.now, 8, 60 * MINUTE, pods=8)
        stream.submit(gang)
        while not stream.plans[-1].holds:
            stream.step()
        since, busy = stream.now, stream.busy
        while "gang" not in stream.started:
            stream.step()
        use[known] = 100 * (stream.busy - busy) // (64 * max(1, stream.now - since))
    assert use[True] >= use[False] + 10, use


@pytest.mark.parametrize("seed", range(3))
def test_a_gang_that_borrows_starts_past_a_stream_of_other_queues_that_borrow(seed: int) -> None:
    configuration, found = world(queue("a", 64, "all"), queue("q", 0, "all"), queue("strict", 0, "all", "StrictFIFO"))

    def small(rng: random.Random, uid: str, now: int) -> Workload:
        return job(uid, rng.choice(["q", "strict"]), now, rng.randint(1, 3), rng.randint(2, 20) * MINUTE)

    stream = Stream(configuration, found, small, seed)
    for _ in range(100):
        stream.step()
    gang = job("gang", "a", stream.now, 8, 60 * MINUTE, pods=8)
    stream.submit(gang)
    stream.backlog += 1
    started, bound = run_until_started(stream, gang)
    assert started <= bound + 10_000


@pytest.mark.parametrize("seed", range(5))
def test_backfill_never_delays_a_hold(seed: int) -> None:
    """Whatever starts meanwhile, the expected time does not grow, and is kept, while nobody uses a guarantee."""
    configuration, found = world(queue("q", 64), racks=4)

    def small(rng: random.Random, uid: str, now: int) -> Workload:
        return job(uid, "q", now, rng.choice([1, 1, 2, 8]), rng.choice([0, 3, 10, 30]) * MINUTE)

    stream = Stream(configuration, found, small, seed, backlog=12)
    for _ in range(60):
        stream.step()
    level = random.Random(seed).choice([RACK, ""])
    gang = job("gang", "q", stream.now, 8, 60 * MINUTE, pods=2, level=level)
    stream.submit(gang)
    stream.backlog += 1
    expected: list[int] = []
    while "gang" not in stream.started:
        expected.extend(h.expected for h in stream.step().holds if h.uid == "gang" and h.expected)
        assert len(stream.plans) < 3000
    late = [b for a, b in pairwise(expected) if b > a + 1_000_000]
    assert late == []
    if expected:
        assert stream.started["gang"] <= max(expected[-1], gang.created + AFTER) + 10_000


def busy(seed: int) -> tuple[Engine, random.Random]:
    """Three queues in one or two trees, with or without nodes, that get more large and small jobs than they can run."""
    rng = random.Random(seed)
    policies = [PreemptionPolicy.NEVER, PreemptionPolicy.NEVER, PreemptionPolicy.ANY]
    queues = [
        replace(
            queue(name, rng.randint(2, 8), rng.choice(["all", "all", "other"]), rng.choice(list(QueueingStrategy))),
            preemption=Preemption(reclaim_within_cohort=rng.choice(policies)),
        )
        for name in ("qa", "qb", "qc")
    ]
    configuration, found = world(*queues, racks=rng.choice([0, 2]), after=1)
    configuration = replace(configuration, starvation=Starvation(1, rng.choice([1, 1, 2])))
    return engine_of(configuration, found, []), rng


def happen(engine: Engine, rng: random.Random, step: int) -> None:
    """One to three events."""
    state = engine._state
    for number in range(rng.randint(1, 3)):
        kind = rng.choice(["small", "small", "large", "finish", "finish", "release", "remove"])
        if kind in ("small", "large"):
            gpus = rng.randint(1, 2) if kind == "small" else rng.randint(4, 8)
            longest = rng.choice([0, 3, 10, 30]) * SECOND
            level = RACK if state.fleet.nodes and kind == "large" and rng.random() < 0.3 else ""
            uid = f"w{step:02}{number}"
            made = job(uid, rng.choice(["qa", "qb", "qc"]), step * SECOND, 1, longest, gpus, level)
            engine.upsert_workload(replace(made, priority=rng.choice([0, 0, 0, 1])))
            continue
        phase = {"finish": Phase.ADMITTED, "release": Phase.DRAINING, "remove": Phase.WAITING}[kind]
        found = sorted(uid for uid, record in state.records.items() if record.phase is phase)
        if found and kind == "release":
            engine.release(rng.choice(found))
        elif found and (kind == "finish" or rng.random() < 0.2):
            engine.remove_workload(rng.choice(found))


def held(engine: Engine) -> object:
    """Everything that decides about holds."""
    state = engine._state
    holds = {}
    for uid, hold in state.starving.by_uid.items():
        nodes = [hold.node.root, *hold.node.root.children]
        usage = [{cell: amount for cell, amount in node.usage[hold.view].items() if amount} for node in nodes]
        holds[uid] = (hold.view, hold.target, dict(hold.members), usage, dict(state.fleet.occupied[hold.view]))
    return snapshot(engine), holds, {r.path: sorted(q) for r, q in state.starving.overdue.items() if q}


@COMMON
@given(st.integers(0, 1 << 30))
def test_holds_keep_every_limit_are_taken_back_exactly_and_come_to_rest(seed: int) -> None:
    engine, rng = busy(seed)
    for step in range(1, 30):
        happen(engine, rng, step)
        before, state = (over(engine), crowded(engine)), held(engine)
        plan = engine.plan(step * SECOND)
        engine.revoke()
        assert held(engine) == state
        assert engine.plan(step * SECOND) == plan
        for old, new in zip(before, (over(engine), crowded(engine)), strict=True):
            assert all(new[key] <= old.get(key, 0) for key in new)
        assert all(engine._state.records[hold.uid].phase is Phase.WAITING for hold in plan.holds)
        again = engine.plan(step * SECOND)
        assert (again.admissions, again.evictions, again.waiting, again.holds) == ((), (), (), plan.holds)


@COMMON
@given(st.integers(0, 1 << 30))
def test_the_view_of_a_hold_is_what_is_left_when_it_is_complete(seed: int) -> None:
    """Kept step by step, it equals the view summed up anew; the starving workload fits into it."""
    engine, rng = busy(seed)
    for step in range(1, 30):
        happen(engine, rng, step)
        engine.plan(step * SECOND)
        state = engine._state
        for uid, hold in state.starving.by_uid.items():
            stands = [hold.target.standing]
            for record in state.records.values():
                standing = record.standing[FUTURE]
                if standing is not None and hold.outlasts(record.uid, end_of(record)):
                    stands.append(standing)
            stands += [m for u, m in hold.members.items() if u in state.starving.by_uid and u != uid]
            summed: dict[str, int] = {}
            for standing in stands:
                if state.tree.queues[standing.queue].root is hold.node.root:
                    summed[standing.queue] = summed.get(standing.queue, 0) + sum(standing.charge.values())
            kept = {
                n: sum(q.usage[hold.view].values()) for n, q in state.tree.queues.items() if q.root is hold.node.root
            }
            assert {name: amount for name, amount in kept.items() if amount} == summed
            if len([h for h in state.starving.by_uid.values() if h.node.root is hold.node.root]) == 1:
                assert all(hold.node.available(cell, hold.view) >= 0 for cell in hold.target.standing.charge)


@COMMON
@given(st.integers(0, 1 << 30))
def test_a_hold_denies_nobody_its_guarantee(seed: int) -> None:
    """Whoever waits for quota behind a hold alone would borrow, or stands behind it in its own queue."""
    engine, rng = busy(seed)
    for step in range(1, 30):
        happen(engine, rng, step)
        plan = engine.plan(step * SECOND)
        state = engine._state
        holders = {hold.uid: hold.queue for hold in plan.holds}
        for uid, record in state.records.items():
            waiting = engine.explain(uid, step * SECOND)
            blockers = [] if waiting is None else [b for b in waiting.blockers if b.type is BlockerType.HOLD]
            for blocker in blockers:
                if holders[blocker.holders[0]] != record.workload.queue and blocker.flavor:
                    node = state.tree.queues[record.workload.queue]
                    assert node.borrowing_with(Cell(blocker.flavor, blocker.resource), blocker.requested, FUTURE)


@COMMON
@given(st.integers(0, 1 << 30))
def test_a_restart_gives_nothing_away_that_was_kept(seed: int) -> None:
    engine, rng = busy(seed)
    for step in range(1, 30):
        happen(engine, rng, step)
        engine.plan(step * SECOND)
    fresh = copy_of(engine)
    plan = fresh.plan(30 * SECOND)
    assert over(fresh) == over(engine)
    kept = {hold.uid for hold in engine.plan(30 * SECOND).holds}
    if kept and all(hold.expected == 0 for hold in plan.holds):
        assert not {a.uid for a in plan.admissions} - kept
