"""Which waiting workloads of a queue take part in its order where their number is limited (`waiting`, `maxJobs`).

Three stages, one after the other: of each user the first ones in the queue's order take part, of these the first ones
of each group, of these the first ones of the queue. So one user's surplus takes nobody else's place. Whoever has no
seat waits outside the order until one is free. The seats depend on the workloads alone, not on the order of events.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from queue_manager.engine.configuration import Limits
from queue_manager.engine.limits import MAX_JOBS, WAITING, WHOLE, LimitHit, Party, limits_of
from queue_manager.engine.shelves import Order
from queue_manager.engine.undo import UndoLog


@dataclass(eq=False, slots=True)
class Line:
    """Waiting workloads of one party in the queue's order; the first `seats` of them are seated."""

    seats: int
    entries: list[Order] = field(default_factory=list)


class Seats:
    """All lines of one queue. Every change is revocable and answers whose seat changed: uid -> seated."""

    __slots__ = ("_limits", "_lines", "_log", "_missing", "_orders", "_parties")

    def __init__(self, limits: Limits, log: UndoLog) -> None:
        self._limits = limits
        self._log = log
        self._lines: dict[Party, Line] = {}
        self._parties: dict[str, tuple[tuple[Party, ...], ...]] = {}
        self._orders: dict[str, Order] = {}
        self._missing: dict[tuple[int, str], int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._orders

    def add(self, order: Order, parties: tuple[Party, ...], seats: int) -> dict[str, bool]:
        """A workload waits from now on. `seats` is how many of the whole queue may take part."""
        uid = order[2]
        stages: tuple[tuple[Party, ...], ...] = (
            tuple(party for party in parties if party[0] == "user" and self._limits.per_user.waiting is not None),
            tuple(party for party in parties if party[0] == "group" and self._limits.per_group.waiting is not None),
            (WHOLE,) if self._limits.max_jobs is not None else (),
        )
        if stages[2]:
            self._line(WHOLE)
        changes = self.resize(seats)
        self._log.put(self._orders, uid, order)
        self._log.put(self._parties, uid, stages)
        self._enter(0, order, changes)
        changes.setdefault(uid, False)
        return changes

    def discard(self, uid: str) -> dict[str, bool]:
        """It does not wait any more."""
        changes: dict[str, bool] = {}
        order = self._orders[uid]
        self._leave(0, order, changes)
        self._log.drop(self._orders, uid)
        self._log.drop(self._parties, uid)
        for stage in range(3):
            self._log.drop(self._missing, (stage, uid))
        changes.pop(uid, None)
        return changes

    def resize(self, seats: int) -> dict[str, bool]:
        """Another number of the whole queue may take part."""
        changes: dict[str, bool] = {}
        line = self._lines.get(WHOLE)
        if line is None or line.seats == seats:
            return changes
        low, high = sorted((max(0, line.seats), max(0, seats)))
        for order in line.entries[low:high]:
            changes[order[2]] = seats > line.seats
            self._miss(2, order, -1 if seats > line.seats else 1)
        self._log.assign(line, "seats", seats)
        return changes

    def hit(self, uid: str, running: int) -> LimitHit | None:
        """The limit that keeps a workload without seat outside; None when it has one."""
        order = self._orders[uid]
        for stage, parties in enumerate(self._parties[uid]):
            for party in parties:
                line = self._lines.get(party)
                if line is not None and bisect_left(line.entries, order) >= max(0, line.seats):
                    if party is WHOLE:
                        limit = self._limits.max_jobs or 0
                        return LimitHit(party, MAX_JOBS, limit, running + max(0, line.seats), 1)
                    return LimitHit(party, WAITING, line.seats, line.seats, 1)
            if self._missing.get((stage, uid)):
                break
        return None

    # ---- stages

    def _line(self, party: Party) -> Line:
        line = self._lines.get(party)
        if line is None:
            seats = self._limits.max_jobs if party is WHOLE else limits_of(self._limits, party).waiting
            line = self._lines[party] = Line(seats or 0)
        return line

    def _enter(self, stage: int, order: Order, changes: dict[str, bool]) -> None:
        uid = order[2]
        if stage == 3:
            changes[uid] = True
            return
        for party in self._parties[uid][stage]:
            line = self._line(party)
            self._insert(line, order)
            self._log.call(self._delete, line, order)
            if bisect_left(line.entries, order) >= line.seats:
                self._miss(stage, order, 1)
            elif len(line.entries) > line.seats:
                self._fall(stage, line.entries[line.seats], changes)
        if not self._missing.get((stage, uid)):
            self._enter(stage + 1, order, changes)

    def _leave(self, stage: int, order: Order, changes: dict[str, bool]) -> None:
        uid = order[2]
        if stage == 3:
            changes[uid] = False
            return
        seated = not self._missing.get((stage, uid))
        for party in self._parties[uid][stage]:
            line = self._line(party)
            inside = bisect_left(line.entries, order) < line.seats
            self._delete(line, order)
            self._log.call(self._insert, line, order)
            if not inside:
                self._miss(stage, order, -1)
            elif len(line.entries) >= line.seats > 0:
                self._rise(stage, line.entries[line.seats - 1], changes)
        if seated:
            self._leave(stage + 1, order, changes)

    def _fall(self, stage: int, order: Order, changes: dict[str, bool]) -> None:
        """A workload loses its place in one line."""
        if not self._missing.get((stage, order[2])):
            self._leave(stage + 1, order, changes)
        self._miss(stage, order, 1)

    def _rise(self, stage: int, order: Order, changes: dict[str, bool]) -> None:
        """A workload gets a place in one line."""
        self._miss(stage, order, -1)
        if not self._missing.get((stage, order[2])):
            self._enter(stage + 1, order, changes)

    def _miss(self, stage: int, order: Order, by: int) -> None:
        """In how many lines of a stage a workload has no place."""
        key = (stage, order[2])
        self._log.put(self._missing, key, self._missing.get(key, 0) + by)

    @staticmethod
    def _insert(line: Line, order: Order) -> None:
        insort(line.entries, order)

    @staticmethod
    def _delete(line: Line, order: Order) -> None:
        del line.entries[bisect_left(line.entries, order)]
