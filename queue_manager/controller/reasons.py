"""Keeps the numbers of explanations true: a plan tells only reasons whose kind changed, usage changes all the time."""

from __future__ import annotations

import heapq
from collections import deque
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
"""How many waiting workloads (or running ones that ask for more pods) are explained anew in a round: the first of each
queue, this many in all."""
SLICE = 0.02
"""Seconds of a round in one go: decisions wait for it."""
REST = 20
"""So many times as long as a slice took nothing is explained: no more than a twentieth of the time goes into it."""


class Reasons:
    """When to look again at why the first ones of each queue wait, and what to write then."""

    def __init__(self, picture: Picture, clock: Clock) -> None:
        self._picture = picture
        self._clock = clock
        self._stale = False
        self._next = clock.monotonic() + EVERY
        self._left: deque[str] = deque()
        self._written: dict[str, tuple[str, int]] = {}

    def something_happened(self) -> None:
        """Usage, nodes or the queue changed."""
        self._stale = True

    def pause(self, longest: float) -> float:
        """Seconds until the next look, at most `longest`."""
        if not (self._stale or self._left):
            return longest
        return min(longest, max(0.0, self._next - self._clock.monotonic()))

    def is_time(self) -> bool:
        """Whether a round begins: something happened, and the last look was long enough ago."""
        return self._stale and not self._left and self._clock.monotonic() >= self._next

    def due(self) -> list[Change]:
        """Explanations whose numbers or positions are no longer true, once it is time; [] before. A round that takes
        long is cut into slices."""
        began = self._clock.monotonic()
        if self.is_time():
            self._stale = False
            rows = self._first_of_each_queue()
            self._written = {row.uid: self._written[row.uid] for row in rows if row.uid in self._written}
            self._left.extend(row.uid for row in rows)
        elif not self._left or began < self._next:
            return []
        changes = []
        while self._left and self._clock.monotonic() < began + SLICE:
            row = self._picture.rows.get(self._left.popleft())
            if row is not None and _is_explained(row) and (change := self._again(row)) is not None:
                changes.append(change)
        now = self._clock.monotonic()
        self._next = now + max(0.0 if self._left else EVERY, REST * (now - began))
        return changes

    def _first_of_each_queue(self) -> list[WorkloadRow]:
        uids = dict.fromkeys(map(owner_uid, self._picture.engine.first_waiting(PER_QUEUE)))
        rows = (self._picture.rows.get(uid) for uid in uids)
        waiting = [row for row in rows if row is not None and _is_explained(row)]
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


def _is_explained(row: WorkloadRow) -> bool:
    return row.state is State.WAITING or is_elastic(row)
