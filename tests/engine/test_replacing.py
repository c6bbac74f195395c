"""Other places for pods whose nodes were lost: what stays, what moves along, and that it is found if there is any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.ask import ask_of
from queue_manager.engine.configuration import Configuration, Node
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.engine import Engine
from queue_manager.engine.fleet import exclusion
from queue_manager.engine.placing import flavors_of, occupancy_of
from queue_manager.engine.prepared import pod_filter
from queue_manager.engine.records import Phase, Record
from queue_manager.engine.tree import NOW
from queue_manager.engine.workload import Apart, PodGroup, PodSet, TopologyMode, Workload
from tests.engine.generate import (
    COMMON,
    HOST,
    RACK,
    batches,
    configurations,
    copy_of,
    crowded,
    engine_of,
    nodes,
    settle,
    snapshot,
)
from tests.engine.scenario import configuration


def cluster(racks: str, hosts: int = 2) -> Engine:
    """Racks of hosts with one GPU each: a0 a1 b0 b1 ..."""
    engine = Engine()
    engine.configure(
        configuration(
            {
                "topologies": {"t": [RACK, HOST]},
                "flavors": {"f": {"topology": "t"}},
                "queues": {"q": {"quota": {"f": {"gpu": 100}}}},
            }
        )
    )
    for rack in racks:
        for number in range(hosts):
            name = f"{rack}{number}"
            engine.upsert_node(Node(name, {RACK: rack, HOST: name}, {"gpu": 1, "pods": 10}))
    return engine


def running(engine: Engine, uid: str, places: str, pod_set: PodSet) -> None:
    """A workload whose pods are pinned to nodes, in the order of ranks."""
    names = places.split()
    pod_set = replace(pod_set, count=len(names), requests={"gpu": 1})
    domains = tuple(DomainCount((name[0], name), 1) for name in names)
    assigned = PodSetAssignment("main", len(names), {"gpu": "f"}, levels=(RACK, HOST), domains=domains, pinned=True)
    engine.upsert_workload(Workload(uid, "default", uid, "q", 1, (PodGroup("main", (pod_set,)),)))
    engine.restore_admission(Admission(uid, "q", (assigned,), {}, 1))
    engine.plan(1)


def ranks(found: Admission | str) -> str:
    if isinstance(found, str):
        return found
    return " ".join(d.values[-1] for p in found.pod_sets for d in p.domains or () for _ in range(d.count))


EXCLUSIVE = PodSet("main", 0, {}, replica_size=2, exclusive=RACK)


def test_a_replica_keeps_its_rack_while_it_has_room() -> None:
    engine = cluster("abc", 3)
    running(engine, "w", "a0 a1 b0 b1", EXCLUSIVE)
    assert ranks(engine.replace("w", {"b0"}, 2)) == "a0 a1 b2 b1"


def test_a_replica_whose_rack_is_gone_moves_whole_to_one_that_no_exclusive_replica_has() -> None:
    engine = cluster("abcd", 3)
    running(engine, "w", "a0 a1 b0 b1", EXCLUSIVE)
    running(engine, "other", "c0", EXCLUSIVE)
    assert ranks(engine.replace("w", {"b0", "b2"}, 2)) == "a0 a1 d0 d1"


def test_a_replica_of_another_pod_priority_is_no_reason_to_avoid_a_rack() -> None:
    engine = cluster("abcd", 3)
    running(engine, "w", "a0 a1 b0 b1", EXCLUSIVE)
    running(engine, "other", "c0", replace(EXCLUSIVE, pod_priority=5))
    assert ranks(engine.replace("w", {"b0", "b2"}, 2)) == "a0 a1 c1 c2"


def test_there_is_no_place_when_every_other_rack_has_an_exclusive_replica() -> None:
    engine = cluster("abc", 3)
    running(engine, "w", "a0 a1 b0 b1", EXCLUSIVE)
    running(engine, "other", "c0", EXCLUSIVE)
    assert ranks(engine.replace("w", {"b0", "b2"}, 2)) == (
        "1 pods of main need other nodes, and domain b has room for 0"
    )


def test_distinct_replicas_stay_on_distinct_racks() -> None:
    engine = cluster("abc", 2)
    running(engine, "w", "a0 a1 b0 b1", PodSet("main", 0, {}, replica_size=2, distinct=Apart(RACK)))
    assert ranks(engine.replace("w", {"b0"}, 2)) == "a0 a1 c0 c1"
    running(engine, "x", "c0", PodSet("main", 0, {}))
    assert ranks(engine.replace("w", {"b0"}, 2)).startswith("1 pods of main need other nodes")


def test_a_pod_that_runs_on_a_lost_node_still_counts_there_and_its_new_place_is_kept() -> None:
    engine = cluster("a", 3)
    running(engine, "w", "a0 a1", PodSet("main", 0, {}))
    engine.bind("w", "main", {"a0": 1, "a1": 1})
    found = engine.replace("w", {"a0"}, 2)
    assert ranks(found) == "a2 a1"
    assert isinstance(found, Admission)
    engine.restore_admission(found)
    engine.bind("w", "main", {"a1": 1}, {"a0": 1})
    engine.plan(2)
    occupied = engine._state.fleet.occupied[NOW]
    assert {name: found["gpu"] for name, found in occupied.items()} == {"a0": 1, "a1": 1, "a2": 1}


def test_a_terminating_pod_and_its_replacement_take_one_place_on_their_node() -> None:
    engine = cluster("a", 3)
    running(engine, "w", "a0 a1", PodSet("main", 0, {}))
    engine.bind("w", "main", {"a1": 1}, {"a0": 1})
    assert {name: found["gpu"] for name, found in engine._state.fleet.occupied[NOW].items()} == {"a0": 1, "a1": 1}


def test_pods_that_have_finished_on_a_lost_node_need_no_other() -> None:
    engine = cluster("a", 2)
    running(engine, "w", "a0 a1", PodSet("main", 0, {}))
    workload = engine._state.records["w"].workload
    (group,) = workload.pod_groups
    finished = replace(group, pod_sets=(replace(group.pod_sets[0], reclaimed=1),))
    engine.upsert_workload(replace(workload, pod_groups=(finished,)))
    engine.bind("w", "main", {"a1": 1})
    assert ranks(engine.replace("w", {"a0"}, 2)) == "a0 a1"


def test_a_node_whose_host_name_is_not_its_name_is_found_by_it() -> None:
    engine = cluster("a", 1)
    for number in (1, 2):
        engine.upsert_node(Node(f"node-{number}", {RACK: "a", HOST: f"a{number}"}, {"gpu": 1, "pods": 10}))
    running(engine, "w", "a0 a1", PodSet("main", 0, {}))
    assert ranks(engine.replace("w", {"node-1"}, 2)) == "a0 a2"


# ---- against every possible answer


def alternatives(engine: Engine, record: Record, lost: set[str]) -> Iterator[dict[int, list[str]]]:
    """Every way to give the pods on lost nodes other ones: nodes by pod set, in the order of ranks."""
    admission, state = record.admission, engine._state
    assert admission is not None
    ask = ask_of(record.workload, state.configuration)
    here: dict[int, list[str]] = {}
    options: list[list[str]] = []
    for index, assigned in enumerate(admission.pod_sets):
        flavors = flavors_of(state.configuration, assigned.flavors)
        pods = pod_filter(ask.pod_sets[index], flavors)
        selector = {**dict(pods.selector), **assigned.selector}
        pods = replace(pods, selector=tuple(sorted(selector.items())))
        usable = [n for n, node in state.fleet.nodes.items() if n not in lost and not exclusion(node, pods)]
        here[index] = [run.values[-1] for run in assigned.domains or () for _ in range(run.count)]
        options += [[name] if name not in lost else usable for name in here[index]]
    for found in product(*options):
        names = iter(found)
        yield {index: [next(names) for _ in places] for index, places in here.items()}


def allowed(engine: Engine, record: Record, found: dict[int, list[str]]) -> bool:
    """Whether nodes have room for these places, and what has to share a domain does."""
    state, workload = engine._state, record.workload
    ask = ask_of(workload, state.configuration)
    places = {index: {name: names.count(name) for name in names} for index, names in found.items()}
    standing = record.standing[NOW]
    assert standing is not None
    for name, amounts in occupancy_of(ask, places).items():
        free = state.fleet.free_on(state.fleet.nodes[name], NOW)
        mine = standing.places.get(name, {})
        if any(free(resource) + mine.get(resource, 0) < amount for resource, amount in amounts.items()):
            return False
    requests = [(workload.topology, list(found))]
    requests += [(pod_set.topology, [index]) for index, pod_set in enumerate(workload.pod_sets)]
    for request, indexes in requests:
        if request is not None and request.mode is TopologyMode.REQUIRED:
            labels = {state.fleet.nodes[name].labels[request.level] for i in indexes for name in found[i]}
            if len(labels) > 1:
                return False
    return True


@COMMON
@given(configurations(topology=True), nodes(), batches(1, 2), st.data())
def test_a_replacement_is_found_if_there_is_one_and_moves_only_what_was_lost(
    c: Configuration, n: list[Node], b: list[Workload], data: st.DataObject
) -> None:
    engine = engine_of(c, n, b)
    settle(engine)
    lost = data.draw(st.sets(st.sampled_from(sorted(node.name for node in n)), min_size=1, max_size=2))
    for uid, record in list(engine._state.records.items()):
        if record.phase is not Phase.ADMITTED or record.admission is None:
            continue
        if any(p.domains is None for p in record.admission.pod_sets):
            continue
        before = snapshot(engine)
        found = engine.replace(uid, lost, 0)
        assert snapshot(engine) == before
        possible = any(allowed(engine, record, places) for places in alternatives(engine, record, lost))
        assert isinstance(found, Admission) == possible, found
        if not isinstance(found, Admission):
            continue
        for old, new in zip(record.admission.pod_sets, found.pod_sets, strict=True):
            one, other = ([r.values[-1] for r in p.domains or () for _ in range(r.count)] for p in (old, new))
            assert len(one) == len(other)
            assert not lost & set(other)
            if old.pinned:
                assert all(was == now for was, now in zip(one, other, strict=True) if was not in lost)
            else:
                assert all(other.count(name) >= one.count(name) for name in set(one) - lost)
        assert engine.replace(uid, sorted(lost), 0) == found
        engine.restore_admission(found)
        engine.plan(1 << 40)
        assert crowded(engine) == {}
        assert copy_of(engine).replace(uid, lost, 0) == found


@pytest.mark.parametrize("order", [1, -1])
def test_large_pods_and_small_ones_that_fit_in_one_order_only(order: int) -> None:
    engine = cluster("a", 0)
    for name, gpus in (("a0", 3), ("a1", 3), ("a2", 2)):
        engine.upsert_node(Node(name, {RACK: "a", HOST: name}, {"gpu": gpus, "pods": 10}))
    sets = [PodSet("small", 1, {"gpu": 1}), PodSet("large", 1, {"gpu": 2})][::order]
    engine.upsert_workload(Workload("w", "default", "w", "q", 1, (PodGroup("main", tuple(sets)),)))
    where = (DomainCount(("a", "a0"), 1),)
    assigned = tuple(
        PodSetAssignment(p.name, 1, {"gpu": "f"}, levels=(RACK, HOST), domains=where, pinned=True) for p in sets
    )
    engine.restore_admission(Admission("w", "q", assigned, {}, 1))
    running(engine, "x", "a1 a1", PodSet("main", 0, {}))
    found = engine.replace("w", {"a0"}, 2)
    assert isinstance(found, Admission)
    assert {p.name: [d.values[-1] for d in p.domains or ()] for p in found.pod_sets} == {
        "small": ["a1"],
        "large": ["a2"],
    }
