"""A clock that stands still until it is moved, for tests and simulation."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)

_MOST_TURNS = 100_000


class VirtualClock:
    """Sleepers wake in the order of their times, then of their calls, while `advance` or `run_until` moves the time."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._passed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        """The virtual time of day."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Virtual seconds since the start."""
        return self._passed

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock has been moved so far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Moves the clock; each sleeper wakes at its own time and everyone acts on it before time goes on."""
        target = self._passed + seconds
        await settle()
        while (due := self._next_due()) is not None and due <= target:
            self._passed = max(self._passed, due)
            self._wake()
            await settle()
        self._passed = target
        await settle()

    async def run_until(self, happened: Callable[[], Any], within: float = 600.0, what: str = "") -> None:
        """Moves the clock from sleeper to sleeper until `happened()` is true; TimeoutError after `within` seconds."""
        target = self._passed + within
        await settle()
        while not happened():
            due = self._next_due()
            if due is None or due > target:
                raise TimeoutError(what or f"did not happen within {within} virtual seconds")
            self._passed = max(self._passed, due)
            self._wake()
            await settle()

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():  # cancelled sleepers
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self) -> None:
        while self._sleepers and (self._sleepers[0][0] <= self._passed or self._sleepers[0][2].done()):
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


async def settle() -> None:
    """Lets every other task run until all of them wait for something."""
    # asyncio has no public way to ask whether anything is ready; without the attribute a number of turns must do.
    ready: deque[Any] | None = getattr(asyncio.get_running_loop(), "_ready", None)
    await asyncio.sleep(0)
    for turn in range(_MOST_TURNS):
        if not ready if ready is not None else turn >= 50:
            return
        await asyncio.sleep(0)
    raise RuntimeError("a task never stops to be busy")
