"""Groups that have no chance as things stand, by what they lack: nobody looks at them again until enough of it is free.

Only for workloads that may evict nobody. Such a workload cannot start while, for one of its needs, each flavor has too
little of some cell for the least it would take. These cells and amounts are its lack. All groups of a queue with the
same lack stand on one shelf, in the queue's order: when nothing of the lack is met, the whole shelf is passed over with
a few comparisons, however many wait there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from queue_manager.engine.ask import Shape
from queue_manager.engine.configuration import Cell
from queue_manager.engine.prepared import Prepared
from queue_manager.engine.tree import EMPTY, FUTURE, TreeNode

Lack = tuple[tuple[Cell, int], ...]
"""One cell and amount for each usable flavor of a need."""
Order = tuple[int, int, str]
"""Negated priority, time queued, uid: smaller stands first."""
Entry = tuple[Order, int, Shape]
"""In a heap of groups: the place of the group, how many were pushed before, and its shape."""


class Chances:
    """Who has a chance in a queue, for as long as its state does not change."""

    __slots__ = ("_node", "_rows")

    def __init__(self, node: TreeNode) -> None:
        self._node = node
        self._rows: dict[int, tuple[int, ...]] = {}

    def lack_of(self, prepared: Prepared) -> Lack | None:
        """What a request lacks; None if it may have a chance, or has a flaw that only a nomination tells.

        Of each flavor it is the first cell that can never give so much, else the first with too little free.
        """
        if prepared.uncovered or prepared.unmapped:
            return None
        for need in prepared.needs:
            lack: list[tuple[Cell, int]] = []
            for cells in need.cells:
                short = self._short(cells, need.least)
                if short < 0:
                    break
                lack.append((cells[short], need.least[short]))
            else:
                if lack:
                    return tuple(lack)
        return None

    def _short(self, cells: tuple[Cell, ...], amounts: tuple[int, ...]) -> int:
        """Which of the cells is short, -1 if none is."""
        row = self._rows.get(id(cells))  # `prepared.cells_of` makes the same object each time, and keeps it
        if row is None:
            row = self._rows[id(cells)] = tuple([max(0, self._node.available(cell, FUTURE)) for cell in cells])
        found = -1
        for index, free in enumerate(row):
            if amounts[index] > free:
                if amounts[index] > self._node.available(cells[index], EMPTY):
                    return index
                if found < 0:
                    found = index
        return found


def kind_of(lack: Lack, node: TreeNode) -> tuple[object, ...]:
    """What a lack is about, without numbers: the cells, and whether they could ever give so much."""
    return ("lack", *((cell, amount > node.available(cell, EMPTY)) for cell, amount in lack))


@dataclass(eq=False, slots=True)
class Shelf:
    """Groups with one lack; `greatest` is the most that any of them takes of a resource."""

    lack: Lack
    kind: tuple[object, ...]
    heap: list[Entry] = field(default_factory=list)
    greatest: dict[str, int] = field(default_factory=dict)

    def is_open(self, node: TreeNode) -> bool:
        """Whether some of the lack is met."""
        for cell, amount in self.lack:  # noqa: SIM110 - asked of every shelf in each round, quicker than `any`
            if amount <= node.available(cell, FUTURE):
                return True
        return False

    def note(self, prepared: Prepared) -> None:
        """Remembers how much a group takes."""
        greatest = self.greatest
        for need in prepared.needs:
            for resource, amount in zip(need.resources, need.least, strict=True):
                if amount > greatest.get(resource, 0):
                    greatest[resource] = amount

    def tells_true(self, node: TreeNode) -> bool:
        """Whether, after an edit of quota, its groups still wait for the same kind of thing."""
        if kind_of(self.lack, node) != self.kind:
            return False
        hopeless = {cell for cell, amount in self.lack if amount > node.available(cell, EMPTY)}
        flavors = {cell.flavor for cell, _ in self.lack} - {cell.flavor for cell in hopeless}
        return all(
            self.greatest[cell.resource] <= node.available(cell, EMPTY)
            for cell in node.subtree
            if cell.flavor in flavors and cell.resource in self.greatest
        )

    def first(self, valid: Callable[[Order, Shape], bool]) -> Order | None:
        """The first entry that `valid` accepts; forgets those before it."""
        while self.heap:
            order, _, shape = self.heap[0]
            if valid(order, shape):
                return order
            heapq.heappop(self.heap)
        return None
