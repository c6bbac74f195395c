"""Several pod sets in brackets, against brute force on small trees: replicas, slices, stages, leader and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet
from queue_manager.engine.scopes import Misfit, Places, Scope
from queue_manager.engine.topology import Placement
from queue_manager.engine.tree import FUTURE
from queue_manager.engine.workload import Apart, PodRules, SliceLayer, SpreadRule, TopologyMode, TopologyRequest
from tests.engine.test_topology_search import ANY, KEYS, Tree, keeps_slices, level_of, trees

Path = tuple[str, str, str]
Pods = dict[Path, int]
STAGES = ((0, 0), (0, 1), (1, 1))


@dataclass(frozen=True)
class Part:
    """One pod set."""

    count: int
    gpus: int
    stages: tuple[int, int] = (0, 0)
    request: TopologyRequest | None = None
    replica: int = 0
    exclusive: str = ""
    distinct: str = ""

    def demand(self, fleet: Fleet, index: int) -> Demand:
        requests = {"gpu": self.gpus, "pods": 1}
        demand = Demand(
            index, f"p{index}", self.count, requests, self.stages, fleet.forest(KEYS, {}), ANY, fleet.mask(ANY)
        )
        return replace(
            demand,
            replica_size=self.replica,
            exclusive=self.exclusive,
            distinct=Apart(self.distinct) if self.distinct else None,
        )


@dataclass(frozen=True)
class Job:
    """Pod sets, each in its own bracket or (`shared`) the first two in one, inside a bracket of the whole job."""

    parts: tuple[Part, ...]
    request: TopologyRequest | None = None
    shared: TopologyRequest | None = None

    def scope(self, fleet: Fleet) -> Scope:
        demands = [part.demand(fleet, index) for index, part in enumerate(self.parts)]
        inner: list[Scope] = []
        if self.shared is not None:
            inner, demands = [Scope(self.shared, tuple(demands[:2]))], demands[2:]
        inner += [Scope(self.parts[demand.index].request, (demand,)) for demand in demands]
        return Scope(self.request, (Scope(None, tuple(inner)),))


levels = st.sampled_from(KEYS)
wishes = st.one_of(
    st.none(), st.builds(TopologyRequest, st.sampled_from((TopologyMode.REQUIRED, TopologyMode.PREFERRED)), levels)
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    count = draw(st.integers(1, 4))
    part = Part(count, draw(st.integers(1, 3)), draw(st.sampled_from(STAGES)), draw(wishes))
    kind = draw(st.sampled_from(("plain", "plain", "slices", "exclusive", "distinct", "both")))
    if kind == "slices" and count % 2 == 0:
        request = part.request or TopologyRequest(TopologyMode.UNCONSTRAINED)
        least = KEYS.index(request.level) if request.level else 0
        layer = SliceLayer(KEYS[draw(st.integers(least, 2))], 2)
        return replace(part, request=replace(request, slices=(layer,)))
    if kind in ("exclusive", "distinct", "both"):
        size = draw(st.sampled_from([n for n in (1, 2, 3, 4) if count % n == 0]))
        part = replace(part, replica=size)
        if kind != "distinct":
            part = replace(part, exclusive=draw(levels))
        if kind != "exclusive":
            part = replace(part, distinct=draw(levels))
    return part


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    found = draw(st.lists(parts(), min_size=2, max_size=3))
    shared = None
    if draw(st.booleans()):
        shared = TopologyRequest(TopologyMode.REQUIRED, draw(levels))
        found[:2] = [replace(part, request=None) for part in found[:2]]
    return Job(tuple(found), draw(wishes), shared)


def ways(tree: Tree, part: Part) -> Iterator[Pods]:
    """Every place that one pod set may have for itself."""
    paths = list(tree.nodes)
    ranges = (range(min(part.count, tree.nodes[path] // part.gpus) + 1) for path in paths)
    for counts in product(*ranges):
        pods = {path: n for path, n in zip(paths, counts, strict=True) if n}
        if sum(counts) == part.count and stands(pods, part):
            yield pods


def domains(pods: Pods, level: str) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for path, n in pods.items():
        found[path[: KEYS.index(level) + 1]] += n
    return found


def stands(pods: Pods, part: Part) -> bool:
    request = part.request
    if request is not None:
        if request.mode is TopologyMode.REQUIRED and len(domains(pods, request.level)) > 1:
            return False
        if not keeps_slices(pods, request.slices):
            return False
    own = [level for level in (part.exclusive, part.distinct) if level]
    return all(set(domains(pods, level).values()) == {part.replica or part.count} for level in own)


def lie_in_each_other(one: Pods, other: Pods, level: str, others: str) -> bool:
    pairs = product(domains(one, level), domains(other, others))
    return any(a[: len(b)] == b[: len(a)] for a, b in pairs)


def go_together(tree: Tree, job: Job, places: Sequence[Pods]) -> bool:
    for stage in (0, 1):
        used: Counter[Path] = Counter()
        for part, pods in zip(job.parts, places, strict=True):
            if part.stages[0] <= stage <= part.stages[1]:
                used.update({path: n * part.gpus for path, n in pods.items()})
        if any(used[path] > free for path, free in tree.nodes.items()):
            return False
    for i, (one, here) in enumerate(zip(job.parts, places, strict=True)):
        for other, there in list(zip(job.parts, places, strict=True))[i + 1 :]:
            if one.stages[0] > other.stages[1] or other.stages[0] > one.stages[1]:
                continue
            if one.exclusive and other.exclusive and lie_in_each_other(here, there, one.exclusive, other.exclusive):
                return False
            if one.distinct and other.distinct and lie_in_each_other(here, there, one.distinct, other.distinct):
                return False
    if (
        job.shared is not None
        and len({*domains(places[0], job.shared.level), *domains(places[1], job.shared.level)}) > 1
    ):
        return False
    if job.request is not None and job.request.mode is TopologyMode.REQUIRED:
        return len(set().union(*(domains(pods, job.request.level) for pods in places))) == 1
    return True


def legal(tree: Tree, job: Job) -> Iterator[list[Pods]]:
    alone = [list(ways(tree, part)) for part in job.parts]
    for places in product(*alone):
        if go_together(tree, job, places):
            yield list(places)


def found_by(fleet: Fleet, job: Job) -> Places | Misfit:
    scope = job.scope(fleet)
    return Placement(fleet, (FUTURE,), scope.demands()).place(scope)


@st.composite
def tight_trees(draw: st.DrawFn, job: Job) -> Tree:
    """Nodes that have hardly more than what the pods take in one way to place each pod set by itself, so that it
    matters where they go."""
    nodes = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=5))
    paths = [(f"z{zone}", f"z{zone}r{rack}", f"n{i}") for i, (zone, rack) in enumerate(nodes)]
    used: dict[Path, list[int]] = {path: [0, 0] for path in paths}
    for part in job.parts:
        possible = list(ways(Tree(dict.fromkeys(paths, 99)), part)) or [{paths[0]: part.count}]
        for path, n in draw(st.sampled_from(possible)).items():
            for stage in range(part.stages[0], part.stages[1] + 1):
                used[path][stage] += part.gpus * n
    return Tree({path: max(stages) + draw(st.integers(0, 9)) // 9 for path, stages in used.items()})


@settings(max_examples=300, deadline=None)
@given(jobs().flatmap(lambda job: st.tuples(st.one_of(tight_trees(job), trees(5)), st.just(job))))
def test_pod_sets_find_places_iff_there_are_any_at_the_lowest_level_of_the_job(case: tuple[Tree, Job]) -> None:
    tree, job = case
    found = found_by(tree.fleet(), job)
    all_legal = list(legal(tree, job))
    assert isinstance(found, Misfit) == (not all_legal), found
    if isinstance(found, Misfit):
        return
    places = [
        {path: found[index][path[2]] for path in tree.nodes if path[2] in found[index]}
        for index in range(len(job.parts))
    ]
    assert places in all_legal
    if job.request is not None:
        depth = KEYS.index(job.request.level)
        together = [level_of(dict.fromkeys((path for pods in way for path in pods), 1)) for way in all_legal]
        here = level_of(dict.fromkeys((path for pods in places for path in pods), 1))
        assert min(here, depth) == min(max(together), depth)


def test_pods_of_different_sizes_fill_nodes_that_the_tightest_first_would_break_up() -> None:
    """7 is 3 + 2 + 2 and 5 is 3 + 2: neither pod set can be placed without a look at the other."""
    tree = Tree({("z0", "z0r0", "n0"): 7, ("z0", "z0r0", "n1"): 5, ("z1", "z1r0", "n2"): 4})
    job = Job((Part(2, 3), Part(3, 2)), shared=TopologyRequest(TopologyMode.REQUIRED, "rack"))
    assert found_by(tree.fleet(), job) == {0: {"n0": 1, "n1": 1}, 1: {"n0": 2, "n1": 1}}


def test_a_replica_that_needs_a_domain_of_its_own_gets_the_one_that_others_can_spare() -> None:
    """The zone for the last one alone is the only one with room for it, and the first two would do with the other."""
    tree = Tree({("z0", "z0r0", "n2"): 3, ("z0", "z0r1", "n0"): 2, ("z1", "z1r0", "n1"): 4})
    job = Job((Part(1, 2, replica=1, exclusive="host"), Part(1, 3, exclusive="host"), Part(1, 3, exclusive="zone")))
    assert found_by(tree.fleet(), job) == {0: {"n0": 1}, 1: {"n2": 1}, 2: {"n1": 1}}


def test_what_can_not_be_planned_together_is_not_placed_by_trying_every_way() -> None:
    tree = Tree({("z0", "z0r0", "n0"): 2, ("z0", "z0r1", "n1"): 2})
    fleet = tree.fleet()
    apart = replace(Part(2, 1, replica=1, exclusive="rack").demand(fleet, 0), rules=PodRules((SpreadRule("host", 1),)))
    demands = (apart, Part(1, 1).demand(fleet, 1))
    found = Placement(fleet, (FUTURE,), demands).place(Scope(None, (Scope(None, demands),)))
    assert isinstance(found, Misfit)
    assert "can't be planned beside" in found.note


def test_a_preferred_level_is_the_lowest_that_holds_all_pod_sets_in_any_way() -> None:
    tree = Tree({("z0", "z0r0", "n0"): 7, ("z0", "z0r0", "n1"): 5, ("z1", "z1r0", "n2"): 9, ("z1", "z1r1", "n3"): 9})
    job = Job((Part(2, 3), Part(3, 2)), TopologyRequest(TopologyMode.PREFERRED, "rack"))
    found = found_by(tree.fleet(), job)
    assert found == {0: {"n0": 1, "n1": 1}, 1: {"n0": 2, "n1": 1}}


def full(hosts: int) -> tuple[Fleet, Tree]:
    tree = Tree({("z0", "z0r0", f"n{i:02}"): 7 for i in range(hosts)})
    return tree.fleet(), tree


PAIRS = TopologyRequest(TopologyMode.UNCONSTRAINED, slices=(SliceLayer("host", 2),))
RACK = TopologyRequest(TopologyMode.REQUIRED, "rack")


def test_more_than_all_nodes_have_together_is_not_placed_by_trying_every_way() -> None:
    """Each fits alone, both do not; the ways of the first are more than could ever be looked at."""
    fleet, _ = full(16)
    assert isinstance(found_by(fleet, Job((Part(86, 1, request=PAIRS), Part(32, 1)), RACK)), Misfit)


def test_the_search_ends_where_whole_slices_waste_what_the_sums_would_allow() -> None:
    """16 nodes of 7 have room for 56 pairs by number, and for 48 in pairs."""
    fleet, _ = full(16)
    assert isinstance(found_by(fleet, Job((Part(48, 1, request=PAIRS), Part(64, 1, request=PAIRS)), RACK)), Misfit)


def test_slices_find_places_beside_pods_that_take_what_they_leave() -> None:
    fleet, _ = full(16)
    found = found_by(fleet, Job((Part(84, 1, request=PAIRS), Part(28, 1)), RACK))
    assert not isinstance(found, Misfit)
    assert all(pods % 2 == 0 for pods in found[0].values())
    assert sum(found[0].values()) + sum(found[1].values()) == 16 * 7


def test_domains_of_slices_without_room_are_no_part_of_the_search() -> None:
    """As above, where 3 racks of 2,000 have any room."""
    nodes = {("z0", f"z0r{i:04}", f"n{i:04}"): 0 for i in range(2_000)}
    nodes |= {("z0", f"z0r{i:04}", f"n{i:04}"): room for i, room in ((7, 7), (1_400, 5), (1_900, 4))}
    in_one_zone = TopologyRequest(TopologyMode.REQUIRED, "zone", (SliceLayer("rack", 1),))
    found = found_by(Tree(nodes).fleet(), Job((Part(2, 3), Part(5, 2)), shared=in_one_zone))
    assert found == {0: {"n0007": 1, "n1400": 1}, 1: {"n0007": 2, "n1400": 1, "n1900": 2}}
