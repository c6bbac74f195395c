"""Domains exactly as Kueue chooses them (kueue.md 2.11), for `fragmentation_aware` off.

Best fit for a required or preferred level, least free capacity without one; leaders go into a domain whose workers
still have room; slices stay whole at their level. Where nodes are not the lowest level, a domain is one big node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Amounts, Fleet, Forest, Ints, PodFilter
from queue_manager.engine.picking import shortened
from queue_manager.engine.scopes import Misfit, Places, Scope, no_level
from queue_manager.engine.slices import layers_of
from queue_manager.engine.tree import EMPTY
from queue_manager.engine.workload import SliceLayer, Toleration, TopologyMode, TopologyRequest

_ANY_POD = PodFilter((), (), (Toleration(operator="Exists"),))


@dataclass(eq=False, slots=True)
class _Room:
    """A domain in one search: first what fits in it, later what is put there. `led` counts beside a leader."""

    order: int
    values: tuple[str, ...]
    children: list[_Room] = field(default_factory=list)
    pods: int = 0
    slices: int = 0
    led_pods: int = 0
    led_slices: int = 0
    leaders: int = 0


@dataclass(frozen=True, slots=True)
class _Ask:
    """What one search looks for: `count` pods in slices of `size`, whole at `slice_depth`; `inner` are sizes below."""

    workers: Demand
    leader: Demand | None
    depth: int
    slice_depth: int
    size: int
    inner: dict[int, int]
    mode: TopologyMode

    @property
    def count(self) -> int:
        """Pods in whole slices. Kueue leaves out those of a last short slice; here its domain holds a whole one."""
        return -(-self.workers.count // self.size) * self.size

    @property
    def leaders(self) -> int:
        """Leaders to place: at most one."""
        return 0 if self.leader is None else 1

    @property
    def least(self) -> bool:
        """Whether the fullest domains come first."""
        return self.mode is TopologyMode.UNCONSTRAINED


class KueueSearch:
    """Places the units of a workload one after another on what is free in all of some views."""

    def __init__(self, fleet: Fleet, views: Sequence[int]) -> None:
        self._fleet = fleet
        self._free: Ints = np.minimum.reduce([fleet.free(view) for view in views])
        self._assumed: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, int]] = {}

    def place(self, scope: Scope) -> Places | Misfit:
        """Nodes for every demand; where a domain has many nodes its first one stands for all."""
        places: Places = {demand.index: {} for demand in scope.demands()}
        units = sorted(_units(scope), key=lambda unit: unit.demands()[0].flavor)
        for unit in units:
            ask = _ask(unit)
            if isinstance(ask, Misfit):
                return ask
            misfit = self._unit(ask, places)
            if misfit is not None:
                return misfit
        return places

    def holds(self, scope: Scope, places: Places) -> bool:
        """Whether there is room for pods where they were placed."""
        wanted: dict[str, dict[str, int]] = {}
        forests: dict[str, Demand] = {}
        for demand in scope.demands():
            for node, count in places.get(demand.index, {}).items():
                forests[node] = demand
                sums = wanted.setdefault(node, {})
                for resource, amount in demand.requests.items():
                    sums[resource] = sums.get(resource, 0) + amount * count
        for node, sums in wanted.items():
            demand = forests[node]
            path = demand.forest.path_of.get(node)
            if path is None:
                return False
            order = demand.forest.levels[-1].index[path]
            free, allowed = self._leaf_room(demand, sums)
            if not allowed[order] or any(free[resource][order] < amount for resource, amount in sums.items()):
                return False
        return True

    def _unit(self, ask: _Ask, places: Places) -> Misfit | None:
        forest = ask.workers.forest
        levels = _tree(forest)
        if not levels or not levels[ask.depth]:
            return Misfit(ask.workers, forest.level_keys[ask.depth], (), 0, ask.workers.count, "no node has its levels")
        self._fill(ask, levels)
        found = self._level(ask, levels, ask.depth)
        if isinstance(found, Misfit):
            return found
        depth, rooms = found
        leaves = self._descend(ask, depth, rooms)
        if ask.leader is not None:
            self._record(ask.leader, [(room, room.leaders) for room in leaves], places)
        full = [(room.order, room.pods) for room in leaves if room.pods]
        pods = dict(shortened(full, ask.count - ask.workers.count))
        self._record(ask.workers, [(room, pods.get(room.order, 0)) for room in leaves], places)
        return None

    def _record(self, demand: Demand, found: Sequence[tuple[_Room, int]], places: Places) -> None:
        forest = demand.forest
        level = forest.levels[-1]
        for room, count in found:
            if count:
                name = forest.names[int(level.starts[room.order])]
                places[demand.index][name] = places[demand.index].get(name, 0) + count
                assumed = self._assumed.setdefault((forest.level_keys, room.values), {})
                for resource, amount in demand.requests.items():
                    assumed[resource] = assumed.get(resource, 0) + amount * count

    # ---- what fits

    def _fill(self, ask: _Ask, levels: list[list[_Room]]) -> None:
        """Pods, slices and leaders that fit in each domain, from the leaves up."""
        leaves = levels[-1]
        leader = None if ask.leader is None else dict(ask.leader.requests)
        free, allowed = self._leaf_room(ask.workers, {*ask.workers.requests, *(leader or ())})
        for room in leaves:
            here = {resource: int(amounts[room.order]) for resource, amounts in free.items()}
            for resource, amount in self._assumed.get((ask.workers.forest.level_keys, room.values), {}).items():
                here[resource] = here.get(resource, 0) - amount
            if not allowed[room.order]:
                continue
            room.pods = _times(ask.workers.requests, here)
            if leader is not None and _times(leader, here):
                room.leaders = 1
                here = {resource: amount - leader.get(resource, 0) for resource, amount in here.items()}
            room.led_pods = _times(ask.workers.requests, here)
        for depth in range(len(levels) - 1, -1, -1):
            for room in levels[depth]:
                if room.children:
                    _sum_up(room, ask.inner.get(depth + 1, 1), ask.leaders > 0)
                if depth == ask.slice_depth:
                    room.slices, room.led_slices = room.pods // ask.size, room.led_pods // ask.size

    def _leaf_room(self, demand: Demand, names: Iterable[str]) -> tuple[dict[str, Ints], list[bool]]:
        """Free amounts by resource and domain of the lowest level, and which domains the pods may use at all.

        Kueue looks at taints, selectors and affinity only where the lowest level is the node.
        """
        forest = demand.forest
        starts = forest.levels[-1].starts
        by_node = forest.level_keys[-1] == HOSTNAME
        mask = demand.mask if by_node else self._fleet.mask(_ANY_POD)
        usable = mask[forest.rows]
        capacity = self._fleet.free(EMPTY)
        free: dict[str, Ints] = {}
        for resource in sorted(names):
            column = self._fleet.column(resource)
            if column is not None:
                whole = capacity[forest.rows, column]
                used = whole - self._free[forest.rows, column]
                free[resource] = np.add.reduceat(np.where(usable, whole, 0) - used, starts)
            else:
                free[resource] = np.zeros(len(starts), dtype=np.int64)
        return free, np.logical_or.reduceat(usable, starts).tolist()

    # ---- which domains

    def _level(self, ask: _Ask, levels: list[list[_Room]], depth: int) -> tuple[int, list[_Room]] | Misfit:
        """The level at which everything fits, and the domains there."""
        need = ask.count // ask.size
        ranked = sorted(levels[depth], key=lambda room: _led_rank(room, ask.least))
        fitting = [room for room in ranked if room.led_slices >= need and room.leaders >= ask.leaders]
        if fitting:
            return depth, [fitting[0] if ask.least else min(fitting, key=lambda room: room.led_slices)]
        if ask.mode is TopologyMode.REQUIRED:
            return _misfit(ask, depth, ranked)
        if depth > 0 and not ask.least:
            return self._level(ask, levels, depth - 1)
        return self._several(ask, depth, ranked, need)

    def _several(self, ask: _Ask, depth: int, ranked: list[_Room], need: int) -> tuple[int, list[_Room]] | Misfit:
        """As many domains as it takes, the leader's first."""
        best = ranked[0] if not ask.least else ranked[-1]
        ranked = _leader_first(ranked, ask.count, ask.leaders, ask.size, True)
        chosen: list[_Room] = []
        leaders = ask.leaders
        if leaders:
            if not ranked[0].leaders:
                return _misfit(ask, depth, [best])
            first = ranked[0]
            if not ask.least and first.led_slices >= need:
                first = _tightest(ranked, need, leaders, lambda room: room.led_slices)
            chosen.append(first)
            need -= first.led_slices
            ranked = sorted(ranked[1:], key=lambda room: _rank(room, ask.least))
        else:
            ranked = sorted(ranked, key=lambda room: _rank(room, ask.least))
        total = need
        for i, room in enumerate(ranked):
            if need <= 0:
                break
            if not ask.least and room.slices >= need:
                room = _tightest(ranked[i:], need, 0, lambda one: one.slices)
            chosen.append(room)
            need -= room.slices
        if need > 0:
            fits = (total - need) * ask.size
            return Misfit(ask.workers, "", (), fits, ask.workers.count)
        return depth, chosen

    def _descend(self, ask: _Ask, depth: int, rooms: list[_Room]) -> list[_Room]:
        """From the chosen domains down to leaves, in as few domains as can be."""
        last = len(ask.workers.forest.level_keys) - 1
        rooms = _take(rooms, ask.count, ask.leaders, ask.size, ask.least, True)
        while depth < min(last, ask.slice_depth):
            lower = sorted((c for room in rooms for c in room.children), key=lambda room: _rank(room, ask.least))
            rooms = _take(lower, ask.count, ask.leaders, ask.size, ask.least, True)
            depth += 1
        while depth < last:
            size = ask.inner.get(depth + 1, 1)
            found: list[_Room] = []
            for room in rooms:
                lower = sorted(room.children, key=lambda one: _rank(one, ask.least))
                if size > 1:
                    for child in lower:
                        child.slices, child.led_slices = child.pods // size, child.led_pods // size
                found += _take(lower, room.pods, room.leaders, size, ask.least, size > 1)
            rooms = found
            depth += 1
        return rooms


