"""What grows keeps the rules of its pod template together with the pods that run, and has places iff there are any."""

from __future__ import annotations

from itertools import combinations_with_replacement

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import HOSTNAME, Node
from queue_manager.engine.engine import Engine
from tests.engine.scenario import START, Data, configuration, workload

CONFIGURATION: Data = {
    "topologies": {"t": ["zone", "rack", HOSTNAME]},
    "flavors": {"f": {"topology": "t"}},
    "queues": {"q": {"quota": {"f": {"gpu": 100}}}},
}
keys, skews = st.sampled_from(("zone", "rack", HOSTNAME)), st.integers(1, 2)
rules = st.one_of(
    st.fixed_dictionaries({"apart": st.lists(keys, min_size=1, max_size=1)}),
    st.fixed_dictionaries({"skew": st.dictionaries(keys, skews, min_size=1, max_size=1)}),
    st.fixed_dictionaries({"skew": st.fixed_dictionaries({"zone": skews, HOSTNAME: skews})}),
)
hosts = st.lists(st.tuples(st.sampled_from(("a", "b")), st.sampled_from(("x", "y")), st.integers(0, 4)), max_size=5)


def places(engine: Engine) -> dict[str, int]:
    return dict(engine._state.records["w"].planned["main"])


def keeps(rule: Data, nodes: list[Node], pods: dict[str, int]) -> bool:
    """Whether pods on these nodes fit and keep the rule among all of them."""
    if any(pods.get(node.name, 0) > node.allocatable["gpu"] for node in nodes):
        return False
    for key in [*rule.get("apart", ()), *rule.get("skew", {})]:
        there: dict[str, int] = {}
        for node in nodes:
            there[node.labels[key]] = there.get(node.labels[key], 0) + pods.get(node.name, 0)
        counts = there.values()
        if max(counts) > 1 if "apart" in rule else max(counts) - min(counts) > rule["skew"][key]:
            return False
    return True


@settings(max_examples=150, deadline=None, derandomize=True)
@given(hosts, rules, st.integers(1, 4), st.integers(1, 3))
def test_a_growth_finds_places_iff_the_rules_leave_some(
    found: list[tuple[str, str, int]], rule: Data, pods: int, more: int
) -> None:
    nodes = [
        Node(f"n{i}", {HOSTNAME: f"n{i}", "zone": zone, "rack": zone + rack}, {"gpu": gpus, "pods": 10})
        for i, (zone, rack, gpus) in enumerate(found)
    ]
    engine = Engine()
    engine.configure(configuration(CONFIGURATION))
    for node in nodes:
        engine.upsert_node(node)
    asked: Data = {"queue": "q", "gpu": 1, "elastic": True, **rule}
    engine.upsert_workload(workload("w", {**asked, "pods": pods}, 1))
    assume(engine.plan(START + 1000).admissions)
    before = places(engine)
    engine.bind("w", "main", before)
    engine.upsert_workload(workload("w", {**asked, "pods": pods + more}, 1))
    grown = engine.plan(START + 2000).resizes
    after = places(engine)
    if grown:
        assert sum(after.values()) == pods + more
        assert all(after.get(name, 0) >= count for name, count in before.items())
        assert keeps(rule, nodes, after)
        return
    for names in combinations_with_replacement([node.name for node in nodes], more):
        ways = dict(before)
        for name in names:
            ways[name] = ways.get(name, 0) + 1
        assert not keeps(rule, nodes, ways)
