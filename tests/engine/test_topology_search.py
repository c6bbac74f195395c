"""The search for domains against brute force on small trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import Node
from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet, PodFilter
from queue_manager.engine.scopes import Misfit, Places, Scope
from queue_manager.engine.topology import Placement
from queue_manager.engine.tree import FUTURE, NOW
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import SliceLayer, TopologyMode, TopologyRequest

KEYS = ("zone", "rack", "host")
ANY = PodFilter((), (), ())


@dataclass(frozen=True)
class Tree:
    """Free GPUs by (zone, rack, host)."""

    nodes: dict[tuple[str, str, str], int]

    def fleet(self, order: Sequence[int] | None = None) -> Fleet:
        fleet = Fleet(UndoLog())
        paths = list(self.nodes)
        for i in order or range(len(paths)):
            zone, rack, host = paths[i]
            labels = {"zone": zone, "rack": rack, "host": host}
            fleet.upsert(Node(host, labels, {"gpu": self.nodes[paths[i]], "pods": 100}))
        return fleet


@st.composite
def trees(draw: st.DrawFn, most: int = 5) -> Tree:
    nodes = {}
    for i in range(draw(st.integers(1, most))):
        zone = f"z{draw(st.integers(0, 1))}"
        nodes[(zone, f"{zone}r{draw(st.integers(0, 1))}", f"n{i}")] = draw(st.integers(0, 4))
    return Tree(nodes)


@st.composite
def requests(draw: st.DrawFn) -> tuple[TopologyRequest, int]:
    """A request with up to two layers of slices, and a count that they divide."""
    mode = draw(st.sampled_from(TopologyMode))
    depth = 0 if mode is TopologyMode.UNCONSTRAINED else draw(st.integers(0, 2))
    layers: list[SliceLayer] = []
    if draw(st.booleans()):
        outer = draw(st.integers(depth, 2))
        layers.append(SliceLayer(KEYS[outer], draw(st.sampled_from((1, 2, 4)))))
        if outer < 2 and draw(st.booleans()):
            layers.append(SliceLayer(KEYS[draw(st.integers(outer + 1, 2))], 2 if layers[0].size > 1 else 1))
    size = layers[0].size if layers else 1
    count = size * draw(st.integers(1, 6 // size))
    level = "" if mode is TopologyMode.UNCONSTRAINED else KEYS[depth]
    return TopologyRequest(mode, level, tuple(layers)), count


def demand(fleet: Fleet, count: int, gpus: int = 1, index: int = 0) -> Demand:
    forest = fleet.forest(KEYS, {})
    return Demand(index, "main", count, {"gpu": gpus, "pods": 1}, (0, 0), forest, ANY, fleet.mask(ANY))


def search(fleet: Fleet, request: TopologyRequest, *demands: Demand) -> Places | Misfit:
    scope = Scope(None, (Scope(None, (Scope(request, demands),)),))
    return Placement(fleet, (FUTURE,), demands).place(scope)


def assignments(tree: Tree, count: int) -> Iterator[dict[tuple[str, str, str], int]]:
    """Every way to put so many pods of one GPU on the nodes."""
    paths = list(tree.nodes)
    for counts in product(*(range(min(count, tree.nodes[path]) + 1) for path in paths)):
        if sum(counts) == count:
            yield {path: n for path, n in zip(paths, counts, strict=True) if n}


def keeps_slices(pods: dict[tuple[str, str, str], int], layers: Sequence[SliceLayer]) -> bool:
    for layer in layers:
        by_domain: Counter[tuple[str, ...]] = Counter()
        for path, n in pods.items():
            by_domain[path[: KEYS.index(layer.level) + 1]] += n
        if any(n % layer.size for n in by_domain.values()):
            return False
    return True


def level_of(pods: dict[tuple[str, str, str], int]) -> int:
    """Index of the lowest level of which one domain holds all the pods, -1 for none."""
    return max((d for d in range(3) if len({path[: d + 1] for path in pods}) == 1), default=-1)


def by_path(tree: Tree, places: dict[str, int]) -> dict[tuple[str, str, str], int]:
    return {path: places[path[2]] for path in tree.nodes if path[2] in places}


@settings(max_examples=400, deadline=None)
@given(trees(), requests())
def test_a_place_is_found_iff_there_is_one_at_the_lowest_level_that_holds_it(
    tree: Tree, wish: tuple[TopologyRequest, int]
) -> None:
    request, count = wish
    fleet = tree.fleet()
    found = search(fleet, request, demand(fleet, count))
    legal = [pods for pods in assignments(tree, count) if keeps_slices(pods, request.slices)]
    depth = KEYS.index(request.level) if request.level else -1
    if request.mode is TopologyMode.REQUIRED:
        legal = [pods for pods in legal if level_of(pods) >= depth]
    assert isinstance(found, Misfit) == (not legal)
    if not isinstance(found, Misfit):
        pods = by_path(tree, found[0])
        assert pods in legal
        assert min(level_of(pods), depth) == min(max(map(level_of, legal)), depth)


@settings(max_examples=200, deadline=None)
@given(trees(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_leader_and_workers_share_a_domain_iff_one_holds_them(tree: Tree, workers: int, gpus: int, depth: int) -> None:
    fleet = tree.fleet()
    request = TopologyRequest(TopologyMode.REQUIRED, KEYS[depth])
    found = search(fleet, request, demand(fleet, 1, 2, 0), demand(fleet, workers, gpus, 1))
    fits = False
    for leader in tree.nodes:
        left = {path: (free - (2 if path == leader else 0)) for path, free in tree.nodes.items()}
        if left[leader] >= 0:
            inside = [n // gpus for path, n in left.items() if path[: depth + 1] == leader[: depth + 1]]
            fits = fits or sum(inside) >= workers
    assert isinstance(found, Misfit) != fits


@settings(max_examples=150, deadline=None)
@given(trees(4), requests())
def test_the_order_in_which_nodes_are_told_changes_nothing(tree: Tree, wish: tuple[TopologyRequest, int]) -> None:
    request, count = wish
    results = set()
    for order in permutations(range(len(tree.nodes))):
        fleet = tree.fleet(order)
        found = search(fleet, request, demand(fleet, count))
        if isinstance(found, Misfit):
            results.add(repr((found.level, found.values, found.best)))
        else:
            results.add(repr(sorted(found[0].items())))
    assert len(results) == 1


@settings(max_examples=200, deadline=None)
@given(trees(), st.lists(st.tuples(requests(), st.integers(1, 2)), max_size=4), st.data())
def test_places_taken_and_given_back_leave_the_same_room(
    tree: Tree, wishes: list[tuple[tuple[TopologyRequest, int], int]], data: st.DataObject
) -> None:
    fleet = tree.fleet()
    forest = fleet.forest(KEYS, {})
    before = fleet.counts(forest, ANY, {"gpu": 1, "pods": 1}, NOW).tolist()
    taken: list[dict[str, dict[str, int]]] = []
    for (request, count), gpus in wishes:
        found = search(fleet, request, demand(fleet, count, gpus))
        if not isinstance(found, Misfit):
            taken.append({node: {"gpu": n * gpus, "pods": n} for node, n in found[0].items()})
            for view in (NOW, FUTURE):
                fleet.occupy(taken[-1], view)
        used: Counter[str] = Counter()
        for places in taken:
            used.update({node: amounts["gpu"] for node, amounts in places.items()})
        assert all(used[host] <= free for (_, _, host), free in tree.nodes.items())
        free = [tree.nodes[path] - used[path[2]] for path in sorted(tree.nodes)]
        assert fleet.counts(forest, ANY, {"gpu": 1, "pods": 1}, NOW).tolist() == free
    for places in data.draw(st.permutations(taken)):
        for view in (NOW, FUTURE):
            fleet.vacate(places, view)
    assert fleet.counts(forest, ANY, {"gpu": 1, "pods": 1}, NOW).tolist() == before
    assert not any(fleet.occupied)