def _units(scope: Scope) -> list[Scope]:
    """The innermost scopes: pod sets of one group, or a single one."""
    if any(isinstance(part, Demand) for part in scope.parts):
        return [scope]
    return [unit for part in scope.parts if isinstance(part, Scope) for unit in _units(part)]


def _tree(forest: Forest) -> list[list[_Room]]:
    """Domains by level, in the order of their values, with their children."""
    levels = [[_Room(order, values) for order, values in enumerate(level.values)] for level in forest.levels]
    for depth in range(len(levels) - 1):
        edges = np.searchsorted(forest.levels[depth + 1].starts, forest.levels[depth].starts).tolist()
        for room, first, end in zip(levels[depth], edges, [*edges[1:], len(levels[depth + 1])], strict=True):
            room.children = levels[depth + 1][first:end]
    return levels


def _ask(unit: Scope) -> _Ask | Misfit:
    """Levels and sizes of a request, checked. Of two pod sets the smaller one is the leader."""
    demands = unit.demands()
    leader, workers = None, demands[0]
    if len(demands) > 1:
        leader = demands[1]
        if leader.count > workers.count:
            leader, workers = workers, leader
    request = unit.request or TopologyRequest(TopologyMode.UNCONSTRAINED)
    keys = workers.forest.level_keys
    if request.level and request.level not in keys:
        return no_level(workers, request.level)
    widest = 0 if request.slices else len(keys) - 1
    depth = keys.index(request.level) if request.level else widest
    layers = layers_of(keys, request.slices or (SliceLayer(keys[-1], 1),), depth)
    if isinstance(layers, str):
        return Misfit(workers, request.level, (), 0, workers.count, layers)
    inner: dict[int, int] = {}
    for outer, layer in pairwise(layers):
        inner.update(dict.fromkeys(range(outer.depth + 1, layer.depth + 1), layer.size))
    return _Ask(workers, leader, depth, layers[0].depth, layers[0].size, inner, request.mode)


