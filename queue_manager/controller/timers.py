"""When time alone may change a workload: its next deadline, in order."""

from __future__ import annotations

import heapq
from datetime import datetime


class Timers:
    """One time a workload. What is due is taken out; it is set again when its row is committed or read."""

    def __init__(self) -> None:
        self._when: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def put(self, uid: str, when: datetime | None) -> None:
        """Sets or clears the time of a workload."""
        if when is None:
            self._when.pop(uid, None)
        elif self._when.get(uid) != when:
            self._when[uid] = when
            heapq.heappush(self._heap, (when, uid))

    def of(self, uid: str) -> datetime | None:
        """The time of a workload, if it has one."""
        return self._when.get(uid)

    def next(self) -> datetime | None:
        """The earliest time of all."""
        while self._heap and self._when.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: datetime) -> set[str]:
        """Takes out the workloads whose time has come."""
        found = set()
        while (when := self.next()) is not None and when <= now:
            uid = heapq.heappop(self._heap)[1]
            del self._when[uid]
            found.add(uid)
        return found
