"""Keeps the numbers of explanations true: a plan tells only reasons whose kind changed, usage changes all the time."""

from __future__ import annotations

import heapq
from dataclasses import replace

from queue_manager.cluster.clock import Clock
from queue_manager.controller.explanations import explanation_of
from queue_manager.controller.picture import Picture
from queue_manager.controller.resizing import is_elastic, lacks
from queue_manager.engine.resize import owner_uid
from queue_manager.store.records import Change, State, WorkloadRow
from queue_manager.store.times import to_microseconds

EVERY = 2.0
"""Seconds between two looks, and only if something happened since."""
PER_QUEUE = 10
MOST = 200
"""How many waiting workloads (or running ones that ask for more pods) are explained anew at a time: the first of each
queue, this many in all."""


class Reasons:
    """When to look again at why the first ones of each queue wait, and what to write then."""

    def __init__(self, picture: Picture, clock: Clock) -> None:
        self._picture = picture
        self._clock = clock
        self._stale = False
        self._looked = clock.monotonic()
        self._written: dict[str, tuple[str, int]] = {}

    def something_happened(self) -> None:
        """Usage, nodes or the queue changed."""
        self._stale = True

    def pause(self, longest: float) -> float:
        """Seconds until the next look, at most `longest`."""
        return min(longest, max(0.0, self._looked + EVERY - self._clock.monotonic())) if self._stale else longest

    def is_time(self) -> bool:
        """Whether something happened, and the last look was long enough ago."""
        return self._stale and self._clock.monotonic() >= self._looked + EVERY

    def due(self) -> list[Change]:
        """Explanations whose numbers or positions are no longer true, once it is time; [] before."""
        if not self.is_time():
            return []
        self._stale, self._looked = False, self._clock.monotonic()
        rows = self._first_of_each_queue()
        self._written = {row.uid: self._written[row.uid] for row in rows if row.uid in self._written}
        return [change for row in rows if (change := self._again(row)) is not None]

    def _first_of_each_queue(self) -> list[WorkloadRow]:
        uids = dict.fromkeys(map(owner_uid, self._picture.engine.first_waiting(PER_QUEUE)))
        rows = (self._picture.rows.get(uid) for uid in uids)
        waiting = [row for row in rows if row is not None and (row.state is State.WAITING or is_elastic(row))]
        return heapq.nsmallest(MOST, waiting, key=lambda row: (-row.priority, row.created_at, row.uid))

    def _again(self, row: WorkloadRow) -> Change | None:
        now = self._clock.now()
        waiting = self._picture.engine.explain(row.uid, to_microseconds(now))
        if waiting is None or waiting.reason.value != row.reason:
            return None  # the next plan tells
        message = lacks(row, waiting) if is_elastic(row) else waiting.message
        written = (message, waiting.position)
        known = self._written.get(row.uid)
        self._written[row.uid] = written
        if known == written or (known is None and message == row.message):
            return None
        explanation = explanation_of(waiting, row, self._picture.rows, now)
        return Change(row=replace(row, message=message), explanation=explanation)
