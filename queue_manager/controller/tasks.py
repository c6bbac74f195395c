"""Tasks that run beside the leader's loop and end with its term."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    """Whatever fails in one is logged, and disturbs no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        """Begins a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("executor task failed", error=repr(error))

    async def close(self) -> None:
        """Cancels every task."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
