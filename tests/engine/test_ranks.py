"""Places in the order of ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.configuration import Configuration, Flavor, Node, Queue, Topology
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.engine import Engine
from queue_manager.engine.ranks import joined, kept
from queue_manager.engine.workload import PodGroup, PodSet, Workload

A, B = ("r0", "a"), ("r0", "b")


def runs(*pairs: tuple[tuple[str, ...], int]) -> tuple[DomainCount, ...]:
    return tuple(DomainCount(values, count) for values, count in pairs)


def test_only_neighbouring_runs_of_a_domain_are_joined() -> None:
    assert joined(runs((A, 1), (A, 2), (B, 0), (A, 1), (B, 1), (A, 1))) == runs((A, 4), (B, 1), (A, 1))


def test_a_domain_that_occurs_twice_keeps_no_more_than_what_is_bound_there() -> None:
    there = runs((A, 2), (B, 2), (A, 2))
    assert kept(there, 3, {A: 2, B: 1}) == runs((A, 2), (B, 1))
    assert kept(there, 3, {A: 3}) == runs((A, 3))
    assert kept(there, 5, {}) == runs((A, 2), (B, 2), (A, 1))


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 3)), max_size=6),
    st.dictionaries(st.sampled_from([A, B]), st.integers(0, 5)),
    st.data(),
)
def test_what_is_kept_adds_up_and_was_there(
    pairs: list[tuple[tuple[str, ...], int]], bound: dict[tuple[str, ...], int], data: st.DataObject
) -> None:
    there = runs(*pairs)
    count = data.draw(st.integers(0, sum(run.count for run in there)))
    stay = kept(there, count, bound)
    assert sum(run.count for run in stay) == count
    for values in (A, B):
        before = sum(run.count for run in there if run.values == values)
        after = sum(run.count for run in stay if run.values == values)
        assert after <= before
        if count >= sum(bound.values()):
            assert after >= min(before, bound.get(values, 0))


def test_pods_of_a_domain_that_occurs_twice_are_spread_over_its_nodes_once() -> None:
    engine = Engine()
    engine.configure(
        Configuration({"t": Topology("t", ("rack",))}, {"f": Flavor("f", topology="t")}, queues={"q": Queue("q")})
    )
    for name, rack in (("n0", "r0"), ("n1", "r0"), ("n2", "r1")):
        engine.upsert_node(Node(name, {"rack": rack}, {"gpu": 2, "pods": 10}))
    engine.upsert_workload(Workload("w", "default", "w", "q", 1, (PodGroup("main", (PodSet("main", 5, {"gpu": 1}),)),)))
    places = runs((("r0",), 2), (("r1",), 1), (("r0",), 2))
    assigned = PodSetAssignment("main", 5, {"gpu": "f"}, levels=("rack",), domains=places, pinned=True)
    engine.restore_admission(Admission("w", "q", (assigned,), {}, 1))
    engine.plan(2)
    assert engine._state.records["w"].planned == {"main": {"n0": 2, "n1": 2, "n2": 1}}
