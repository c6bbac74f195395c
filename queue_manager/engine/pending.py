"""Waiting workloads of one queue, in groups of equal shape, in the queue's order.

Order: priority (higher first), time queued, uid. Without `hold_freed_quota` a workload that has evicted others
stands first until it starts, as in Kueue. A group whose head failed is parked: none of its members is tried until
something changed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from queue_manager.engine.ask import Shape
from queue_manager.engine.shelves import Entry, Lack, Order, Shelf, kind_of
from queue_manager.engine.tree import TreeNode
from queue_manager.engine.undo import UndoLog

if TYPE_CHECKING:
    from queue_manager.engine.flavors import Known
    from queue_manager.engine.nomination import Nomination
    from queue_manager.engine.prepared import Prepared


MOST_IN_FRONT = 8


@dataclass(frozen=True, slots=True, eq=False)
class Parked:
    """Why a group is not tried: the nomination of the member that failed, or `ahead`, the uid for which room is
    reserved."""

    uid: str
    queued: int
    nomination: Nomination
    ahead: str = ""

    @property
    def topology(self) -> bool:
        """Whether nodes stood in the way."""
        return self.nomination.misfit is not None

    @property
    def limited(self) -> bool:
        """Whether a limit of its user, of a group of its user or of the queue stood in the way."""
        return self.nomination.limit is not None


@dataclass(eq=False, slots=True)
class Group:
    """Waiting workloads of one shape, oldest first; `told` is the kind of reason last reported for all of them.

    `user` is whose they are where limits go by user, else "". `shelf` is where it stands, `before` where it stood last;
    `failed` is why it was parked last. `known` are assignments found for it before.
    """

    shape: Shape
    priority: int
    prepared: Prepared
    user: str = ""
    members: list[tuple[int, str]] = field(default_factory=list)
    parked: Parked | None = None
    shelf: Shelf | None = None
    before: Shelf | None = None
    failed: Parked | None = None
    told: tuple[object, ...] | None = None
    known: Known = field(default_factory=dict)

    @property
    def order(self) -> Order:
        """Place of its first member."""
        return (-self.priority, *self.members[0])

    @property
    def first(self) -> str:
        """The uid of its first member."""
        return self.members[0][1]


class Pending:
    """The groups of one queue. A group is tried, or parked, or on a shelf (see `shelves.py`)."""

    __slots__ = ("_front", "_heap", "_log", "_order", "_pushed", "groups", "parked", "shelves")

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self.groups: dict[Shape, Group] = {}
        self.parked: dict[Shape, Group] = {}
        self.shelves: dict[Lack, Shelf] = {}
        self._heap: list[Entry] = []
        self._pushed = 0
        self._order: list[Order] = []
        self._front: list[tuple[Order, Group]] | None = None

    @property
    def size(self) -> int:
        """How many wait."""
        return len(self._order)

    def add(self, group: Group, queued: int, uid: str) -> None:
        """Adds a workload, revocable. One that is older than the member that failed is tried although its group is
        parked."""
        self._insert(group, queued, uid)
        self._log.call(self._delete, group, queued, uid)
        if group.parked is not None and (queued, uid) == group.members[0] and queued < group.parked.queued:
            self.unpark(group)

    def discard(self, group: Group, queued: int, uid: str) -> None:
        """Takes a workload out, revocable."""
        self._delete(group, queued, uid)
        self._log.call(self._insert, group, queued, uid)

    def _insert(self, group: Group, queued: int, uid: str) -> None:
        self._front = None
        member = (queued, uid)
        if not group.members:
            self.groups[group.shape] = group
            if group.parked is not None:
                self.parked[group.shape] = group
        insort(group.members, member)
        insort(self._order, (-group.priority, queued, uid))
        if group.members[0] is member:
            self._push(group)

    def _delete(self, group: Group, queued: int, uid: str) -> None:
        self._front = None
        place = bisect_left(group.members, (queued, uid))
        del group.members[place]
        del self._order[bisect_left(self._order, (-group.priority, queued, uid))]
        if not group.members:
            del self.groups[group.shape]
            self.parked.pop(group.shape, None)
        elif place == 0:
            self._push(group)

    # ---- parked, and on shelves

    def park(self, group: Group, parked: Parked) -> None:
        """Stops trying a group, revocable."""
        self._log.assign(group, "failed", parked)
        self._move(group, parked, None)

    def unpark(self, group: Group) -> None:
        """Tries a group again, revocable."""
        if group.parked is not None:
            self._move(group, None, None)

    def unshelve(self, group: Group) -> None:
        """Tries a group that stood on a shelf, revocable."""
        if group.shelf is not None:
            group.before = group.shelf
            self._move(group, None, None)

    def shelve(self, group: Group, lack: Lack, node: TreeNode) -> None:
        """Passes a group over until its lack is met, revocable."""
        shelf = self.shelves.get(lack)
        if shelf is None:
            shelf = self.shelves[lack] = Shelf(lack, kind_of(lack, node))
        self._move(group, None, shelf)

    def try_again(self, node: TreeNode) -> bool:
        """After an edit of quota: tries what is parked, and what stands on a shelf that does not tell the truth any
        more; says if there is any. Not revocable."""
        groups = [*self.parked.values()]
        for shelf in [shelf for shelf in self.shelves.values() if not shelf.tells_true(node)]:
            del self.shelves[shelf.lack]
            groups += [g for *_, shape in shelf.heap if (g := self.groups.get(shape)) is not None and g.shelf is shelf]
        for group in groups:
            group.before = None
            self._set(group, None, None)
        return bool(groups)

    def _move(self, group: Group, parked: Parked | None, shelf: Shelf | None) -> None:
        self._log.call(self._set, group, group.parked, group.shelf)
        self._set(group, parked, shelf)

    def _set(self, group: Group, parked: Parked | None, shelf: Shelf | None) -> None:
        self._front = None
        group.parked = parked
        group.shelf = shelf
        if parked is None:
            self.parked.pop(group.shape, None)
            self._push(group)
        elif group.members:
            self.parked[group.shape] = group

    def _push(self, group: Group) -> None:
        if not group.members or group.parked is not None:
            return
        # A workload that changed its shape may have left an entry of equal order: shapes can't be compared.
        self._pushed += 1
        entry = (group.order, self._pushed, group.shape)
        if group.shelf is None:
            heapq.heappush(self._heap, entry)
            return
        shelf = group.shelf = self.shelves.setdefault(group.shelf.lack, group.shelf)
        shelf.note(group.prepared)
        heapq.heappush(shelf.heap, entry)

    # ---- who is first

    def head(self) -> Group | None:
        """The group of the first workload of all that are neither parked nor on a shelf."""
        heap = self._heap
        while heap:
            order, _, shape = heap[0]
            if self._stands(order, shape, None):
                return self.groups[shape]
            heapq.heappop(heap)
        return None

    def _stands(self, order: Order, shape: Shape, shelf: Shelf | None) -> bool:
        """Whether an entry of a heap is still true."""
        group = self.groups.get(shape)
        return group is not None and group.parked is None and group.shelf is shelf and group.order == order

    def opened(self, node: TreeNode) -> list[Shelf]:
        """The shelves on which something of the lack is met in the queue `node`."""
        return [shelf for shelf in self.shelves.values() if shelf.is_open(node)]

    def best(self, shelves: list[Shelf]) -> Group | None:
        """The group of the first of those tried and of those on these shelves."""
        found = self.head()
        best = None if found is None else found.order
        for shelf in shelves:
            order = shelf.first(partial(self._stands, shelf=shelf))
            if order is None:
                self.shelves.pop(shelf.lack, None)
            elif best is None or order < best:
                best = order
                found = self.groups[shelf.heap[0][2]]
        return found

    def first(self) -> str:
        """The first workload of all, parked or not; "" if nobody waits. One that waits for a limit, and what its user
        has behind it, is passed over: that is no reason for others to wait."""
        limited = self.limited()
        if not limited:
            return self._order[0][2] if self._order else ""
        best: Order | None = None
        for group in self.groups.values():
            ahead = limited.get(group.user)
            if (best is None or group.order < best) and (ahead is None or group.order < ahead.order):
                best = group.order
        return "" if best is None else best[2]

    def limited(self) -> dict[str, Group]:
        """By user, the first group that waits for a limit."""
        found: dict[str, Group] = {}
        for group in self.parked.values():
            if group.parked is not None and group.parked.limited:
                known = found.get(group.user)
                if known is None or group.order < known.order:
                    found[group.user] = group
        return found

    def front(self, group_of: Callable[[str], Group | None]) -> list[tuple[Order, Group]]:
        """Of the first `MOST_IN_FRONT` workloads those that are tried, one of each shape, in the queue's order."""
        if self._front is None:
            found: dict[int, tuple[Order, Group]] = {}
            for order in self._order[:MOST_IN_FRONT]:
                group = group_of(order[2])
                if group is not None and group.parked is None and group.shelf is None:
                    found.setdefault(id(group), (order, group))
            self._front = list(found.values())
        return self._front

    def position(self, group: Group, queued: int, uid: str) -> int:
        """1-based place of a workload in the order of the queue."""
        return bisect_left(self._order, (-group.priority, queued, uid)) + 1

    def in_order(self) -> Iterator[str]:
        """Every waiting workload in the queue's order."""
        return (uid for _, _, uid in self._order)
