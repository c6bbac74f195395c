"""Follows the table of events for all streams of a process: one listener, one reader, a ring of the last events.

A stream only has a place in the order. Who is slow falls out of the ring and reads from the table from then on, so no
stream costs memory, and none can be left out.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from queue_manager.store.events import CONFIGURATION as REVISION
from queue_manager.store.events import Event, Range
from queue_manager.store.listen import listen
from queue_manager.store.notify import CHANGED, CONFIGURATION, INSTRUCTIONS
from queue_manager.store.requests import RequestStore

from ..seats import Locks, Seats

log = structlog.get_logger(__name__)

BATCH = 500
RING = 5_000
"""Events that are kept in memory; a stream that is further behind reads the table."""


class Hub:
    """Runs while somebody follows. All methods are for one event loop."""

    def __init__(self, store: RequestStore, locks: Locks | None = None) -> None:
        """`locks` are of servers that have several processes."""
        self._store = store
        self.seats = Seats(locks)
        """Streams that somebody may have."""
        self._ring: list[Event] = []
        self._floor = self._last = 0
        self._streams = 0
        self._grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._revisions = 0
        self.closing = asyncio.Event()
        """Set when the process ends: every stream does, too."""

    @property
    def streams(self) -> int:
        """How many follow now."""
        return self._streams

    @property
    def revisions(self) -> int:
        """Grows with each revision of the configuration that was read while somebody followed."""
        return self._revisions

    def close(self) -> None:
        """Ends all streams at once; to be called in the event loop."""
        self.closing.set()

    async def begin(self) -> Range:
        """Which events there are; from now on the hub follows, until `end` was called as often, whatever became of
        this."""
        self._streams += 1
        async with self._starting:
            known = await run_in_threadpool(self._store.known_events)
            if self._task is None:
                self._ring, self._floor, self._last = [], known.last, known.last
                self._task = asyncio.create_task(self._listen())
            return known

    async def end(self) -> None:
        """A stream is over."""
        self._streams -= 1
        if self._streams == 0 and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def follow(self, after: int, heartbeat: float) -> AsyncIterator[list[Event]]:
        """Batches of what comes after an id, for ever; an empty one when there was nothing for `heartbeat` seconds."""
        while True:
            grown = self._grown
            batch = await self._batch(after)
            if batch:
                after = batch[-1].id
                yield batch
                continue
            try:
                await asyncio.wait_for(grown.wait(), heartbeat)
            except TimeoutError:
                yield []

    async def _batch(self, after: int) -> list[Event]:
        if after < self._floor:
            return await run_in_threadpool(self._store.events_after, after, BATCH)
        start = bisect_right(self._ring, after, key=lambda event: event.id)
        return self._ring[start : start + BATCH]

    async def _listen(self) -> None:
        async for _ in listen_to(self._store):
            try:
                await self._read()
            except SQLAlchemyError as error:
                log.warning("events not read", error=str(error))

    async def _read(self) -> None:
        while found := await run_in_threadpool(self._store.events_after, self._last, BATCH):
            self._revisions += sum(event.type == REVISION for event in found)
            self._ring += found
            self._last = found[-1].id
            if len(self._ring) > 2 * RING:
                self._floor = self._ring[-RING - 1].id
                del self._ring[:-RING]
            grown, self._grown = self._grown, asyncio.Event()
            grown.set()


def listen_to(store: RequestStore) -> AsyncIterator[str]:
    """Hints that there may be events."""
    url = store.engine.url.render_as_string(hide_password=False)
    return listen(url, (CHANGED, CONFIGURATION, INSTRUCTIONS))
