"""A bounded number of tasks that do the work of many: who waits for its turn costs an entry in a queue, who pauses one
in a heap."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.controller.outage import Outage
from queue_manager.controller.tasks import Tasks

log = structlog.get_logger(__name__)


class Workers:
    """Calls `work` with each uid that was put, for at most `most` at once; in an outage for one alone, between pauses.

    `urgent` says who goes before all who are not; `take` whether a uid still waits for its turn: it may have been put
    twice. `due` is told whose pause is over.
    """

    def __init__(
        self,
        clock: Clock,
        outage: Outage,
        most: int,
        urgent: Callable[[str], bool],
        take: Callable[[str], bool],
        due: Callable[[str], None],
        work: Callable[[str], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._outage = outage
        self._most = most
        self._urgent = urgent
        self._take = take
        self._due = due
        self._work = work
        self._first: deque[str] = deque()
        self._then: deque[str] = deque()
        self._paused: list[tuple[float, int, str]] = []
        self._order = count()
        self._alarm: tuple[float, asyncio.Task[None]] | None = None
        self._tasks = Tasks()
        self._working = 0

    def put(self, uid: str, *, back: bool = False) -> None:
        """Its turn comes after all that were put before; `back`: it had its turn already, and keeps its place."""
        turns = self._first if self._urgent(uid) else self._then
        if back:
            turns.appendleft(uid)
        else:
            turns.append(uid)
        self.go_on()

    def put_later(self, uid: str, pause: float) -> None:
        """Calls `due` after so many seconds."""
        heapq.heappush(self._paused, (self._clock.monotonic() + pause, next(self._order), uid))
        self._set_alarm()

    def go_on(self) -> None:
        """Sees to it that there are workers for who waits."""
        waiting = len(self._first) + len(self._then)
        while waiting and self._working < self._allowed():
            waiting -= 1
            self._working += 1
            self._tasks.spawn(self._run())

    def backlog(self) -> int:
        """How many are being worked on or wait for their turn; without those that pause."""
        return len(self._first) + len(self._then) + self._working

    async def close(self) -> None:
        """Ends all work where it stands."""
        if self._alarm is not None:
            self._alarm[1].cancel()
        await self._tasks.close()

    def _allowed(self) -> int:
        """How many may work now."""
        if not self._outage.active:
            return self._most
        return 0 if self._outage.pause > 0 else 1

    async def _run(self) -> None:
        try:
            while self._working <= self._allowed() and (uid := self._next()) is not None:
                try:
                    await self._work(uid)
                except Exception as error:
                    log.error("executor task failed", workload=uid, error=repr(error))
        finally:
            self._working -= 1

    def _next(self) -> str | None:
        while turns := self._first or self._then:
            if self._take(uid := turns.popleft()):
                return uid
        return None

    def _set_alarm(self) -> None:
        if not self._paused or (self._alarm is not None and self._alarm[0] <= self._paused[0][0]):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        when = self._paused[0][0]
        self._alarm = (when, asyncio.ensure_future(self._ring(when)))

    async def _ring(self, when: float) -> None:
        await self._clock.sleep(max(0.0, when - self._clock.monotonic()))
        self._alarm = None
        now = max(when, self._clock.monotonic())  # a sleep may end a moment too early
        while self._paused and self._paused[0][0] <= now:
            self._due(heapq.heappop(self._paused)[2])
        self._set_alarm()
