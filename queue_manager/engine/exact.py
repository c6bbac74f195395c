"""Every way to place several pod sets one after the other, where nodes are few: what choosing the tightest domain first
can miss (issue 5, "exact where small").

The first way in a fixed order is taken: the lowest level of the outermost bracket that leaves a way for all the rest.
The search gives up after a number of steps, so that its cost is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Ints
from queue_manager.engine.picking import Descent, shortened
from queue_manager.engine.replicas import layers_for
from queue_manager.engine.room import Gauge, Room
from queue_manager.engine.scopes import Domain, Scope, run_of
from queue_manager.engine.slices import Layers, capacity, whole
from queue_manager.engine.workload import TopologyMode, TopologyRequest

MOST_NODES = 16
"""Nodes with room for any of the pods, above which it is not tried."""
MOST_STEPS = 1_000
"""Domains for one pod set, and placements of it there, that are looked at."""


class _Task(NamedTuple):
    """A part to place inside a domain; `request` is that of the bracket around a pod set."""

    part: Scope | Demand
    within: Domain | None
    request: TopologyRequest | None


class _OutOfSteps(Exception):
    """The search has taken too long."""


class Exact:
    """One search in the room that others left. What it finds is placed there."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._steps = MOST_STEPS
        self._failed: set[tuple[object, ...]] = set()
        self._nodes: set[str] = set()

    def place(self, scope: Scope, within: Domain | None) -> bool:
        """Places all parts of a scope inside a domain; leaves nothing behind if there is no way, or none was found."""
        demands = scope.demands()
        if not self._is_small(demands, within) or not self._room.adds_up(demands, self._nodes):
            return False
        mark = len(self._room.placed)
        try:
            tasks = tuple(_Task(part, within, scope.request) for part in scope.parts)
            return self._solve(tasks, self._room.state())
        except _OutOfSteps:
            self._room.give_back(mark)
            return False

    def _is_small(self, demands: Sequence[Demand], within: Domain | None) -> bool:
        """Whether few nodes matter, and each pod set has room there by itself."""
        names = self._nodes = set()
        for demand in demands:
            first, last = run_of(demand.forest, within)
            counts = self._room.counts(demand)[first:last]
            if int(counts.sum()) < demand.count:
                return False
            names.update(demand.forest.names[first + i] for i in np.flatnonzero(counts).tolist())
            if len(names) > MOST_NODES:
                return False
        return True

    def _solve(self, tasks: tuple[_Task, ...], taken: tuple[object, ...]) -> bool:
        """Places all of `tasks` beside what the search has `taken` so far."""
        if not tasks:
            return True
        task, rest = tasks[0], tasks[1:]
        if isinstance(task.part, Scope):
            return any(self._solve((*inner, *rest), taken) for inner in self._ways(task.part, task.within))
        state = (*((id(one.part), one.within) for one in tasks), taken)
        if state in self._failed:
            return False
        if self._demand(task.part, task, rest):
            return True
        self._failed.add(state)
        return False

    def _ways(self, scope: Scope, within: Domain | None) -> Iterator[tuple[_Task, ...]]:
        """Domains for all parts of a scope that have any room, the narrowest first."""
        request, keys = scope.request, scope.demands()[0].forest.level_keys if scope.demands() else ()
        top = len(within.values) if within is not None else 0
        if request is not None and request.mode is not TopologyMode.UNCONSTRAINED:
            if request.level not in keys or any(demand.forest.level_keys != keys for demand in scope.demands()):
                return
            level = keys.index(request.level)
            required = request.mode is TopologyMode.REQUIRED
            for depth in range(level, (level if required else top) - 1, -1) if level >= top else ():
                around = within.values if within is not None else ()
                paths = (d.forest.path_of[n] for d in scope.demands() for n in self._nodes if n in d.forest.path_of)
                for values in sorted({path[: depth + 1] for path in paths if path[:top] == around}):
                    yield tuple(_Task(part, Domain(keys, values), request) for part in scope.parts)
            if required and level >= top:
                return
        yield tuple(_Task(part, within, request) for part in scope.parts)

    def _demand(self, demand: Demand, task: _Task, rest: tuple[_Task, ...]) -> bool:
        """One pod set in every way, those in few domains first; the last one in one way alone: the others would do no
        better."""
        self._step()
        layers = _layers(demand, task)
        if layers is None:
            return False
        counts, need, run = self._room.counts(demand), whole(demand.count, layers), run_of(demand.forest, task.within)
        if Gauge.of(demand, counts, layers).total(run) < need:
            return False
        mark, ruled = len(self._room.placed), self._room.ruled(demand)
        if ruled is not None and layers:
            return False  # nobody plans for both
        top = len(task.within.values) if task.within is not None else 0
        if not rest:
            last = (
                ruled.find(run, need)
                if ruled
                else Descent.of(demand.forest, counts, layers).members([run], top - 1, need)
            )
            if last is not None:
                self._room.take(demand, shortened(last, need - demand.count))
            return last is not None
        for found in _all_ways(demand, counts, layers, run, need):
            self._step()
            if ruled is not None and not ruled.allows(run, found):
                continue
            self._room.take(demand, shortened(found, need - demand.count))
            if self._solve(rest, self._room.state()):
                return True
            self._room.give_back(mark)
        return False

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _OutOfSteps


