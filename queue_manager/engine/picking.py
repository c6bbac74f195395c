"""From chosen domains down to nodes: how many pods go where."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Descent:
    """Narrows chosen domains level by level down to nodes, in as few domains of each level as can be, with whole slices
    in each domain of a layer."""

    forest: Forest
    counts: Ints
    layers: Layers
    rooms: tuple[Ints, ...]

    @classmethod
    def of(cls, forest: Forest, counts: Ints, layers: Layers) -> Descent:
        """`rooms` are those of each layer with the layers inside it, at the first member of each of its domains."""
        rooms = []
        for i, layer in enumerate(layers):
            room = np.zeros(len(counts), dtype=np.int64)
            room[forest.levels[layer.depth].starts] = capacity(forest, counts, layers[i:])
            rooms.append(room)
        return cls(forest, counts, layers, tuple(rooms))

    def members(self, runs: Runs, depth: int, need: int, inside: int = 0) -> list[tuple[int, int]]:
        """Members and pods for `need` pods in domains `runs` of level `depth`, `inside` so many layers already."""
        if inside == len(self.layers):
            runs = [run for run, _ in self._narrow(self.counts, 1, runs, depth, self._last_wide(), need)]
            members = np.concatenate([np.arange(first, last) for first, last in runs])
            return [(int(members[i]), n) for i, n in pick(self.counts[members], need)]
        layer = self.layers[inside]
        if layer.depth <= depth:
            return self.members(runs, depth, need, inside + 1)
        found: list[tuple[int, int]] = []
        for run, pods in self._narrow(self.rooms[inside], layer.size, runs, depth, layer.depth, need):
            found += self.members([run], layer.depth, pods, inside + 1)
        return found

    def _last_wide(self) -> int:
        """The lowest level of which some domain has several nodes; below it nodes are picked at once."""
        levels = self.forest.levels
        return next((d for d in reversed(range(len(levels))) if len(levels[d].starts) < len(self.counts)), -1)

    def _narrow(
        self, room: Ints, unit: int, runs: Runs, depth: int, end: int, need: int
    ) -> list[tuple[tuple[int, int], int]]:
        """Domains of level `end` and the pods in each, in multiples of `unit`."""
        chosen = [(run, need) for run in runs]
        for level in self.forest.levels[depth + 1 : end + 1]:
            starts: list[int] = []
            ends: list[int] = []
            for (first, last), _ in chosen:
                low, high = np.searchsorted(level.starts, [first, last])
                starts.extend(level.starts[low:high].tolist())
                ends.extend(level.ends[low:high].tolist())
            pairs = [index for pair in zip(starts, ends, strict=True) for index in pair]
            totals = np.add.reduceat(np.append(room, 0), pairs)[::2]
            chosen = [((starts[i], ends[i]), n * unit) for i, n in pick(totals // unit, need // unit)]
        return chosen


def shortened(members: list[tuple[int, int]], excess: int) -> list[tuple[int, int]]:
    """Takes pods away from the last members: what a short last slice does not need."""
    kept = sorted(members)
    while excess > 0:
        member, count = kept.pop()
        if count > excess:
            kept.append((member, count - excess))
        excess -= count
    return kept
