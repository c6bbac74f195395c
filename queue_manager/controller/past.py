"""What is over: ended workloads leave the hot tables, and what is older than the settings keep is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from queue_manager.cluster.clock import Clock
from queue_manager.config.compiled import Settings
from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)

SETTLED = timedelta(hours=1)
"""So long a workload that ended stays among the live ones: a job that comes back to life mostly does so at once."""
AT_ONCE = 500
"""Workloads moved in one transaction: some ten milliseconds, which nobody waits for."""


class Past:
    """Each method is one turn of a timed job; what fails is logged and tried again by the next turn. Calls of the
    database are made beside the leader's own, which do not wait for them."""

    def __init__(self, store: Store, clock: Clock, settings: Callable[[], Settings]) -> None:
        self._store = store
        self._requests = RequestStore(store.engine)
        self._clock = clock
        self._settings = settings

    async def move(self) -> None:
        """Moves what ended a while ago into the history."""
        before = self._clock.now() - SETTLED
        try:
            while await asyncio.to_thread(self._store.move_to_history, before, AT_ONCE) == AT_ONCE:
                pass
        except SQLAlchemyError as error:
            log.warning("ended workloads not moved into the history", error=str(error))

    async def keep(self) -> None:
        """Makes the partitions to come and drops those older than the settings keep."""
        settings, now = self._settings(), self._clock.now()
        try:
            kept = await asyncio.to_thread(
                self._store.keep_history,
                now,
                _before(now, settings.keep_workloads),
                _before(now, settings.keep_usage),
            )
        except SQLAlchemyError as error:
            log.warning("partitions of the history not kept", error=str(error))
            return
        if kept.dropped:
            log.info("history forgotten", partitions=kept.dropped)

    async def purge(self) -> None:
        """Forgets events and answers of the API that are kept no longer."""
        now = self._clock.now()
        try:
            await asyncio.to_thread(self._requests.purge, _before(now, self._settings().keep_events), now)
        except SQLAlchemyError as error:
            log.warning("old events not forgotten", error=str(error))


def _before(now: datetime, microseconds: int) -> datetime:
    """`now` less a duration; the oldest time that there is where that is before it."""
    oldest = datetime(1, 1, 2, tzinfo=UTC)
    return max(oldest, now - min(timedelta(microseconds=microseconds), now - oldest))
