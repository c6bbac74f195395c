"""Exclusive replicas over the life of workloads: no two of equal pod priority ever share a domain."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.engine.alone import Alone, overlap
from queue_manager.engine.configuration import Node
from queue_manager.engine.engine import Engine
from queue_manager.engine.tree import FUTURE, NOW
from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest, Workload
from tests.engine.scenario import configuration

LEVELS = ("zone", "rack", "host")
RACKS = ("z0r0", "z0r1", "z1r0", "z1r1")


def cluster(order: list[int]) -> Engine:
    engine = Engine()
    engine.configure(
        configuration(
            {
                "topologies": {"t": LEVELS},
                "flavors": {"gpus": {"topology": "t"}},
                "queues": {"q": {"withinQueue": "LowerPriority", "quota": {"gpus": {"gpu": 40}}}},
            }
        )
    )
    for number in order:
        rack = RACKS[number % 4]
        labels = {"zone": rack[:2], "rack": rack, "host": f"n{number}"}
        engine.upsert_node(Node(f"n{number}", labels, {"gpu": 2 + number % 3, "pods": 20}))
    return engine


@st.composite
def wishes(draw: st.DrawFn) -> PodSet:
    size = draw(st.integers(1, 3))
    level = draw(st.sampled_from(LEVELS[:2]))
    topology = TopologyRequest(TopologyMode.PREFERRED, "zone") if draw(st.booleans()) else None
    return PodSet(
        "main",
        size * draw(st.integers(1, 3)),
        {"gpu": 1},
        topology=topology,
        replica_size=size,
        exclusive=level,
        pod_priority=draw(st.sampled_from((0, 0, 0, 7))),
    )


steps = st.one_of(
    st.tuples(st.just("submit"), wishes(), st.integers(0, 2)),
    st.tuples(st.sampled_from(("evict", "release", "remove", "restart")), st.integers(0, 5), st.just(0)),
)


def taken(engine: Engine, uid: str) -> set[Alone]:
    """The domains that the replicas of an admitted workload lie in, told from its admission; each holds one replica."""
    record = engine._state.records[uid]
    spec = record.workload.pod_sets[0]
    assert record.admission is not None
    assigned = record.admission.pod_sets[0]
    depth = LEVELS.index(spec.exclusive) + 1
    pods: Counter[tuple[str, ...]] = Counter()
    for run in assigned.domains or ():
        pods[run.values[:depth]] += run.count
    assert set(pods.values()) == {spec.replica_size}
    return {Alone(spec.pod_priority, LEVELS[:depth], values) for values in pods}


def check(engine: Engine) -> None:
    state = engine._state
    there = {uid: taken(engine, uid) for uid, record in state.records.items() if record.standing[NOW] is not None}
    for (_, some), (_, others) in combinations(sorted(there.items()), 2):
        assert not any(a.priority == b.priority and overlap(a, b) for a in some for b in others)
    for view in (NOW, FUTURE):
        standing = [r.standing[view] for r in state.records.values()]
        counted = Counter(domain for one in standing if one is not None for domain in one.alone)
        known = {d: n for counts in state.fleet.alone._views.get(view, {}).values() for d, n in counts.items()}
        assert known == counted
    for uid, domains in there.items():
        now = state.records[uid].standing[NOW]
        assert now is not None
        assert now.alone == domains


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=3, max_size=12), st.permutations(range(8)))
def test_no_two_exclusive_replicas_share_a_domain(done: list[tuple[str, PodSet | int, int]], order: list[int]) -> None:
    engine, other = cluster(list(range(8))), cluster(order)
    uids: list[str] = []
    for number, (what, which, priority) in enumerate(done):
        for one in (engine, other):
            if isinstance(which, PodSet):
                group = PodGroup("main", (which,))
                one.upsert_workload(Workload(f"w{number}", "d", f"w{number}", "q", number + 1, (group,), priority))
            elif what == "restart":
                for record in list(one._state.records.values()):
                    if record.admission is not None:
                        draining = record.standing[FUTURE] is None
                        one.restore_admission(record.admission, draining=draining, evicted_by=record.evicted_by)
            elif uids:
                method = {"evict": one.evict, "release": one.release, "remove": one.remove_workload}[what]
                method(uids[which % len(uids)])
        if isinstance(which, PodSet):
            uids.append(f"w{number}")
        plans = [one.plan(1000 + number) for one in (engine, other)]
        assert (plans[0].admissions, plans[0].evictions) == (plans[1].admissions, plans[1].evictions)
        check(engine)
        engine.revoke()
        check(engine)
        again = engine.plan(1000 + number)
        assert (again.admissions, again.evictions) == (plans[0].admissions, plans[0].evictions)
    for uid in uids:
        engine.remove_workload(uid)
    assert not any(counts for views in engine._state.fleet.alone._views.values() for counts in views.values())