def _times(requests: Amounts, free: Amounts) -> int:
    """How many pods with these requests fit."""
    return max(0, min((free.get(r, 0) // amount for r, amount in requests.items()), default=0))


def _sum_up(room: _Room, size: int, leader: bool) -> None:
    """What fits in a domain from what fits in its children, which take pods in multiples of `size`."""
    pods = slices = 0
    lost: list[tuple[int, int]] = []
    for child in room.children:
        whole, led = child.pods // size * size, child.led_pods // size * size
        pods += whole
        slices += child.slices
        if not leader or child.leaders:
            lost.append((whole - led, child.slices - child.led_slices))
    room.pods, room.slices = pods, slices
    room.led_pods = pods - min(one for one, _ in lost) if lost else 0
    room.led_slices = slices - min(one for _, one in lost) if lost else 0
    room.leaders = max((child.leaders for child in room.children), default=0)


def _rank(room: _Room, least: bool) -> tuple[int, int, int]:
    return (room.slices if least else -room.slices, room.pods, room.order)


def _led_rank(room: _Room, least: bool) -> tuple[int, int, int, int]:
    return (-room.leaders, room.led_slices if least else -room.led_slices, room.led_pods, room.order)


def _tightest(rooms: Sequence[_Room], need: int, leaders: int, size: Callable[[_Room], int]) -> _Room:
    """The first domain with the least room that is enough; the first of all if none is."""
    fitting = [room for room in rooms if room.leaders >= leaders and size(room) >= need]
    return min(fitting, key=size, default=rooms[0])


def _leader_first(rooms: list[_Room], count: int, leaders: int, size: int, slices: bool) -> list[_Room]:
    """Puts a domain in front that can have the leader without taking room that the workers need."""
    if not leaders or len(rooms) < 2:
        return rooms
    spare = sum(room.slices if slices else room.pods for room in rooms) - (count // size if slices else count)
    for i, room in enumerate(rooms):
        taken = room.slices - room.led_slices if slices else room.pods - room.led_pods
        if room.leaders >= leaders and taken <= spare:
            return [room, *rooms[:i], *rooms[i + 1 :]]
    return rooms


def _take(rooms: list[_Room], count: int, leaders: int, size: int, least: bool, slices: bool) -> list[_Room]:
    """Puts `count` pods into the first domains that hold them, whole slices each; the last domain is the tightest."""
    rooms = _leader_first(rooms, count, leaders, size, slices)
    need = count // size if slices else count
    unit = size if slices else 1
    chosen: list[_Room] = []
    for i, room in enumerate(rooms):
        led = leaders > 0

        def size_of(one: _Room, led: bool = led) -> int:
            if slices:
                return one.led_slices if led else one.slices
            return one.led_pods if led else one.pods

        if not least and size_of(room) >= need and room.leaders >= leaders:
            room = _tightest(rooms[i:], need, leaders, size_of)
        here = min(size_of(room), need)
        chosen.append(room)
        done = size_of(room) >= need and room.leaders >= leaders
        room.leaders = min(room.leaders, leaders)
        room.pods, room.slices = here * unit, here
        leaders -= room.leaders
        need -= here
        if done:
            break
    return chosen


def _misfit(ask: _Ask, depth: int, ranked: Iterable[_Room]) -> Misfit:
    """The domain of a level in which most fits."""
    best = max(ranked, key=lambda room: (room.slices, room.pods, -room.order))
    fits = min(best.slices * ask.size, ask.workers.count)
    return Misfit(ask.workers, ask.workers.forest.level_keys[depth], best.values, fits, ask.workers.count)
