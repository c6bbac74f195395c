"""Rules of pod templates: what the search finds against every possible answer."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import Node
from queue_manager.engine.fleet import Forest, PodFilter
from queue_manager.engine.pod_rules import Ruled, contradiction, one_each, says
from queue_manager.engine.spreading import Spread
from queue_manager.engine.workload import PodRules, SpreadRule
from tests.engine.generate import EXAMPLES

ANY = PodFilter((), (), ())
Counts = dict[str, int]


def valid(nodes: dict[str, Node], eligible: list[str], rules: PodRules, counts: Counts) -> bool:
    """Whether kube-scheduler could bind pods like this, whatever the order."""
    for key in rules.apart:
        there = [nodes[n].labels[key] for n, pods in counts.items() for _ in range(pods) if key in nodes[n].labels]
        if len(there) != len(set(there)):
            return False
    used = [n for n, pods in counts.items() if pods]
    if any(len({nodes[n].labels.get(key, n + "?") for n in used}) > 1 for key in rules.together):
        return False
    if any(key not in nodes[n].labels for key in rules.together for n in used):
        return False
    for rule in rules.spread:
        domains = {nodes[n].labels[rule.key]: 0 for n in eligible}
        for name in used:
            if name not in eligible:
                return False
            domains[nodes[name].labels[rule.key]] += counts[name]
        least = 0 if rule.min_domains > 1 else min(domains.values(), default=0)
        if domains and max(domains.values()) - least > rule.max_skew:
            return False
    return True


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Node], list[int], PodRules, int]:
    nodes, rooms = {}, []
    nested = draw(st.booleans())
    for number in range(draw(st.integers(1, 5))):
        rack = draw(st.integers(0, 2))
        zone = {"zone": str(rack // 2 if nested else draw(st.integers(0, 1)))} if draw(st.integers(0, 9)) else {}
        name = f"n{number}"
        nodes[name] = Node(name, {"rack": str(rack), "host": name, **zone}, {})
        rooms.append(draw(st.integers(0, 3)))
    keys = draw(st.lists(st.sampled_from(["zone", "rack", "host"]), unique=True, max_size=2))
    rules = PodRules(
        tuple(SpreadRule(key, draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 0, 2]))) for key in keys),
        tuple(draw(st.lists(st.sampled_from(["zone", "rack"]), unique=True, max_size=1))),
    )
    return nodes, rooms, rules, draw(st.integers(1, 6))


def found_by_trying(nodes: dict[str, Node], rooms: list[int], rules: PodRules, need: int) -> bool:
    groups = [list(nodes)]
    for key in rules.together:
        labels = sorted({node.labels[key] for node in nodes.values() if key in node.labels})
        groups = [[n for n in nodes if nodes[n].labels.get(key) == value] for value in labels]
    for group in groups:
        eligible = [n for n in group if all(rule.key in nodes[n].labels for rule in rules.spread)]
        ways = [range(room + 1) if name in group else range(1) for name, room in zip(nodes, rooms, strict=True)]
        for counts in product(*ways):
            if sum(counts) == need and valid(nodes, eligible, rules, dict(zip(nodes, counts, strict=True))):
                return True
    return False


@settings(max_examples=8 * EXAMPLES, deadline=None, derandomize=True)
@given(worlds())
def test_places_are_found_if_and_only_if_there_are_any(world: tuple[dict[str, Node], list[int], PodRules, int]) -> None:
    nodes, rooms, rules, need = world
    forest = Forest(("host",), {}, nodes, {name: i for i, name in enumerate(nodes)})
    counts = np.array([rooms[list(nodes).index(name)] for name in forest.names], dtype=np.int64)
    ruled = Ruled(forest, nodes, np.ones(len(nodes), dtype=np.bool_), rules, counts)
    found = ruled.find((0, len(forest.names)), need)
    assert (found is not None) == found_by_trying(nodes, rooms, rules, need)
    if found is not None:
        places = {forest.names[member]: pods for member, pods in found}
        assert sum(places.values()) == need
        assert ruled.allows((0, len(forest.names)), found)
        assert all(pods <= counts[forest.member_of[name]] for name, pods in places.items())
        group = [
            n
            for n in nodes
            if all(nodes[n].labels.get(k) == nodes[next(iter(places))].labels.get(k) for k in rules.together)
        ]
        eligible = [n for n in group if all(rule.key in nodes[n].labels for rule in rules.spread)]
        assert valid(nodes, eligible, rules, places)
    best = ruled.best((0, len(forest.names)), need)
    assert (best == need) == (found is not None)


@settings(max_examples=4 * EXAMPLES, deadline=None, derandomize=True)
@given(worlds(), st.sampled_from([("host",), ("rack",), ("zone", "rack"), ("zone",)]))
def test_one_pod_a_domain_leaves_room_in_every_domain_that_has_any(
    world: tuple[dict[str, Node], list[int], PodRules, int], keys: tuple[str, ...]
) -> None:
    nodes, rooms, _, _ = world
    forest = Forest(("host",), {}, nodes, {name: i for i, name in enumerate(nodes)})
    counts = np.array([rooms[list(nodes).index(name)] for name in forest.names], dtype=np.int64)
    left = one_each(forest, nodes, counts, keys)
    assert (left <= counts).all()
    labelled = {n: int(c) for n, c in zip(forest.names, left, strict=True) if c and keys[0] in nodes[n].labels}
    assert valid(nodes, [], PodRules(apart=keys), labelled)
    if len(keys) == 1:
        wanted = {
            nodes[n].labels[keys[0]]
            for n, c in zip(forest.names, counts, strict=True)
            if c and keys[0] in nodes[n].labels
        }
        assert sum(labelled.values()) == len(wanted)
        bare = [(c, b) for n, c, b in zip(forest.names, counts, left, strict=True) if keys[0] not in nodes[n].labels]
        assert all(before == after for before, after in bare)


@settings(max_examples=8 * EXAMPLES, deadline=None, derandomize=True)
@given(worlds(), st.data())
def test_what_is_allowed_is_what_kube_scheduler_would_bind(
    world: tuple[dict[str, Node], list[int], PodRules, int], data: st.DataObject
) -> None:
    nodes, rooms, rules, _ = world
    forest = Forest(("host",), {}, nodes, {name: i for i, name in enumerate(nodes)})
    counts = np.array([rooms[list(nodes).index(name)] for name in forest.names], dtype=np.int64)
    ruled = Ruled(forest, nodes, np.ones(len(nodes), dtype=np.bool_), rules, counts)
    found = [(i, pods) for i, most in enumerate(counts.tolist()) if (pods := data.draw(st.integers(0, most)))]
    places = {forest.names[member]: pods for member, pods in found}
    first = nodes[next(iter(places))].labels if places else {}
    group = [n for n in nodes if places and all(nodes[n].labels.get(k) == first.get(k) for k in rules.together)]
    eligible = [n for n in group if all(rule.key in nodes[n].labels for rule in rules.spread)]
    if places:
        assert ruled.allows((0, len(nodes)), found) == valid(nodes, eligible, rules, places)


def test_a_spread_over_many_domains_is_even() -> None:
    rooms = {(zone, zone * 100 + host): 8 for zone in range(4) for host in range(100)}
    shares = Spread(rooms, (SpreadRule("zone", 1), SpreadRule("host", 1))).share(1002)
    assert shares is not None
    by_zone = [sum(pods for cell, pods in shares.items() if cell[0] == zone) for zone in range(4)]
    assert sorted(by_zone) == [250, 250, 251, 251]
    assert set(shares.values()) == {2, 3}
    assert all(later >= earlier for earlier, later in pairwise(sorted(by_zone)))


def test_what_no_capacity_would_help_is_said() -> None:
    keys = ("zone", "rack", "host")
    rack = PodRules(apart=("rack",))
    assert contradiction(rack, 2, keys, 1) == (
        "its pod anti-affinity allows one pod per rack, and all 2 pods have to lie in one rack"
    )
    assert contradiction(rack, 2, keys, 0) == ""
    assert contradiction(rack, 1, keys, 1) == ""
    both = PodRules(apart=("rack",), together=("host",))
    assert "its pod affinity wants all 3 pods in one host" in contradiction(both, 3, keys, -1)
    assert contradiction(PodRules(apart=("host",), together=("rack",)), 3, keys, -1) == ""
    assert says(PodRules((SpreadRule("zone", 1, 3),), ("rack",), ("host",))) == (
        "one pod per host (pod anti-affinity), all pods in one rack (pod affinity), "
        "at most 1 pods more in one zone than in another (topology spread constraint, of at least 3)"
    )


def test_a_spread_over_many_domains_that_cross_is_even_as_far_as_it_goes() -> None:
    """40 racks of 10 generations, one with room for 2 pods a rack: no other may have more than 2 * 40 + 4."""
    rooms = {(rack, gen): 2 if gen == 3 else 50 for rack in range(40) for gen in range(10)}
    spread = Spread(rooms, (SpreadRule("rack", 1), SpreadRule("gen", 4)))
    assert spread.most(4_000) == 9 * 84 + 80
    assert spread.share(9 * 84 + 81) is None
    shares = spread.share(836)
    assert shares is not None
    by_rack = [sum(pods for cell, pods in shares.items() if cell[0] == rack) for rack in range(40)]
    by_gen = [sum(pods for cell, pods in shares.items() if cell[1] == gen) for gen in range(10)]
    assert (min(by_rack), max(by_rack)) == (20, 21)
    assert by_gen == [84, 84, 84, 80, 84, 84, 84, 84, 84, 84]


def test_many_domains_inside_each_other_are_measured_once_for_each_smallest_count() -> None:
    """What the zones could have at the least is tried from the most down: the hosts inside are the same each time."""
    rooms = {(zone, zone * 2_000 + host): 1 for zone in range(4) for host in range(2_000 if zone else 300)}
    spread = Spread(rooms, (SpreadRule("zone", 40), SpreadRule("host", 1)))
    assert spread.most(6_300) == 300 + 3 * 340
    shares = spread.share(1_300)
    assert shares is not None
    assert sorted(sum(n for cell, n in shares.items() if cell[0] == zone) for zone in range(4)) == [300, 333, 333, 334]
