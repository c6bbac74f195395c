"""Room for the pods of one search: what is free on each node less what the search has placed so far."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queue_manager.engine.ask import together
from queue_manager.engine.demand import Demand, Placed
from queue_manager.engine.fleet import Fleet, Forest, Ints
from queue_manager.engine.pod_rules import Ruled, counted, one_each
from queue_manager.engine.replicas import Range, closed, placed_ranges, standing_ranges
from queue_manager.engine.slices import Layers, capacity


@dataclass(slots=True)
class Room:
    """Pod sets that never run at the same time may use the same room: what is placed counts by stage. Nodes `without`
    have none."""

    fleet: Fleet
    views: Sequence[int]
    starts: Sequence[int]
    without: frozenset[str] = frozenset()
    placed: list[Placed] = field(default_factory=list)
    _used: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    _counted: int = 0
    _standing: dict[Demand, list[Range]] = field(default_factory=dict)

    def counts(self, demand: Demand) -> Ints:
        """How many pods fit on each member of the demand's forest and may be there together. Not to be changed by the
        caller."""
        counts = self.free(demand)
        if demand.rules.apart:
            counts = one_each(demand.forest, self.fleet.nodes, counts, demand.rules.apart)
        return counts

    def ruled(self, demand: Demand) -> Ruled | None:
        """The places that the pods may share by the rules of their template, None where these say no more than
        `counts`."""
        if not demand.rules.spread and not demand.rules.together:
            return None
        mask = counted(self.fleet, demand.forest, demand.pods, demand.rules)
        return Ruled(demand.forest, self.fleet.nodes, mask, demand.rules, self.counts(demand))

    def free(self, demand: Demand) -> Ints:
        """How many pods fit on each member of the demand's forest. Not to be changed by the caller."""
        counts = self.fleet.counts(demand.forest, demand.pods, demand.requests, self.views[0])
        for view in self.views[1:]:
            counts = np.minimum(counts, self.fleet.counts(demand.forest, demand.pods, demand.requests, view))
        if self.without:
            counts = counts.copy()
            counts[[member for name in self.without if (member := demand.forest.member_of.get(name)) is not None]] = 0
        counts = self._fitting(demand, counts)
        if demand.exclusive or demand.distinct is not None:
            counts = closed(counts, self._taken(demand))
        return counts

    def _taken(self, demand: Demand) -> list[Range]:
        """What other replicas have for themselves. Those that stand do not change during a search."""
        standing = self._standing.get(demand)
        if standing is None:
            standing = self._standing[demand] = standing_ranges(self.fleet, self.views, demand)
        return [*standing, *placed_ranges(self.fleet, demand, self.placed)]

    def _fitting(self, demand: Demand, counts: Ints) -> Ints:
        """What still fits beside the pods that this search has placed."""
        if not self.placed:
            return counts
        self._count()
        counts = counts.copy()
        running = self._running(demand)
        for name, used in self._used.items():
            member = demand.forest.member_of.get(name)
            if member is not None and counts[member]:
                counts[member] = self._left(name, [used[i] for i in running], demand.requests)
        return counts

    def _count(self) -> None:
        """Counts by node what was placed since the last time: the last pod set of a search never needs it."""
        for placed in self.placed[self._counted :]:
            self._shift(placed, 1)
        self._counted = len(self.placed)

    def _running(self, demand: Demand) -> list[int]:
        return [i for i, start in enumerate(self.starts) if together(demand.stages, (start, start))]

    def _left(self, name: str, used: list[dict[str, int]], requests: Mapping[str, int]) -> int:
        """How many pods fit on a node beside what this search put there."""
        left: int | None = None
        for view in self.views:
            free = self.fleet.free_on(self.fleet.nodes[name], view)
            for resource, amount in requests.items():
                most = max((stage.get(resource, 0) for stage in used), default=0)
                here = (free(resource) - most) // amount
                left = here if left is None else min(left, here)
        return max(0, left or 0)

    def take(self, demand: Demand, found: Sequence[tuple[int, int]]) -> None:
        """Places pods on members of the demand's forest."""
        members, counts = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
        self.placed.append(Placed(demand, members, counts))

    def adds_up(self, demands: Sequence[Demand], names: Collection[str]) -> bool:
        """Whether these nodes have as much left, all of them together, as all the pods ask for that run at a time."""
        self._count()
        for i in range(len(self.starts)):
            wanted: dict[str, int] = {}
            for demand in demands:
                for resource, amount in demand.requests.items() if i in self._running(demand) else ():
                    wanted[resource] = wanted.get(resource, 0) + amount * demand.count
            used = {name: self._used[name][i] if name in self._used else {} for name in names}
            for view, (resource, amount) in itertools.product(self.views, wanted.items()):
                free = {n: self.fleet.free_on(self.fleet.nodes[n], view)(resource) for n in names}
                if sum(max(0, left - used[n].get(resource, 0)) for n, left in free.items()) < amount:
                    return False
        return True

    def state(self) -> tuple[object, ...]:
        """What this search has taken: where it is equal, equal pods fit."""
        self._count()
        used = []
        for name, stages in sorted(self._used.items()):
            amounts = tuple(tuple(sorted((r, n) for r, n in stage.items() if n)) for stage in stages)
            if any(amounts):
                used.append((name, amounts))
        apart = (one for one in self.placed if one.demand.exclusive or one.demand.distinct is not None)
        return tuple(used), tuple((one.demand.index, *one.members.tolist()) for one in apart)

    def give_back(self, mark: int) -> None:
        """Takes everything back that was placed since `placed` was so long."""
        while len(self.placed) > mark:
            placed = self.placed.pop()
            if len(self.placed) < self._counted:
                self._shift(placed, -1)
                self._counted -= 1

    def _shift(self, placed: Placed, sign: int) -> None:
        demand, running = placed.demand, self._running(placed.demand)
        for member, count in zip(placed.members.tolist(), placed.counts.tolist(), strict=True):
            used = self._used.setdefault(demand.forest.names[member], [{} for _ in self.starts])
            for i in running:
                for resource, amount in demand.requests.items():
                    used[i][resource] = used[i].get(resource, 0) + sign * amount * count


@dataclass(frozen=True, slots=True)
class Gauge:
    """What fits for one demand, by node and, in whole slices, by domain of each level down to the outermost slices."""

    forest: Forest
    counts: Ints
    layers: Layers
    _by_slice: Ints

    @classmethod
    def of(cls, demand: Demand, counts: Ints, layers: Layers) -> Gauge:
        """Measures a demand."""
        return cls(demand.forest, counts, layers, capacity(demand.forest, counts, layers))

    def sums(self, depth: int, run: tuple[int, int]) -> tuple[Ints, int]:
        """Pods that fit by domain of a level inside a range of members, and the index of the first domain there."""
        level = self.forest.levels[depth]
        low, high = (int(i) for i in np.searchsorted(level.starts, run))
        if low == high:
            return np.zeros(0, dtype=np.int64), low
        if not self.layers:
            return np.add.reduceat(self.counts[: run[1]], level.starts[low:high]), low
        inner = self.forest.levels[self.layers[0].depth]
        first = np.searchsorted(inner.starts, level.starts[low:high])
        return np.add.reduceat(self._by_slice[: np.searchsorted(inner.starts, run[1])], first), low

    def total(self, run: tuple[int, int]) -> int:
        """Pods that fit in a range of members that ends where domains end."""
        if not self.layers:
            return int(self.counts[run[0] : run[1]].sum())
        low, high = np.searchsorted(self.forest.levels[self.layers[0].depth].starts, run)
        return int(self._by_slice[low:high].sum())
