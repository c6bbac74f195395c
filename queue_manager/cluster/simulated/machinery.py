"""Runs the simulated controllers: a queue of keys ordered by time, fed by the changes of the API server."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import ApiError
from queue_manager.cluster.simulated.storage import Change

Key = tuple[str, ...]

_FIRST_RETRY = 0.5
_LAST_RETRY = 30.0
_MOST_STEPS = 5_000_000


class Controller(Protocol):
    """One simulated controller."""

    def keys(self, change: Change) -> Iterable[Key]:
        """What has to be looked at after a change."""
        ...

    def reconcile(self, key: Key) -> float | None:
        """Brings one thing a step further; answers after how many seconds to look again, if at all."""
        ...


class Machinery:
    """All controllers on one clock. `lag` is the longest time that a controller takes to notice a change (seeded)."""

    def __init__(self, controllers: Sequence[Controller], clock: Clock, random: Random, lag: float = 0.0) -> None:
        self._controllers = controllers
        self._clock = clock
        self._random = random
        self._lag = lag
        self._queue: list[tuple[float, int, int, Key]] = []
        self._due: dict[tuple[int, Key], float] = {}
        self._failures: dict[tuple[int, Key], int] = {}
        self._order = count()
        self._changed = asyncio.Event()
        self.errors: dict[Key, ApiError] = {}

    def noticed(self, change: Change) -> None:
        """Queues what the change concerns."""
        for number, controller in enumerate(self._controllers):
            for key in controller.keys(change):
                self._schedule(number, key, self._lag * self._random.random() if self._lag else 0.0)

    def step(self) -> int:
        """Does everything that is due now, and what follows from it at once; answers how much it was."""
        done = 0
        while self._queue and self._queue[0][0] <= self._clock.monotonic():
            due, _, number, key = heapq.heappop(self._queue)
            if self._due.get((number, key)) != due:
                continue  # queued again for another time
            del self._due[(number, key)]
            self._reconcile(number, key)
            done += 1
            if done > _MOST_STEPS:
                raise RuntimeError(f"the simulated controllers never come to rest; last: {key}")
        return done

    def next_due(self) -> float | None:
        """When (monotonic) there is something to do, as far as known now."""
        while self._queue and self._due.get((self._queue[0][2], self._queue[0][3])) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    async def run(self) -> None:
        """Steps whenever something is due, until cancelled."""
        while True:
            self._changed.clear()
            self.step()
            due = self.next_due()
            await self._wait(None if due is None else due - self._clock.monotonic())

    async def _wait(self, seconds: float | None) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        waits: set[asyncio.Future[Any]] = {changed}
        if seconds is not None:
            waits.add(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _reconcile(self, number: int, key: Key) -> None:
        try:
            again = self._controllers[number].reconcile(key)
        except ApiError as error:
            failures = self._failures[(number, key)] = self._failures.get((number, key), 0) + 1
            self.errors[key] = error
            again = min(_LAST_RETRY, _FIRST_RETRY * 2 ** min(failures - 1, 10))
        else:
            if self._failures.pop((number, key), None):
                self.errors.pop(key, None)
        if again is not None:
            self._schedule(number, key, again)

    def _schedule(self, number: int, key: Key, delay: float) -> None:
        due = self._clock.monotonic() + delay
        known = self._due.get((number, key))
        if known is not None and known <= due:
            return
        self._due[(number, key)] = due
        heapq.heappush(self._queue, (due, next(self._order), number, key))
        self._changed.set()
