"""Waiting workloads of one queue, in groups of equal shape, in the queue's order.

Order: priority (higher first), time queued, uid. Without `hold_freed_quota` a workload that has evicted others
stands first until it starts, as in Kueue. A group whose head failed is parked: none of its members is tried until
something changed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queue_manager.engine.ask import Shape
from queue_manager.engine.undo import UndoLog

if TYPE_CHECKING:
    from queue_manager.engine.nominate import Nomination
    from queue_manager.engine.prepared import Prepared

Order = tuple[int, int, str]
"""Negated priority, time queued, uid: smaller stands first."""


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

    `user` is whose they are where limits go by user, else "".
    """

    shape: Shape
    priority: int
    prepared: Prepared
    user: str = ""
    members: list[tuple[int, str]] = field(default_factory=list)
    parked: Parked | None = None
    told: tuple[object, ...] | None = None

    @property
    def order(self) -> Order:
        """Place of its first member."""
        return (-self.priority, *self.members[0])


class Pending:
    """The groups of one queue."""

    __slots__ = ("_heap", "_log", "groups", "size")

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self.groups: dict[Shape, Group] = {}
        self._heap: list[tuple[Order, Shape]] = []
        self.size = 0

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
        if group.shape not in self.groups:
            self.groups[group.shape] = group
        insort(group.members, (queued, uid))
        self.size += 1
        self._push(group)

    def _delete(self, group: Group, queued: int, uid: str) -> None:
        del group.members[bisect_left(group.members, (queued, uid))]
        self.size -= 1
        if group.members:
            self._push(group)
        else:
            del self.groups[group.shape]

    def park(self, group: Group, parked: Parked) -> None:
        """Stops trying a group, revocable."""
        self._log.call(self._set_parked, group, group.parked)
        group.parked = parked

    def unpark(self, group: Group) -> None:
        """Tries a group again, revocable."""
        if group.parked is not None:
            self._log.call(self._set_parked, group, group.parked)
            self._set_parked(group, None)

    def _set_parked(self, group: Group, parked: Parked | None) -> None:
        group.parked = parked
        if parked is None:
            self._push(group)

    def _push(self, group: Group) -> None:
        if group.members and group.parked is None:
            heapq.heappush(self._heap, ((-group.priority, *group.members[0]), group.shape))

    def head(self) -> tuple[Group, str] | None:
        """The first workload of all groups that are not parked."""
        heap = self._heap
        while heap:
            (rank, queued, uid), shape = heap[0]
            group = self.groups.get(shape)
            if (
                group is not None
                and group.parked is None
                and group.members[0] == (queued, uid)
                and -group.priority == rank
            ):
                return group, uid
            heapq.heappop(heap)
        return None

    def first(self) -> tuple[Group, str] | None:
        """The first workload of all, parked or not. One that waits for a limit, and what its user has behind it, is
        passed over: that is no reason for others to wait."""
        limited = self.limited()
        best: tuple[Order, Group] | None = None
        for group in self.groups.values():
            order = group.order
            ahead = limited.get(group.user)
            if (best is None or order < best[0]) and (ahead is None or order < ahead.order):
                best = (order, group)
        return None if best is None else (best[1], best[0][2])

    def limited(self) -> dict[str, Group]:
        """By user, the first group that waits for a limit."""
        found: dict[str, Group] = {}
        for group in self.groups.values():
            if group.parked is not None and group.parked.limited:
                known = found.get(group.user)
                if known is None or group.order < known.order:
                    found[group.user] = group
        return found

    def position(self, group: Group, queued: int, uid: str) -> int:
        """1-based place of a workload in the order of the queue."""
        ahead = 0
        for other in self.groups.values():
            if other.priority > group.priority:
                ahead += len(other.members)
            elif other.priority == group.priority:
                ahead += bisect_left(other.members, (queued, uid))
        return ahead + 1

    def in_order(self) -> Iterator[tuple[Group, str]]:
        """Every waiting workload in the queue's order."""
        rows = [((-g.priority, *member), g) for g in self.groups.values() for member in g.members]
        for order, group in sorted(rows, key=lambda row: row[0]):
            yield group, order[2]
