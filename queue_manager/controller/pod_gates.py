"""Lets pods through to the scheduler: those of pinned pod sets to their places, those of elastic jobs as many as are
admitted. Each when it appears: pods of later stages, and followers of a leader, are there only once others run.

Decided anew from the row and the pods each time, so that a crash at any point does no harm. What was let through is
remembered until the caches show it: else one pod more could run than is admitted, or two at one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import ApiError, Object
from queue_manager.controller.pod_events import PodEvents
from queue_manager.controller.seats import Let, Seats
from queue_manager.controller.tasks import Tasks
from queue_manager.kinds.kind import Write
from queue_manager.store.records import State, WorkloadRow

log = structlog.get_logger(__name__)

PARALLEL = 64
"""Pods let through at once, of all workloads together."""


def runs(row: WorkloadRow) -> bool:
    """Whether pods of the row's workload may be let through. While it is being started there may still be some of an
    earlier start."""
    return row.state is State.RUNNING and row.admission is not None


class PodGates:
    """`row` answers the row as last committed, `may_write` whether the lease still holds. `events` say why a pod stays
    behind its gate."""

    def __init__(
        self,
        seats: Seats,
        row: Callable[[str], WorkloadRow | None],
        may_write: Callable[[], bool],
        send: Callable[[Write], Awaitable[Object | None]],
        clock: Clock,
        random: Random,
        events: PodEvents,
        *,
        parallel: int = PARALLEL,
    ) -> None:
        self._seats = seats
        self._row = row
        self._may_write = may_write
        self._send = send
        self._clock = clock
        self._random = random
        self._events = events
        self._lanes = asyncio.Semaphore(parallel)
        self._passed: dict[str, dict[str, int]] = {}
        self._tasks = Tasks()
        self._backoffs: dict[str, Backoff] = {}
        self._resting: dict[str, set[str]] = {}
        self._held_up: set[str] = set()

    def passed(self, uid: str) -> frozenset[str]:
        """Pods of a workload that were let through by this process, by uid."""
        return frozenset(self._passed.get(uid, ()))

    def look(self, uid: str) -> None:
        """The row or the pods of a workload changed: let through who may run now."""
        try:
            self._look(uid)
        except Exception:
            log.exception("gates of pods failed; they are looked at again later", workload=uid)
            self._look_later(uid)

    def nodes_changed(self) -> None:
        """Pods that wait for a node may have it now."""
        for uid in sorted(self._held_up):
            self.look(uid)

    async def close(self) -> None:
        """Cancels every task."""
        await self._tasks.close()
        await self._events.close()

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._passed.pop(uid, None)
        self._backoffs.pop(uid, None)
        self._held_up.discard(uid)
        self._events.forget(uid)

    def _look(self, uid: str) -> None:
        row = self._row(uid)
        self._held_up.discard(uid)
        if row is None or not runs(row):
            self._passed.pop(uid, None)
            return
        passed = self._passed.setdefault(uid, {})
        found = self._seats.find(row, passed)
        for pod in passed.keys() - found.there:
            del passed[pod]
        if not passed and not found.let:
            del self._passed[uid]
        if found.held_up:
            self._held_up.add(uid)
        for surplus, message in found.left:
            self._events.tell(row, surplus, message)
        resting = self._resting.get(uid, ())
        for let in found.let:
            if let.pod not in resting:
                # Noted before it is sent: an answer may get lost.
                passed[let.pod] = let.slot
                self._tasks.spawn(self._let_through(uid, row, let))

    async def _let_through(self, uid: str, row: WorkloadRow, let: Let) -> None:
        async with self._lanes:
            if not self._still(uid, row):
                # Fewer may run by now, or none, or elsewhere: decided anew.
                self._passed.get(uid, {}).pop(let.pod, None)
                self._look_later(uid, at_once=True)
                return
            try:
                if not self._may_write():
                    raise ApiError(0, "NotLeading", "the lease is not certain at present")
                await self._send(let.write)
            except Exception as error:
                self._failed(uid, let, error)
            else:
                self._backoffs.pop(uid, None)
                log.info("written", workload=uid, write=let.write.says, pod=let.write.name)

    def _still(self, uid: str, decided: WorkloadRow) -> bool:
        """Whether what the row says of its pods is what it said when a write was decided."""
        row = self._row(uid)
        if row is decided:
            return True
        if row is None or not runs(row) or row.attempt != decided.attempt:
            return False
        assert row.admission is not None
        assert decided.admission is not None
        same = row.admission.admission.pod_sets == decided.admission.admission.pod_sets
        return same and row.pod_groups == decided.pod_groups

    def _failed(self, uid: str, let: Let, error: Exception) -> None:
        if isinstance(error, ApiError) and error.not_found:
            return  # the watch tells that it is gone
        log.warning("a pod was not let through, tried again", workload=uid, pod=let.write.name, error=repr(error))
        self._passed.get(uid, {}).pop(let.pod, None)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self._look_later(uid, let.pod, retry_after=retry_after)

    def _look_later(self, uid: str, pod: str = "", *, at_once: bool = False, retry_after: float | None = None) -> None:
        """One look is waited for at a time, and sees all that failed until then; `pod` rests till then."""
        waited_for = uid in self._resting
        self._resting.setdefault(uid, set()).add(pod)
        if not waited_for:
            backoff = self._backoffs.setdefault(uid, Backoff(self._random, first=0.2, greatest=30.0))
            self._tasks.spawn(self._look_after(uid, 0.0 if at_once else backoff.next(retry_after)))

    async def _look_after(self, uid: str, pause: float) -> None:
        await self._clock.sleep(pause)
        self._resting.pop(uid, None)
        self.look(uid)
