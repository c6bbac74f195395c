"""Lets the pods of elastic jobs through to the scheduler, as many as are admitted. One task a workload at a time.

Decided anew from the row and the pods each time, so that a crash at any point does no harm. What was let through is
remembered until the caches show it: else one pod more could run than is admitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import PODS, ApiError, Object
from queue_manager.controller.resizing import by_name, is_elastic
from queue_manager.engine.resize import running_pods
from queue_manager.kinds.gates import releases
from queue_manager.kinds.kind import Lookup, Write
from queue_manager.store.records import WorkloadRow

log = structlog.get_logger(__name__)


def admitted_pods(row: WorkloadRow) -> int:
    """How many pods may run."""
    assert row.admission is not None
    pod_sets = by_name(row.pod_groups)
    return sum(running_pods(pod_sets.get(p.name), p) for p in row.admission.admission.pod_sets)


class PodGates:
    """`row` answers the row as last committed, `may_write` whether the lease still holds."""

    def __init__(
        self,
        lookup: Lookup,
        row: Callable[[str], WorkloadRow | None],
        may_write: Callable[[], bool],
        send: Callable[[Write], Awaitable[Object | None]],
        clock: Clock,
        random: Random,
    ) -> None:
        self._lookup = lookup
        self._row = row
        self._may_write = may_write
        self._send = send
        self._clock = clock
        self._random = random
        self._passed: dict[str, set[str]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def passed(self, uid: str) -> frozenset[str]:
        """Pods of a workload that were let through by this process, by uid."""
        return frozenset(self._passed.get(uid, ()))

    def look(self, uid: str) -> None:
        """The row or the pods of a workload changed: let through who may run now."""
        if uid in self._running:
            self._again.add(uid)
        elif self._due(uid):
            task = asyncio.ensure_future(self._let_through(uid))
            self._running[uid] = task
            task.add_done_callback(lambda done: self._ended(uid, done))

    async def close(self) -> None:
        """Cancels every task."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._passed.pop(uid, None)

    def _due(self, uid: str) -> list[Write]:
        row = self._row(uid)
        if row is None or not is_elastic(row):
            self._passed.pop(uid, None)
            return []
        pods = self._lookup.owned_by(PODS, uid)
        passed = self._passed.get(uid, set())
        if passed:
            passed &= {pod["metadata"]["uid"] for pod in pods}
        return releases(pods, admitted_pods(row), passed)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        again = uid in self._again
        self._running.pop(uid)
        self._again.discard(uid)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("gates of pods failed", workload=uid, error=repr(error))
        if again:
            self.look(uid)

    async def _let_through(self, uid: str) -> None:
        backoff = Backoff(self._random, first=0.2, greatest=30.0)
        while due := self._due(uid):
            row = self._row(uid)
            try:
                for write in due:
                    if self._row(uid) is not row:
                        break  # fewer may run by now, or none: decided anew
                    if not self._may_write():
                        raise ApiError(0, "NotLeading", "the lease is not certain at present")
                    await self._pass(uid, write)
                backoff.reset()
            except ApiError as error:
                log.warning("a pod could not be let through, tried again", workload=uid, error=str(error))
                await self._clock.sleep(backoff.next(error.retry_after))

    async def _pass(self, uid: str, write: Write) -> None:
        pod = write.body[0]["value"]
        self._passed.setdefault(uid, set()).add(pod)  # before it is sent: an answer may get lost
        try:
            await self._send(write)
        except Exception as error:
            # Gone, or let through already: the watch tells which.
            if not isinstance(error, ApiError) or not (error.not_found or error.conflict):
                self._passed[uid].discard(pod)
                raise
        else:
            log.info("written", workload=uid, write=write.says, pod=write.name)