def _layers(demand: Demand, task: _Task) -> Layers | None:
    """Slices and replicas of a pod set in a domain; None if they make no sense there."""
    top = len(task.within.values) if task.within is not None else 0
    slices = task.request.slices if task.request is not None else ()
    layers = layers_for(demand, slices, 0, top - 1, top)
    return None if isinstance(layers, str) else layers


def _all_ways(
    demand: Demand, counts: Ints, layers: Layers, run: tuple[int, int], need: int
) -> Iterator[list[tuple[int, int]]]:
    """Every way to put `need` pods on the members of a range, in whole slices: whatever is begun leads to one, so that
    each costs no more than a look at the members."""
    if not layers:
        members = [member for member in range(*run) if counts[member]]
        for shares in _shares(counts[members].tolist(), need, 1):
            yield [(member, pods) for member, pods in zip(members, shares, strict=True) if pods]
        return
    (outer, *inner), level = layers, demand.forest.levels[layers[0].depth]
    low, high = (int(i) for i in np.searchsorted(level.starts, run))
    rooms = capacity(demand.forest, counts, layers)[low:high]
    able = np.flatnonzero(rooms)
    domains = list(zip(level.starts[low + able].tolist(), level.ends[low + able].tolist(), strict=True))
    for shares in _shares(rooms[able].tolist(), need, outer.size):
        taken = [(domain, pods) for domain, pods in zip(domains, shares, strict=True) if pods]
        yield from _in_each(demand, counts, tuple(inner), taken)


def _in_each(
    demand: Demand, counts: Ints, layers: Layers, taken: Sequence[tuple[tuple[int, int], int]]
) -> Iterator[list[tuple[int, int]]]:
    """Every way to put so many pods into each of some ranges."""
    if not taken:
        yield []
        return
    (run, pods), *rest = taken
    for here in _all_ways(demand, counts, layers, run, pods):
        for others in _in_each(demand, counts, layers, rest):
            yield here + others


def _shares(rooms: Sequence[int], need: int, unit: int) -> Iterator[list[int]]:
    """Every way to share out `need` over places with this room in whole units, the most to the first place first."""
    units = [room // unit for room in rooms]
    after = [0] * (len(units) + 1)
    for i in range(len(units) - 1, -1, -1):
        after[i] = after[i + 1] + units[i]
    chosen = [0] * len(units)

    def put(i: int, left: int) -> Iterator[list[int]]:
        if i == len(units):
            yield list(chosen)
            return
        for here in range(min(left, units[i]), max(0, left - after[i + 1]) - 1, -1):
            chosen[i] = here * unit
            yield from put(i + 1, left - here)

    return put(0, need // unit) if need // unit <= after[0] else iter(())
