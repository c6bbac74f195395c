"""The controller: follows until it may lead, leads for a term, and starts over when a term ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from queue_manager.cluster.clock import Backoff, Clock, SystemClock
from queue_manager.cluster.port import ApiError, Cluster
from queue_manager.controller.in_thread import InThread, one_thread
from queue_manager.controller.leader import RENEW, DatabaseLease, KubernetesLease
from queue_manager.controller.term import Term
from queue_manager.controller.timed import timed_jobs
from queue_manager.store.listen import listen
from queue_manager.store.notify import CONFIGURATION, INSTRUCTIONS
from queue_manager.store.records import StaleEpoch
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)

Timed = Callable[[Term, Store, InThread, Clock], Coroutine[Any, Any, None]]


class LostLease(Exception):
    """Another process leads now, or the lease could not be renewed in time."""


class Controller:
    """Runs until cancelled. `term` is the current term, None while another process leads."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        *,
        holder: str,
        clock: Clock | None = None,
        random: Random | None = None,
        in_thread: InThread | None = None,
        lease_namespace: str = "",
        hints: Callable[[], AsyncIterator[str]] | None = None,
        timed: Timed = timed_jobs,
        virtual: bool = False,
        events: bool | None = None,
    ) -> None:
        """`hints` are notifications of the store; `timed` runs timed work. `virtual`: `clock` times the lease, not
        the database (simulation). `events`: whether events are written on jobs, None for as the Settings say."""
        self._store = store
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._in_thread = in_thread or one_thread()
        self._lease_thread = in_thread or one_thread()
        self._lease = DatabaseLease(store, holder, self._clock, self._lease_thread, virtual=virtual)
        self._hints = hints or partial(listen, store, (CONFIGURATION, INSTRUCTIONS))
        self._timed = timed
        self._events = events
        self._kubernetes_lease = (
            KubernetesLease(cluster, lease_namespace, "queue-manager-controller", holder, self._clock)
            if lease_namespace
            else None
        )
        self.term: Term | None = None
        self.last_error = ""

    @property
    def ready(self) -> bool:
        """Whether it leads and has caught up, or follows a leader."""
        return self.term is None or self.term.ready

    async def run(self) -> None:
        """Follows and leads in turns; a failed dependency is waited for with growing pauses, visibly."""
        backoff = Backoff(self._random, first=0.5, greatest=30.0)
        while True:
            pause = RENEW / 2
            try:
                if await self._acquire():
                    await self._lead(backoff)
            except* (SQLAlchemyError, ApiError, OSError, StaleEpoch, LostLease) as group:
                self.last_error = "; ".join(_flat(group))
                log.warning("term ended", epoch=self._lease.epoch, error=self.last_error)
                pause = backoff.next()
            # Not where the error is handled: meanwhile it would keep alive all that the term had in memory.
            await self._clock.sleep(pause)

    async def _acquire(self) -> bool:
        if not await self._lease.acquire():
            return False
        if self._kubernetes_lease is not None and not await self._kubernetes_lease.acquire():
            await self._lease.give_up()
            return False
        return True

    async def _lead(self, backoff: Backoff) -> None:
        log.info("leading", epoch=self._lease.epoch)
        self.term = Term(
            self._store,
            self._cluster,
            self._lease.epoch,
            clock=self._clock,
            random=self._random,
            in_thread=self._in_thread,
            valid=lambda: self._lease.valid,
            events=self._events,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew())
                group.create_task(self._renew_kubernetes_lease())
                group.create_task(self._listen(self.term))
                group.create_task(self._timed(self.term, self._store, self._in_thread, self._clock))
                group.create_task(self.term.run())
        finally:
            if self.term.ready:
                # A term that fails before it has caught up is not begun again at once: each reads the whole cluster.
                backoff.reset()
            self.term = None
            with suppress(SQLAlchemyError):
                await self._lease.give_up()
            if self._kubernetes_lease is not None:
                with suppress(ApiError):
                    await self._kubernetes_lease.give_up()

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RENEW)
            if not await self._lease.renew():
                raise LostLease("another process took the database lease")

    async def _renew_kubernetes_lease(self) -> None:
        """Beside the database lease, which must not wait for an API server that does not answer. While that is away
        nobody can take the Lease, nor can we write anything that it guards."""
        while self._kubernetes_lease is not None:
            await self._clock.sleep(RENEW)
            try:
                kept = await self._kubernetes_lease.acquire()
            except ApiError as error:
                if not error.transient:
                    raise
                log.warning("the Kubernetes Lease is not renewed", error=str(error))
                continue
            if not kept:
                raise LostLease("another process took the Kubernetes Lease")

    async def _listen(self, term: Term) -> None:
        async for channel in self._hints():
            if channel == CONFIGURATION:
                term.configuration_changed()
            elif channel == INSTRUCTIONS:
                term.instructions_given()


def _flat(group: BaseExceptionGroup[BaseException]) -> list[str]:
    words = []
    for error in group.exceptions:
        words.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [f"{type(error).__name__}: {error}"])
    return words
