"""Every way to place several pod sets one after the other, where nodes are few: what choosing the tightest domain first
can miss (issue 5, "exact where small").

The first way in a fixed order is taken: the lowest level of the outermost bracket that leaves a way for all the rest.
The search gives up after a number of steps, so that its cost is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from queue_manager.engine.demand import Demand, Placed
from queue_manager.engine.fleet import Ints
from queue_manager.engine.picking import Descent, shortened
from queue_manager.engine.replicas import layers_for
from queue_manager.engine.room import Gauge, Room
from queue_manager.engine.scopes import Domain, Scope, run_of
from queue_manager.engine.slices import Layers, whole
from queue_manager.engine.workload import TopologyMode, TopologyRequest

MOST_NODES = 16
"""Nodes with room for any of the pods, above which it is not tried."""
MOST_STEPS = 1_000
"""Placements of one pod set that are looked at."""


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

    def place(self, scope: Scope, within: Domain | None) -> bool:
        """Places all parts of a scope inside a domain; leaves nothing behind if there is no way, or none was found."""
        if not self._is_small(scope.demands(), within):
            return False
        mark = len(self._room.placed)
        try:
            return self._solve(tuple(_Task(part, within, scope.request) for part in scope.parts))
        except _OutOfSteps:
            self._room.give_back(mark)
            return False

    def _is_small(self, demands: Sequence[Demand], within: Domain | None) -> bool:
        """Whether few nodes matter, and each pod set has room there by itself."""
        names: set[str] = set()
        for demand in demands:
            first, last = run_of(demand.forest, within)
            counts = self._room.counts(demand)[first:last]
            if int(counts.sum()) < demand.count:
                return False
            names.update(demand.forest.names[first + i] for i in np.flatnonzero(counts).tolist())
            if len(names) > MOST_NODES:
                return False
        return True

    def _solve(self, tasks: tuple[_Task, ...]) -> bool:
        if not tasks:
            return True
        task, rest = tasks[0], tasks[1:]
        if isinstance(task.part, Scope):
            return any(self._solve((*inner, *rest)) for inner in _ways(task.part, task.within))
        state = (*((id(one.part), one.within) for one in tasks), self._room.state())
        if state in self._failed:
            return False
        if self._demand(task.part, task, rest):
            return True
        self._failed.add(state)
        return False

    def _demand(self, demand: Demand, task: _Task, rest: tuple[_Task, ...]) -> bool:
        """One pod set in every way, those in few domains first; the last one in one way alone: the others would do no
        better."""
        layers = _layers(demand, task)
        if layers is None:
            return False
        if demand.count == 0:
            return self._solve(rest)
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
                self._take(demand, last, need)
            return last is not None
        for found in _all_ways(demand, counts, layers, run, need):
            self._steps -= 1
            if self._steps < 0:
                raise _OutOfSteps
            if ruled is not None and not ruled.allows(run, found):
                continue
            self._take(demand, found, need)
            if self._solve(rest):
                return True
            self._room.give_back(mark)
        return False

    def _take(self, demand: Demand, found: list[tuple[int, int]], need: int) -> None:
        kept = shortened(found, need - demand.count)
        members, counts = (np.array(column, dtype=np.int64) for column in zip(*kept, strict=True))
        self._room.placed.append(Placed(demand, members, counts))


def _ways(scope: Scope, within: Domain | None) -> Iterator[tuple[_Task, ...]]:
    """Domains for all parts of a scope, the narrowest first."""
    request, keys = scope.request, scope.demands()[0].forest.level_keys if scope.demands() else ()
    top = len(within.values) if within is not None else 0
    if request is not None and request.mode is not TopologyMode.UNCONSTRAINED:
        if request.level not in keys or any(demand.forest.level_keys != keys for demand in scope.demands()):
            return
        level = keys.index(request.level)
        required = request.mode is TopologyMode.REQUIRED
        for depth in range(level, (level if required else top) - 1, -1) if level >= top else ():
            around = within.values if within is not None else ()
            paths = {p for d in scope.demands() for p in d.forest.levels[depth].values if p[:top] == around}
            for values in sorted(paths):
                yield tuple(_Task(part, Domain(keys, values), request) for part in scope.parts)
        if required and level >= top:
            return
    yield tuple(_Task(part, within, request) for part in scope.parts)


def _layers(demand: Demand, task: _Task) -> Layers | None:
    """Slices and replicas of a pod set in a domain; None if they make no sense there."""
    top = len(task.within.values) if task.within is not None else 0
    slices = task.request.slices if task.request is not None else ()
    layers = layers_for(demand, slices, 0, top - 1, top)
    return None if isinstance(layers, str) else layers


def _all_ways(
    demand: Demand, counts: Ints, layers: Layers, run: tuple[int, int], need: int
) -> Iterator[list[tuple[int, int]]]:
    """Every way to put `need` pods on the members of a range, in whole slices."""
    members = [i for i in range(*run) if counts[i]]
    left_after = [0] * (len(members) + 1)
    for i in range(len(members) - 1, -1, -1):
        left_after[i] = left_after[i + 1] + int(counts[members[i]])
    chosen: list[tuple[int, int]] = []

    def put(i: int, left: int) -> Iterator[list[tuple[int, int]]]:
        if left == 0:
            if _whole_slices(demand, chosen, layers):
                yield list(chosen)
            return
        if left > left_after[i]:
            return
        for here in range(min(left, int(counts[members[i]])), -1, -1):
            if here:
                chosen.append((members[i], here))
            yield from put(i + 1, left - here)
            if here:
                chosen.pop()

    return put(0, need)


def _whole_slices(demand: Demand, chosen: list[tuple[int, int]], layers: Layers) -> bool:
    for layer in layers:
        level, sums = demand.forest.levels[layer.depth], dict[int, int]()
        for member, count in chosen:
            domain = int(np.searchsorted(level.starts, member, side="right"))
            sums[domain] = sums.get(domain, 0) + count
        if any(n % layer.size or (layer.single and n > layer.size) for n in sums.values()):
            return False
    return True
