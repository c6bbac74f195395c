"""From chosen domains down to nodes: how many pods go where."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from queue_manager.engine.fleet import Forest, Ints
from queue_manager.engine.slices import Layers, capacity

Runs = list[tuple[int, int]]
"""Ranges of members of a forest, each made of whole domains."""


def pick(room: Ints, need: int, smallest_first: bool = False) -> list[tuple[int, int]]:
    """Spreads `need` pods over places with this room, as (place, pods): largest first, the last one the tightest
    that holds the rest; or smallest first. Ties go to the earlier place. The room must be enough.
    """
    order = np.argsort(room if smallest_first else -room, kind="stable")
    return pick_in(order, room, need)


def pick_in(order: Ints, room: Ints, need: int) -> list[tuple[int, int]]:
    """The same with places in a given order."""
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


def pick_first(order: Ints, room: Ints, need: int) -> list[tuple[int, int]]:
    """The first place in an order that holds all, else one place after another. The room must be enough."""
    order = order[room[order] > 0]
    alone = order[room[order] >= need]
    if len(alone):
        return [(int(alone[0]), need)]
    sums = np.cumsum(room[order])
    last = int(np.searchsorted(sums, need))
    chosen = [(int(i), int(room[i])) for i in order[:last]]
    return sorted([*chosen, (int(order[last]), need - int(sums[last - 1]))])


def pick_ones(order: Ints, room: Ints, need: int) -> list[tuple[int, int]]:
    """One for each of the first places in an order that have any room."""
    return sorted((int(i), 1) for i in order[room[order] > 0][:need])


def pick_even(room: Ints, need: int) -> list[tuple[int, int]] | None:
    """Spreads `need` over as few places as can take equal parts of it (parts differ by one at most), the tightest of
    them; None if no number of places can."""
    least = int(np.searchsorted(np.cumsum(-np.sort(-room)), need)) + 1
    by_room = [int(i) for i in np.argsort(room, kind="stable")]
    for number in range(least, min(len(room), need) + 1):
        part, larger = divmod(need, number)
        more = [i for i in by_room if room[i] > part][:larger]
        rest = [i for i in by_room if room[i] >= part and i not in more][: number - larger]
        if len(more) == larger and len(rest) == number - larger:
            return sorted([*((i, part + 1) for i in more), *((i, part) for i in rest)])
    return None


@dataclass(frozen=True, slots=True)
class Descent:
    """Narrows chosen domains level by level down to nodes, in as few domains of each level as can be, with whole slices
    in each domain of a layer. Domains of the levels down to `even` take equal parts, if they can."""

    forest: Forest
    counts: Ints
    layers: Layers
    rooms: tuple[Ints, ...]
    even: int = -1

    @classmethod
    def of(cls, forest: Forest, counts: Ints, layers: Layers, even: int = -1) -> Descent:
        """`rooms` are those of each layer with the layers inside it, at the first member of each of its domains."""
        rooms = []
        for i, layer in enumerate(layers):
            room = np.zeros(len(counts), dtype=np.int64)
            room[forest.levels[layer.depth].starts] = capacity(forest, counts, layers[i:])
            rooms.append(room)
        return cls(forest, counts, layers, tuple(rooms), even)

    def members(self, runs: Runs, depth: int, need: int, inside: int = 0) -> list[tuple[int, int]]:
        """Members and pods for `need` pods in domains `runs` of level `depth`, `inside` so many layers already."""
        if depth < self.even and self._may_share(depth + 1, inside):
            return self._evenly(runs, depth + 1, need, inside)
        if inside == len(self.layers):
            runs = [run for run, _ in self._narrow(self.counts, 1, runs, depth, self._last_wide(), need)]
            members = np.concatenate([np.arange(first, last) for first, last in runs])
            return [(int(members[i]), n) for i, n in pick(self.counts[members], need)]
        layer = self.layers[inside]
        if layer.depth <= depth:
            return self.members(runs, depth, need, inside + 1)
        found: list[tuple[int, int]] = []
        for run, pods in self._narrow(self.rooms[inside], layer.size, runs, depth, layer.depth, need, layer.single):
            found += self.members([run], layer.depth, pods, inside + 1)
        return found

    def _may_share(self, depth: int, inside: int) -> bool:
        """Whether domains of a level can take parts: they hold no slice together, nor one each anyway."""
        if inside == len(self.layers):
            return True
        layer = self.layers[inside]
        return layer.depth > depth or (layer.depth == depth and not layer.single)

    def _evenly(self, runs: Runs, depth: int, need: int, inside: int) -> list[tuple[int, int]]:
        """Equal parts in domains of level `depth`; as few domains as can be where there are none."""
        room, unit = (self.rooms[inside], self.layers[inside].size) if inside < len(self.layers) else (self.counts, 1)
        parts, totals = self._children(runs, depth, room)
        shares = pick_even(totals // unit, need // unit)
        if shares is None:
            return replace(self, even=-1).members(runs, depth - 1, need, inside)
        found: list[tuple[int, int]] = []
        for i, number in shares:
            found += self.members([parts[i]], depth, number * unit, inside)
        return found

    def _last_wide(self) -> int:
        """The lowest level of which some domain has several nodes; below it nodes are picked at once."""
        levels = self.forest.levels
        return next((d for d in reversed(range(len(levels))) if len(levels[d].starts) < len(self.counts)), -1)

    def _narrow(
        self, room: Ints, unit: int, runs: Runs, depth: int, end: int, need: int, single: bool = False
    ) -> list[tuple[tuple[int, int], int]]:
        """Domains of level `end` and the pods in each, in multiples of `unit`; of those that take one unit each
        (`single`) the tightest."""
        chosen = [(run, need) for run in runs]
        for number in range(depth + 1, end + 1):
            parts, totals = self._children([run for run, _ in chosen], number, room)
            if single and number == end:
                sizes = self._children(parts, number, self.counts)[1]
                shares = pick_ones(np.argsort(sizes, kind="stable"), totals // unit, need // unit)
            else:
                shares = pick(totals // unit, need // unit)
            chosen = [(parts[i], n * unit) for i, n in shares]
        return chosen

    def _children(self, runs: Runs, depth: int, room: Ints) -> tuple[Runs, Ints]:
        """Domains of a level in some runs, and the room in each."""
        level = self.forest.levels[depth]
        starts: list[int] = []
        ends: list[int] = []
        for first, last in runs:
            low, high = np.searchsorted(level.starts, [first, last])
            starts.extend(level.starts[low:high].tolist())
            ends.extend(level.ends[low:high].tolist())
        pairs = [index for pair in zip(starts, ends, strict=True) for index in pair]
        return list(zip(starts, ends, strict=True)), np.add.reduceat(np.append(room, 0), pairs)[::2]


def shortened(members: list[tuple[int, int]], excess: int) -> list[tuple[int, int]]:
    """Takes pods away from the last members: what a short last slice does not need."""
    kept = sorted(members)
    while excess > 0:
        member, count = kept.pop()
        if count > excess:
            kept.append((member, count - excess))
        excess -= count
    return kept
