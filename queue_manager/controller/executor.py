"""Executors: bring job objects in line with their rows. One task a workload at a time; events and annotations aside.

An executor never trusts what it sent: after each write it decides again from the row and the newest object, so a
repeated or half done action is repaired by doing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import PODS, ApiError, Cluster, Object, PatchType, Query
from queue_manager.controller.brain import Brain
from queue_manager.controller.messages import that_it_runs
from queue_manager.controller.notes import Notes
from queue_manager.controller.tasks import Tasks
from queue_manager.kinds.kind import (
    Done,
    Kind,
    PlacementLost,
    Several,
    Step,
    Unresolvable,
    Wait,
    Write,
)
from queue_manager.store.records import Action, FailedTry, OutboxEntry, State, WorkloadRow

log = structlog.get_logger(__name__)

PARALLEL_WRITES = 64
MOST_STEPS = 12
MOST_REPAIRS = 3
SETTLE_DOWN = 1.0
"""Seconds that a job which was started without its placement stays suspended at least."""


@dataclass
class _Pending:
    """Outbox rows that wait for the same thing."""

    since: float
    outbox: set[int] = field(default_factory=set)
    again: bool = False
    running: bool = False
    asked: bool = False


class Executors:
    """Schedules executor tasks; finished outbox ids are collected in `done` for the next commit."""

    def __init__(
        self, cluster: Cluster, brain: Brain, clock: Clock, random: Random, component: str = "queue-manager"
    ) -> None:
        self._cluster = cluster
        self._brain = brain
        self._clock = clock
        self._random = random
        self._pending: dict[str, _Pending] = {}
        self._stopped: dict[str, float] = {}
        self._made: dict[str, Object] = {}
        self._slots = asyncio.Semaphore(PARALLEL_WRITES)
        self._writes = asyncio.Semaphore(PARALLEL_WRITES)
        self._tasks = Tasks()
        self._notes = Notes(
            cluster, brain, clock, random, self._settle, lambda uid: self.on_idle(uid), self._is_writing, component
        )
        self.done: list[int] = []
        self.failed: list[FailedTry] = []
        self.on_progress: Callable[[], None] = lambda: None
        self.on_idle: Callable[[str], None] = lambda uid: None

    def submit(self, entry: OutboxEntry, last: WorkloadRow | None = None) -> None:
        """Takes over an outbox row; `last` is the row it was decided with, for when the workload has ended since."""
        if entry.action is Action.SYNC:
            pending = self._pending.setdefault(entry.uid, _Pending(since=self._clock.monotonic()))
            pending.outbox.add(entry.id)
            self.wake(entry.uid)
        else:
            self._notes.submit(entry, last)

    def wake(self, uid: str) -> None:
        """The workload's row or objects changed: look again, if something is to be done."""
        pending = self._pending.get(uid)
        if pending is None or not pending.outbox:
            return
        if pending.running:
            pending.again = True
            return
        pending.running = True
        self._tasks.spawn(self._sync_until_done(uid, pending))

    def busy(self, uid: str) -> bool:
        """Whether a write decided by an older row may still be on its way; `on_idle` tells who asked when not any
        more."""
        pending = self._pending.get(uid)
        if pending is None or not pending.running:
            return False
        pending.asked = True
        return True

    def _is_writing(self) -> bool:
        return any(pending.running for pending in self._pending.values())

    def relabels(self, uid: str) -> bool:
        """Whether labels of the workload may still be on their way; `on_idle` tells when not any more."""
        return self._notes.relabels(uid)

    def begin(self, rows: Iterable[WorkloadRow]) -> None:
        """A term begins: whose objects say something else than their rows is told by and by."""
        self._notes.messages.begin(rows)

    def changed(self, old: WorkloadRow | None, row: WorkloadRow) -> None:
        """A row as committed: people read of it on its object."""
        self._notes.messages.changed(old, row)

    def oldest_age(self) -> float:
        """Seconds since the oldest action that is not done yet was handed over; 0 when all is done."""
        now = self._clock.monotonic()
        return max((now - pending.since for pending in self._pending.values()), default=0.0)

    async def close(self) -> None:
        """Cancels every task; what they had not finished is still in the outbox."""
        await self._tasks.close()
        await self._notes.close()

    def _settle(self, ids: set[int]) -> None:
        self.done.extend(sorted(ids))
        self.on_progress()

    async def _sync_until_done(self, uid: str, pending: _Pending) -> None:
        backoff = Backoff(self._random, first=0.2, greatest=30.0)
        try:
            while True:
                pending.again = False
                ids = set(pending.outbox)
                finished, pause = False, None
                try:
                    async with self._slots:
                        finished = await self._sync(uid)
                    backoff.reset()
                except ApiError as error:
                    pause = backoff.next(error.retry_after)
                    until = self._clock.now() + timedelta(seconds=pause)
                    self.failed.extend(FailedTry(id_, str(error), until) for id_ in sorted(ids))
                    log.warning("write failed, tried again", workload=uid, error=str(error), pause=round(pause, 1))
                    self.on_progress()
                if pause is not None:
                    # Not where the error is handled: meanwhile it would keep alive all that the try had in hand.
                    await self._clock.sleep(pause)
                    continue
                if finished:
                    pending.outbox -= ids
                    self._settle(ids)
                if not pending.again:
                    break
        finally:
            pending.running = False
            self._made.pop(uid, None)
            if not pending.outbox:
                self._pending.pop(uid, None)
                if pending.asked:
                    self.on_idle(uid)

    async def _sync(self, uid: str) -> bool:
        """Steps until done (True) or until the cluster has to move first (False). Raises ApiError worth a pause."""
        refused = ""
        repairs = 0
        obj: Object | None = None
        for _ in range(MOST_STEPS):
            row = self._brain.row(uid)
            if row is None or row.state in (State.FINISHED, State.FAILED, State.RUNNING):
                return True
            if not self._brain.may_write():
                raise ApiError(0, "NotLeading", "the lease is not certain at present")
            obj = _newer(obj, self._brain.object_of(row))
            if obj is None:
                return await self._confirm_drained(row, None) if row.state is State.DRAINING else True
            if row.state is State.DRAINING and self._brain.kind_of(row).finished(obj) is not None:
                # Over by itself: its controller ends what is left, and a suspension would only confuse people.
                return await self._confirm_drained(row, obj)
            if row.state is State.STARTING and uid in self._stopped:
                await self._settle_down(uid)
                continue
            if row.state is State.STARTING and not await self._asks_the_same(row, obj):
                return True
            try:
                step = self._next_step(row, obj, refused)
            except PlacementLost as problem:
                repairs, step = repairs + 1, problem.repair
                if repairs > MOST_REPAIRS:
                    # Written again and lost again: whoever takes it away would do so for ever.
                    self._brain.report_refused(row.uid, problem.message)
                    return True
            except Unresolvable as problem:
                return self._give_up(row, problem)
            match step:
                case Done():
                    return row.state is not State.DRAINING or await self._confirm_drained(row, obj)
                case Wait():
                    return row.state is State.DRAINING and await self._confirm_drained(row, obj)
                case Several(writes=writes):
                    await self._perform_all(row, writes)
                    return False
                case Write():
                    obj, refused = await self._perform(row, step, obj, refused)
                    if refused and obj is None:
                        return True
        raise ApiError(0, "NoProgress", f"no end after {MOST_STEPS} steps; last refusal: {refused or 'none'}")

    async def _asks_the_same(self, row: WorkloadRow, obj: Object) -> bool:
        """As `Brain.refresh`. What a write of ours, which holds for one version only, has made of an object that was
        looked at is the same in that, as long as nobody changes its spec."""
        made = (self._made.get(row.uid) or {}).get("metadata", {}).get("generation")
        return (made is not None and made == obj["metadata"].get("generation")) or await self._brain.refresh(row, obj)

    def _give_up(self, row: WorkloadRow, problem: Unresolvable) -> bool:
        """No write of ours helps: a start is handed back, a stop is tried again after a pause. Raises ApiError."""
        if row.state is State.STARTING:
            self._brain.report_refused(row.uid, problem.message)
            return True
        if row.state is State.DRAINING:
            self._brain.report_stop_trouble(row.uid, problem.message)
        raise ApiError(0, problem.reason, problem.message)

    def _next_step(self, row: WorkloadRow, obj: Object, refused: str) -> Step:
        kind = self._brain.kind_of(row)
        if row.state is State.STARTING:
            if kind.is_suspended(obj) and self._runs_on(row, obj):
                return Wait("pods of an earlier start to end")
            return kind.next_start(obj, self._brain.placement_of(row), self._brain.lookup, refused=refused)
        drained = row.state is not State.DRAINING
        return kind.next_stop(obj, self._brain.lookup, drained=drained, refused=refused)

    async def _settle_down(self, uid: str) -> None:
        """A job that somebody else had started is left suspended for a moment. Its controller may be about to make pods
        by what it saw before, and may not notice a suspension that is over at once: they would stay where they are."""
        since = self._stopped.pop(uid, None)
        if since is not None:
            await self._clock.sleep(max(0.0, since + SETTLE_DOWN - self._clock.monotonic()))

    def _runs_on(self, row: WorkloadRow, obj: Object) -> bool:
        return bool(self._brain.live_pods(row.uid)) or self._brain.kind_of(row).is_active(obj, self._brain.lookup)

    async def _perform(self, row: WorkloadRow, write: Write, obj: Object, refused: str) -> tuple[Object | None, str]:
        """What came of a write: (newest object, "") after success or a conflict; (object, refusal) to try the longer
        way; (None, refusal) when the start is refused for good and the workload is handed back."""
        kind = self._brain.kind_of(row)
        try:
            result = await self._write(_only_to(row, kind, _with_words(row, kind, obj, write)))
        except ApiError as error:
            if error.not_found or error.conflict:
                return await self._read(row, kind), ""
            if error.transient:
                raise
            log.warning("write refused", workload=row.uid, write=write.says, error=str(error))
            if not refused:
                return obj, error.message
            if row.state is State.STARTING:
                self._brain.report_refused(row.uid, error.message)
                return None, error.message
            if row.state is State.DRAINING:
                self._brain.report_stop_trouble(row.uid, error.message)
            raise
        log.info("written", workload=row.uid, attempt=row.attempt, write=write.says)
        if refused and row.state is State.DRAINING:
            self._brain.report_stop_trouble(row.uid, write.says)
        if result is not None:
            self._brain.observe(write.resource, result)
            if write.resource == kind.resource and write.name == row.name:
                if row.state is not State.DRAINING and kind.is_suspended(result) and not kind.is_suspended(obj):
                    self._stopped[row.uid] = self._clock.monotonic()
                self._made[row.uid] = result
                return result, refused
        return obj, refused

    async def _perform_all(self, row: WorkloadRow, writes: Sequence[Write]) -> None:
        """Sends writes together; what the watches show of them makes the executor look again. Raises ApiError."""

        async def perform(write: Write) -> None:
            try:
                await self._write(write)
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise

        results = await asyncio.gather(*map(perform, writes), return_exceptions=True)
        log.info("written", workload=row.uid, attempt=row.attempt, write=writes[0].says, count=len(writes))
        for failure in (result for result in results if isinstance(result, BaseException)):
            if isinstance(failure, ApiError) and row.state is State.DRAINING and not failure.transient:
                self._brain.report_stop_trouble(row.uid, failure.message)
            raise failure

    async def _read(self, row: WorkloadRow, kind: Kind) -> Object | None:
        try:
            obj = await self._cluster.get(kind.resource, row.namespace, row.name)
        except ApiError as error:
            if error.not_found:
                return None
            raise
        if obj["metadata"].get("uid") != row.uid:
            return None
        self._brain.observe(kind.resource, obj)
        return obj

    async def _write(self, write: Write) -> Object | None:
        """As `send`, when it is its turn among the writes of all workloads. The lease may have lapsed by then."""
        async with self._writes:
            if not self._brain.may_write():
                raise ApiError(0, "NotLeading", "the lease is not certain at present")
            return await self.send(write)

    async def send(self, write: Write) -> Object | None:
        """Performs one write; None after a delete."""
        if write.verb == "delete":
            await self._cluster.delete(
                write.resource, write.namespace, write.name, uid=write.uid, propagation=write.propagation
            )
            return None
        return await self._cluster.patch(
            write.resource,
            write.namespace,
            write.name,
            write.body,
            write.patch_type,
            subresource=write.subresource,
            field_manager=write.field_manager,
            force=write.force,
        )

    async def _confirm_drained(self, row: WorkloadRow, obj: Object | None) -> bool:
        """Proves by a fresh list that no pod is left once nothing can make one; the caches alone may lag."""
        if self._brain.live_pods(row.uid):
            return False
        kind = self._brain.kind_of(row)
        finished = obj is not None and kind.finished(obj) is not None
        if not finished and self._brain.unsettled(row.uid, obj):
            return False
        if obj is not None:
            found = await self._pods(kind.pods_query(obj))
            if any(kind.occupies(obj, pod) for pod in found):
                return False
        self._brain.report_drained(row.uid)
        return True

    async def _pods(self, query: Query) -> list[Object]:
        page = await self._cluster.list(PODS, query)
        found = list(page.items)
        while page.continue_token:
            page = await self._cluster.list(PODS, query, page.continue_token)
            found += page.items
        return found

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._notes.forget(uid)
        self._stopped.pop(uid, None)
        self.wake(uid)


def _only_to(row: WorkloadRow, kind: Kind, write: Write) -> Write:
    """The write, refused (as a conflict) by another object of the same name: a job may have been made anew."""
    if write.verb != "patch" or write.resource != kind.resource or write.name != row.name:
        return write
    if write.patch_type is PatchType.JSON:
        return replace(write, body=[{"op": "test", "path": "/metadata/uid", "value": row.uid}, *write.body])
    metadata = {**(write.body.get("metadata") or {}), "uid": row.uid}
    return replace(write, body={**write.body, "metadata": metadata})


def _with_words(row: WorkloadRow, kind: Kind, obj: Object, write: Write) -> Write:
    """A start, together with what people are told of it."""
    return that_it_runs(row, obj, write) if write.resource == kind.resource and write.name == row.name else write


def _newer(one: Object | None, other: Object | None) -> Object | None:
    """The object with the higher resourceVersion."""
    if one is None or other is None:
        return one or other
    first, second = one["metadata"].get("resourceVersion", ""), other["metadata"].get("resourceVersion", "")
    if first.isdigit() and second.isdigit():
        return one if int(first) >= int(second) else other
    return other
