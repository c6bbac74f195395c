"""Where the pods of a workload go: domains of a topology and, inside them, real nodes (kueue.md 2.11).

Topology requests nest: that of the workload lies around those of its pod groups, these around those of pod sets. A
`Scope` is one such bracket. Inside one bracket domains are chosen by best fit (the tightest that holds all), pods that
no bracket holds together go where least is free, so that large gaps stay whole. Nodes are always checked one by one: a
pod needs one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queue_manager.engine.fleet import Fleet, Forest, Ints, Mask
from queue_manager.engine.workload import TopologyMode, TopologyRequest


@dataclass(frozen=True, slots=True)
class Demand:
    """Equal pods to place: `count` of them, `requests` each (`pods` included), on allowed rows of a forest.

    `flavor` is the one with the topology.
    """

    index: int
    name: str
    count: int
    requests: Mapping[str, int]
    stages: tuple[int, int]
    forest: Forest
    mask: Mask
    ports: bool = False
    flavor: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """A bracket around what must (or should) lie in one domain."""

    request: TopologyRequest | None
    parts: tuple[Scope | Demand, ...]

    def demands(self) -> list[Demand]:
        """All demands inside, in order."""
        found: list[Demand] = []
        for part in self.parts:
            found.extend([part] if isinstance(part, Demand) else part.demands())
        return found


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain, by the values of its level and the wider ones."""

    level_keys: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why pods could not be placed: at most `best` of `wanted` fit, in domain `values` of `level` ("" is anywhere)."""

    demand: Demand
    level: str
    values: tuple[str, ...]
    best: int
    wanted: int
    note: str = ""


Places = dict[int, dict[str, int]]
"""Index of pod set -> node -> number of pods."""


@dataclass(slots=True)
class _Trail:
    """What was placed so far, so that it can be taken back."""

    placed: list[tuple[Demand, Ints, Ints]] = field(default_factory=list)


class Placement:
    """One search over one matrix of free amounts. Pod sets that never run at the same time may use the same room."""

    def __init__(self, fleet: Fleet, free: Ints, demands: Sequence[Demand]) -> None:
        self._fleet = fleet
        self._free = free
        self._starts = sorted({demand.stages[0] for demand in demands})
        self._used: dict[int, Ints] = {}
        self._trail = _Trail()

    def place(self, scope: Scope) -> Places | Misfit:
        """Places everything in a scope, or says what does not fit."""
        misfit = self._scope(scope, None)
        if misfit is not None:
            return misfit
        places: Places = {demand.index: {} for demand in scope.demands()}
        for demand, members, counts in self._trail.placed:
            nodes = places[demand.index]
            for member, count in zip(members.tolist(), counts.tolist(), strict=True):
                nodes[demand.forest.names[member]] = nodes.get(demand.forest.names[member], 0) + count
        return places

    def holds(self, scope: Scope, places: Places) -> bool:
        """Whether there is room for pods where they were placed. Leaves the placement as it was."""
        mark = len(self._trail.placed)
        try:
            for demand in scope.demands():
                found = sorted((demand.forest.member_of.get(n, -1), c) for n, c in places[demand.index].items())
                members, counts = np.array(found, dtype=np.int64).reshape(-1, 2).T
                if (members < 0).any() or (self.counts(demand)[members] < counts).any():
                    return False
                self._take(demand, members, counts)
            return True
        finally:
            self._take_back(mark)

    # ---- scopes

    def _scope(self, scope: Scope, within: Domain | None) -> Misfit | None:
        request = scope.request
        if request is None or request.mode is TopologyMode.UNCONSTRAINED:
            return self._parts(scope, within)
        if len(scope.parts) == 1 and isinstance(scope.parts[0], Demand):
            return self._leaf(scope.parts[0], within, request)
        demands = scope.demands()
        keys = demands[0].forest.level_keys
        if any(demand.forest.level_keys != keys for demand in demands):
            return Misfit(demands[0], request.level, (), 0, demands[0].count, "its pod sets use different topologies")
        if request.level not in keys:
            return no_level(demands[0], request.level)
        return self._bracket(scope, demands, within, request)

    def _bracket(
        self, scope: Scope, demands: list[Demand], within: Domain | None, request: TopologyRequest
    ) -> Misfit | None:
        """Several demands in one domain: the tightest domain in which all of them really fit."""
        keys = demands[0].forest.level_keys
        level = keys.index(request.level)
        top = len(within.values) - 1 if within is not None else 0
        levels = range(level, max(top, 0) - 1, -1) if request.mode is TopologyMode.PREFERRED else (level,)
        worst: Misfit | None = None
        for depth in levels:
            candidates, misfit = self._candidates(demands, depth, within)
            worst = worst or misfit
            for values in candidates:
                misfit = self._parts(scope, Domain(keys, values))
                if misfit is None:
                    return None
                worst = worst or misfit
        if request.mode is TopologyMode.PREFERRED:
            return self._parts(scope, within)
        return worst

    def _candidates(
        self, demands: list[Demand], depth: int, within: Domain | None
    ) -> tuple[list[tuple[str, ...]], Misfit | None]:
        """Domains of a level that hold each demand alone, tightest first (for the demand with most pods)."""
        ranked = sorted(demands, key=lambda demand: (-demand.count, demand.index))
        rooms: list[dict[tuple[str, ...], int]] = []
        misfit: Misfit | None = None
        for demand in ranked:
            first, last = self._run(demand.forest, within)
            sums, start = self._sums(demand, self.counts(demand), depth, first, last)
            values = demand.forest.levels[depth].values
            room = {values[start + i]: int(total) for i, total in enumerate(sums.tolist())}
            if not any(total >= demand.count for total in room.values()) and misfit is None:
                misfit = _best_of(demand, depth, sums, start)
            rooms.append(room)
        fitting = [
            values
            for values in rooms[0]
            if all(room.get(values, 0) >= demand.count for room, demand in zip(rooms, ranked, strict=True))
        ]
        fitting.sort(key=lambda values: (*(room[values] for room in rooms), values))
        if not fitting and misfit is None:
            misfit = Misfit(
                ranked[0], ranked[0].forest.level_keys[depth], (), 0, ranked[0].count, "its pod sets fit apart only"
            )
        return fitting, misfit

    def _parts(self, scope: Scope, within: Domain | None) -> Misfit | None:
        """Places the parts one after another; if that fails, the smallest first. Leaves nothing behind on failure."""
        misfit: Misfit | None = None
        mark = len(self._trail.placed)
        by_size = sorted(scope.parts, key=_size)
        for order in (scope.parts, tuple(by_size)):
            for part in order:
                failed = (
                    self._leaf(part, within, scope.request) if isinstance(part, Demand) else self._scope(part, within)
                )
                if failed is not None:
                    misfit = misfit or failed
                    self._take_back(mark)
                    break
            else:
                return None
            if len(scope.parts) < 2:
                break
        return misfit

    # ---- one demand

    def _leaf(self, demand: Demand, within: Domain | None, request: TopologyRequest | None) -> Misfit | None:
        """Places one demand inside `within` (anywhere if None); a bracket's own request was met by `within` already."""
        if demand.count == 0:
            return None
        forest = demand.forest
        first, last = self._run(forest, within)
        counts = self.counts(demand)
        total = int(counts[first:last].sum())
        depth = _inner_depth(forest, within, request)
        if depth == -2:
            assert request is not None
            return no_level(demand, request.level)
        if depth is not None and request is not None:
            return self._together(demand, counts, (first, last), depth, within, request)
        if total < demand.count:
            return Misfit(demand, "", within.values if within else (), total, demand.count)
        if within is not None:
            self._descend(demand, counts, [(first, last)], len(within.values) - 1)
        else:
            self._scatter(demand, counts)
        return None

    def _together(
        self,
        demand: Demand,
        counts: Ints,
        run: tuple[int, int],
        depth: int,
        within: Domain | None,
        request: TopologyRequest,
    ) -> Misfit | None:
        """One domain of level `depth`; for a preferred level a wider one, at last several of the widest."""
        forest = demand.forest
        floor = len(within.values) if within is not None else 0
        misfit: Misfit | None = None
        for level in range(depth, floor - 1, -1):
            sums, start = self._sums(demand, counts, level, *run)
            fitting = np.flatnonzero(sums >= demand.count)
            if len(fitting):
                chosen = start + int(fitting[np.argmin(sums[fitting])])
                bounds = forest.levels[level]
                self._descend(demand, counts, [(int(bounds.starts[chosen]), int(bounds.ends[chosen]))], level)
                return None
            misfit = misfit or _best_of(demand, level, sums, start)
            if request.mode is TopologyMode.REQUIRED:
                return misfit
        total = int(counts[run[0] : run[1]].sum())
        if total < demand.count:
            return Misfit(demand, "", within.values if within else (), total, demand.count)
        self._descend(demand, counts, [run], floor - 1)
        return None

    def _descend(self, demand: Demand, counts: Ints, runs: list[tuple[int, int]], depth: int) -> None:
        """Narrows chosen runs of members level by level down to nodes, in as few domains as can be."""
        levels = demand.forest.levels
        for level in levels[depth + 1 :]:
            starts: list[int] = []
            ends: list[int] = []
            for first, last in runs:
                low, high = np.searchsorted(level.starts, [first, last])
                starts.extend(level.starts[low:high].tolist())
                ends.extend(level.ends[low:high].tolist())
            totals = (
                np.add.reduceat(np.append(counts, 0), _pairs(starts, ends))[::2] if starts else np.zeros(0, np.int64)
            )
            runs = [(starts[i], ends[i]) for i, _ in pick(totals, demand.count)]
        members = np.concatenate([np.arange(first, last) for first, last in runs])
        chosen = pick(counts[members], demand.count)
        self._take(demand, members[[i for i, _ in chosen]], np.array([n for _, n in chosen], dtype=np.int64))

    def _scatter(self, demand: Demand, counts: Ints) -> None:
        """Unconstrained: the tightest domain of the lowest level that holds all, else the fullest nodes first."""
        level = demand.forest.levels[-1]
        sums = np.add.reduceat(counts, level.starts)
        fitting = np.flatnonzero(sums >= demand.count)
        if len(fitting):
            runs = [int(fitting[np.argmin(sums[fitting])])]
        else:
            runs = [i for i, _ in pick(sums, demand.count, smallest_first=True)]
        members = np.concatenate([np.arange(level.starts[i], level.ends[i]) for i in runs])
        chosen = pick(counts[members], demand.count, smallest_first=True)
        self._take(demand, members[[i for i, _ in chosen]], np.array([n for _, n in chosen], dtype=np.int64))

    # ---- room

    def counts(self, demand: Demand) -> Ints:
        """How many pods fit on each member of the demand's forest."""
        rows = demand.forest.rows
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        used = self._used_by(demand.stages)
        counts: Ints = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        for resource, amount in demand.requests.items():
            column = self._fleet.column(resource)
            if column is None:
                return np.zeros(len(rows), dtype=np.int64)
            free = self._free[rows, column]
            if used is not None:
                free = free - used[rows, column]
            np.minimum(counts, free // amount, out=counts)
        np.maximum(counts, 0, out=counts)
        counts[~demand.mask[rows]] = 0
        return np.minimum(counts, 1) if demand.ports else counts

    def _used_by(self, stages: tuple[int, int]) -> Ints | None:
        """What pod sets placed before use while this one runs: the greatest over its stages."""
        used: Ints | None = None
        for start in self._starts:
            if stages[0] <= start <= stages[1] and start in self._used:
                used = self._used[start] if used is None else np.maximum(used, self._used[start])
        return used

    def _take(self, demand: Demand, members: Ints, counts: Ints) -> None:
        self._trail.placed.append((demand, members, counts))
        self._shift(demand, members, counts)

    def _shift(self, demand: Demand, members: Ints, counts: Ints) -> None:
        rows = demand.forest.rows[members]
        for start in self._starts:
            if demand.stages[0] <= start <= demand.stages[1]:
                used = self._used.get(start)
                if used is None:
                    used = self._used[start] = np.zeros_like(self._free)
                for resource, amount in demand.requests.items():
                    column = self._fleet.column(resource)
                    assert column is not None
                    used[rows, column] += counts * amount  # a placement names each member once

    def _take_back(self, mark: int) -> None:
        while len(self._trail.placed) > mark:
            demand, members, counts = self._trail.placed.pop()
            self._shift(demand, members, -counts)

    def _run(self, forest: Forest, within: Domain | None) -> tuple[int, int]:
        """The members of a forest that lie in a domain, as a range."""
        if within is None or not within.values:
            return 0, len(forest.names)
        level = forest.levels[len(within.values) - 1]
        index = level.index.get(within.values) if within.level_keys == forest.level_keys else None
        return (0, 0) if index is None else (int(level.starts[index]), int(level.ends[index]))

    def _sums(self, demand: Demand, counts: Ints, depth: int, first: int, last: int) -> tuple[Ints, int]:
        """Pods that fit by domain of a level inside a range of members, and the index of the first domain there."""
        level = demand.forest.levels[depth]
        low, high = (int(i) for i in np.searchsorted(level.starts, [first, last]))
        if low == high:
            return np.zeros(0, dtype=np.int64), low
        sums: Ints = np.add.reduceat(counts[:last], level.starts[low:high])
        return sums, low


def pick(room: Ints, need: int, smallest_first: bool = False) -> list[tuple[int, int]]:
    """Spreads `need` pods over places with this room, as (place, pods): largest first, the last one the tightest
    that holds the rest; or smallest first. Ties go to the earlier place. The room must be enough.
    """
    order = np.argsort(room if smallest_first else -room, kind="stable")
    order = order[room[order] > 0]
    sums = np.cumsum(room[order])
    last = int(np.searchsorted(sums, need))
    chosen = [(int(i), int(room[i])) for i in order[:last]]
    rest = need - (int(sums[last - 1]) if last else 0)
    if rest > 0:
        left = order[last:]
        fitting = left[room[left] >= rest]
        chosen.append((int(fitting[np.lexsort((fitting, room[fitting]))[0]]), rest))
    return sorted(chosen)


def _pairs(starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    """Indexes for `reduceat` that sums each [start, end) alone, as every second sum."""
    return [index for pair in zip(starts, ends, strict=True) for index in pair]


def _size(part: Scope | Demand) -> tuple[int, int]:
    demands = [part] if isinstance(part, Demand) else part.demands()
    return sum(demand.count for demand in demands), demands[0].index if demands else 0


def _inner_depth(forest: Forest, within: Domain | None, request: TopologyRequest | None) -> int | None:
    """Level of a demand's own request if it is narrower than the domain chosen around it; -2 if there is no such
    level."""
    if request is None or request.mode is TopologyMode.UNCONSTRAINED:
        return None
    depth = forest.level_of(request.level)
    if depth is None:
        return -2
    return None if within is not None and depth < len(within.values) else depth


def no_level(demand: Demand, level: str) -> Misfit:
    """The request names a level that the topology does not have."""
    return Misfit(demand, level, (), 0, demand.count, f"the topology has no level {level}")


def _best_of(demand: Demand, depth: int, sums: Ints, start: int) -> Misfit:
    level = demand.forest.levels[depth]
    key = demand.forest.level_keys[depth]
    if not len(sums):
        return Misfit(demand, key, (), 0, demand.count)
    best = int(np.argmax(sums))
    return Misfit(demand, key, level.values[start + best], int(sums[best]), demand.count)
