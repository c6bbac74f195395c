"""Takes out of the outbox what executors have done."""

from __future__ import annotations

import asyncio

from queue_manager.cluster.clock import Clock
from queue_manager.controller.executor import Executors
from queue_manager.controller.in_thread import InThread
from queue_manager.store.store import Store

SETTLE = 0.5
"""Seconds in which actions that are done are gathered before they are taken out of the outbox."""


class Settling:
    """A moment after the actions: decisions need not wait for it, and doing an action again does no harm."""

    def __init__(self, store: Store, in_thread: InThread, epoch: int, executors: Executors, clock: Clock) -> None:
        self._store = store
        self._in_thread = in_thread
        self._epoch = epoch
        self._executors = executors
        self._clock = clock
        self._progress = asyncio.Event()
        executors.on_progress = self._progress.set

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._progress.wait()
            await self._clock.sleep(SETTLE)
            self._progress.clear()
            await self._settle()

    async def _settle(self) -> None:
        executors = self._executors
        done, executors.done = executors.done, []
        if ids := [id_ for id_ in done if id_]:
            await self._in_thread(self._store.outbox_done, self._epoch, ids, self._clock.now())
        failed, executors.failed = executors.failed, []
        if tries := [one for one in failed if one.id]:
            await self._in_thread(self._store.outbox_failed, self._epoch, tries, self._clock.now())
