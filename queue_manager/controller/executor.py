"""Executors: bring job objects in line with their rows. One worker a workload at a time; events and annotations aside.

An executor never trusts what it sent: after each write it decides again from the row and the newest object, so a
repeated or half done action is repaired by doing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum
from random import Random
from typing import TypeVar

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import PODS, ApiError, Cluster, Object, PatchType, Query
from queue_manager.controller.brain import Brain
from queue_manager.controller.messages import that_it_runs
from queue_manager.controller.notes import Notes
from queue_manager.controller.outage import Outage, concerns_all, not_leading
from queue_manager.controller.workers import Workers
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
T = TypeVar("T")

PARALLEL_WRITES = 64
MOST_STEPS = 12
MOST_REPAIRS = 3
SETTLE_DOWN = 1.0
"""Seconds that a job which was started without its placement stays suspended at least."""


class _Turn(IntEnum):
    NONE = 0
    """The cluster has to move first, and wakes it."""
    WAITS = 1
    NOW = 2
    PAUSES = 3


@dataclass(slots=True)
class _Pending:
    """Outbox rows that wait for the same thing. There may be tens of thousands of these: nothing is kept in them that
    is needed only while somebody works on one."""

    since: float
    outbox: tuple[int, ...] = ()
    turn: _Turn = _Turn.NONE
    again: bool = False
    asked: bool = False
    backoff: Backoff | None = None


@dataclass(slots=True)
class _Try:
    """How far the steps of a workload have come."""

    steps: int = 0
    repairs: int = 0
    refused: str = ""


class _SettlesDown(Exception):
    """The job stays suspended for so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Executors:
    """Gives workers what is to be done; finished outbox ids are collected in `done` for the next commit.

    Stops go before starts: each frees quota that somebody is waiting for, and there are never more of them than jobs
    that run. Starts are made in the order of their decisions.
    """

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
        self._settling: dict[str, _Try] = {}
        self._writes = asyncio.Semaphore(PARALLEL_WRITES)
        self._busy = 0
        self.outage = Outage(clock, random)
        self._workers = Workers(clock, self.outage, PARALLEL_WRITES, self._is_stop, self._take, self._due, self._turn)
        self._notes = Notes(
            cluster,
            brain,
            clock,
            random,
            self._settle,
            lambda uid: self.on_idle(uid),
            self._is_writing,
            self.outage,
            component,
        )
        self.done: list[int] = []
        self.failed: list[FailedTry] = []
        self.on_progress: Callable[[], None] = lambda: None
        self.on_idle: Callable[[str], None] = lambda uid: None

    def submit(self, entry: OutboxEntry, last: WorkloadRow | None = None) -> None:
        """Takes over an outbox row; `last` is the row it was decided with, for when the workload has ended since."""
        if entry.action is Action.SYNC:
            pending = self._pending.get(entry.uid)
            if pending is None:
                pending = self._pending[entry.uid] = _Pending(since=self._clock.monotonic())
            if entry.id not in pending.outbox:
                pending.outbox += (entry.id,)
            self.wake(entry.uid)
        else:
            self._notes.submit(entry, last)

    def wake(self, uid: str) -> None:
        """The workload's row or objects changed: look again, if something is to be done."""
        pending = self._pending.get(uid)
        if pending is None or not pending.outbox:
            return
        if pending.turn is _Turn.NONE:
            self._busy += 1
            pending.turn = _Turn.WAITS
            self._workers.put(uid)
        elif pending.turn is _Turn.WAITS and not pending.again and self._is_stop(uid):
            # It may have been put as a start, and whoever is stopped goes first. `again` says that this is done.
            pending.again = True
            self._workers.put(uid)
        else:
            pending.again = True

    def busy(self, uid: str) -> bool:
        """Whether a write decided by an older row may still be on its way; `on_idle` tells who asked when not any
        more."""
        pending = self._pending.get(uid)
        if pending is None or pending.turn is _Turn.NONE:
            return False
        pending.asked = True
        return True

    def backlog(self) -> int:
        """Starts and stops that are being written or wait for their turn; without those that pause after a failure."""
        return self._workers.backlog()

    def _is_writing(self) -> bool:
        return self._busy > 0

    def _is_stop(self, uid: str) -> bool:
        row = self._brain.row(uid)
        return row is not None and row.state is not State.STARTING

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
        oldest = next(iter(self._pending.values()), None)  # in the order in which they came
        return 0.0 if oldest is None else self._clock.monotonic() - oldest.since

    async def close(self) -> None:
        """Ends all work; what was not finished is still in the outbox."""
        await self._workers.close()
        await self._notes.close()

    def _settle(self, ids: Iterable[int]) -> None:
        self.done.extend(sorted(ids))
        self.on_progress()

    def _take(self, uid: str) -> bool:
        pending = self._pending.get(uid)
        if pending is None or pending.turn is not _Turn.WAITS:
            return False
        pending.turn, pending.again = _Turn.NOW, False
        return True

    def _due(self, uid: str) -> None:
        self._pending[uid].turn = _Turn.WAITS
        self._workers.put(uid)

    async def _turn(self, uid: str) -> None:
        """What a worker does for a workload whose turn it is."""
        pending, number = self._pending[uid], self.outage.number
        ids, finished = pending.outbox, False
        try:
            finished = await self._sync(uid)
        except _SettlesDown as wait:
            self._pause(uid, pending, wait.seconds)
        except ApiError as error:
            self._failed(uid, pending, error, number)
        except Exception:
            self._rest(uid, pending)
            raise
        else:
            pending.backoff = None
            if finished:
                pending.outbox = tuple(id_ for id_ in pending.outbox if id_ not in ids)
                self._settle(ids)
            if pending.again:
                pending.turn = _Turn.WAITS
                self._workers.put(uid)
            else:
                self._rest(uid, pending)

    def _rest(self, uid: str, pending: _Pending) -> None:
        """Nothing is to be done for it at present."""
        pending.turn = _Turn.NONE
        self._busy -= 1
        self._made.pop(uid, None)
        if not pending.outbox:
            self._pending.pop(uid, None)
            if pending.asked:
                self.on_idle(uid)

    def _pause(self, uid: str, pending: _Pending, seconds: float) -> None:
        pending.turn = _Turn.PAUSES
        self._workers.put_later(uid, seconds)

    def _failed(self, uid: str, pending: _Pending, error: ApiError, number: int) -> None:
        """Another try comes after a pause: of this workload, or of all where it would be the same for all."""
        if self.outage.concerns_all(error, uid):
            pause = self.outage.failed(error, number)
            if not pause:
                pending.turn = _Turn.WAITS
                self._workers.put(uid, back=True)
                return
        else:
            pending.backoff = pending.backoff or Backoff(self._random, first=0.2, greatest=30.0)
            pause = pending.backoff.next(error.retry_after)
            log.warning("write failed, tried again", workload=uid, error=str(error), pause=round(pause, 1))
        until = self._clock.now() + timedelta(seconds=pause)
        self.failed.extend(FailedTry(id_, str(error), until) for id_ in sorted(pending.outbox))
        self.on_progress()
        self._pause(uid, pending, pause)

    async def _asked(self, answer: Awaitable[T]) -> T:
        """What the API server answers. Any answer but one that concerns all is the end of an outage."""
        try:
            found = await answer
        except ApiError as error:
            if not concerns_all(error):
                self._answered()
            raise
        self._answered()
        return found

    def _answered(self) -> None:
        was_active = self.outage.active
        self.outage.over()
        if was_active:
            self._workers.go_on()

    async def _sync(self, uid: str) -> bool:
        """Steps until done (True) or until the cluster has to move first (False). Raises ApiError worth a pause."""
        at = self._settling.pop(uid, None) or _Try()
        obj: Object | None = None
        while at.steps < MOST_STEPS:
            at.steps += 1
            row = self._brain.row(uid)
            if row is None or row.state in (State.FINISHED, State.FAILED, State.RUNNING):
                return True
            if not self._brain.may_write():
                raise not_leading()
            obj = _newer(obj, self._brain.object_of(row))
            if obj is None:
                return await self._confirm_drained(row, None) if row.state is State.DRAINING else True
            if row.state is State.DRAINING and self._brain.kind_of(row).finished(obj) is not None:
                # Over by itself: its controller ends what is left, and a suspension would only confuse people.
                return await self._confirm_drained(row, obj)
            if row.state is State.STARTING:
                self._settle_down(uid, at)
                if not await self._asks_the_same(row, obj):
                    return True
            try:
                step = self._next_step(row, obj, at.refused)
            except PlacementLost as problem:
                at.repairs, step = at.repairs + 1, problem.repair
                if at.repairs > MOST_REPAIRS:
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
                    obj, at.refused = await self._perform(row, step, obj, at.refused)
                    if at.refused and obj is None:
                        return True
        raise ApiError(0, "NoProgress", f"no end after {MOST_STEPS} steps; last refusal: {at.refused or 'none'}")

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

    def _settle_down(self, uid: str, at: _Try) -> None:
        """A job that somebody else had started is left suspended for a moment. Its controller may be about to make pods
        by what it saw before, and may not notice a suspension that is over at once: they would stay where they are."""
        since = self._stopped.pop(uid, None)
        if since is not None and (pause := since + SETTLE_DOWN - self._clock.monotonic()) > 0:
            self._settling[uid] = at
            raise _SettlesDown(pause)

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
            obj = await self._asked(self._cluster.get(kind.resource, row.namespace, row.name))
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
                raise not_leading()
            return await self._asked(self.send(write))

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
        page = await self._asked(self._cluster.list(PODS, query))
        found = list(page.items)
        while page.continue_token:
            page = await self._asked(self._cluster.list(PODS, query, page.continue_token))
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
