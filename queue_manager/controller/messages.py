"""The `state` and `message` annotations of job objects: what people read there of their rows.

They follow from row and object alone, so nothing about them is kept: when its time has come a row is held against its
object, and written where they differ. What lasts a moment only is never written, nor is anything on a job that is over.
The write that starts a job says it as well (`that_it_runs`): nobody needs a second one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import ApiError, Cluster, Object, PatchType
from queue_manager.controller.brain import Brain
from queue_manager.controller.event_bodies import LONGEST_MESSAGE
from queue_manager.controller.outage import Outage, not_leading
from queue_manager.controller.tasks import Tasks
from queue_manager.controller.timers import Timers
from queue_manager.controller.transitions import describe_admission
from queue_manager.engine.decision import HOPELESS
from queue_manager.kinds import patches
from queue_manager.kinds.kind import PREFIX, Write
from queue_manager.store.deadlines import STARTED
from queue_manager.store.records import ENDED, State, WorkloadRow

log = structlog.get_logger(__name__)

STATE, MESSAGE = PREFIX + "state", PREFIX + "message"
INTERVAL = timedelta(minutes=1)
"""Between two writes that say the same state."""
SOON = 0.1
"""Seconds until what somebody has to know is written: a start goes first."""
LASTING = 5.0
"""Seconds after which a reason to wait, or a state on the way to another one, is lasting, and written."""
LASTING_AT_A_TIME = 2
"""So many of these are written each `SOON`, and one while jobs are being started or stopped, which goes first:
thousands of jobs that come at once are no reason for as many writes."""


def told(row: WorkloadRow) -> Mapping[str, str | None]:
    """What the annotations of its object say of a row. Of an admitted workload that is all well: what it was given."""
    message = row.message
    if not message and row.state in STARTED and row.admission is not None:
        message = describe_admission(row.admission.admission)
    return {STATE: row.state.value, MESSAGE: message[:LONGEST_MESSAGE] or None}


def that_it_runs(row: WorkloadRow, obj: Object, write: Write) -> Write:
    """The write with our annotations, where it is the JSON Patch that unsuspends the row's own object."""
    starts = row.state is State.STARTING and write.patch_type is PatchType.JSON and write.verb == "patch"
    if not starts or patches.put(False, "spec", "suspend") not in write.body:
        return write
    said = {key: text for key, text in told(replace(row, state=State.RUNNING)).items() if text is not None}
    annotations = "metadata", "annotations"
    present = obj["metadata"].get("annotations") or {}
    if present or any(operation["path"] == patches.pointer(*annotations) for operation in write.body):
        operations = [patches.put(text, *annotations, key) for key, text in said.items() if present.get(key) != text]
    elif patches.unchanged(obj) and patches.unchanged(obj)[0] in write.body:
        operations = [patches.put(said, *annotations)]
    else:
        return write  # somebody may have annotated it since
    return replace(write, body=[*write.body, *operations])


class Messages:
    """`slots` bounds the writes at once, together with others that may wait; `busy` tells whether jobs are being
    started or stopped; in an `outage` nothing is sent before its pause is over."""

    def __init__(
        self,
        cluster: Cluster,
        brain: Brain,
        clock: Clock,
        random: Random,
        slots: asyncio.Semaphore,
        busy: Callable[[], bool],
        outage: Outage,
    ) -> None:
        self._cluster = cluster
        self._brain = brain
        self._clock = clock
        self._random = random
        self._slots = slots
        self._busy = busy
        self._outage = outage
        self._next_lasting = clock.now()
        self._tasks = Tasks()
        self._timers = Timers()
        self._lasting: dict[str, None] = {}
        self._written: dict[str, tuple[datetime, str]] = {}
        self._failures: dict[str, Backoff] = {}
        self._alarm: tuple[datetime, asyncio.Task[None]] | None = None

    def begin(self, rows: Iterable[WorkloadRow]) -> None:
        """A term begins: what its objects do not say yet was changed by nobody, or by a process that has ended since.
        Other numbers alone are not news."""
        for row in rows:
            if (delay := _delay(row)) is not None and self._differs(row, numbers=not _has_numbers(row)):
                self._look(row.uid, delay)

    def changed(self, old: WorkloadRow | None, row: WorkloadRow) -> None:
        """A row as committed, and as it was before."""
        same = old is not None and old.state is row.state and old.attempt == row.attempt
        if same and old is not None and not _is_news(old, row):
            return
        if not same:
            self._lasting.pop(row.uid, None)
            self._timers.put(row.uid, None)
        if (delay := _delay(row)) is not None:
            self._look(row.uid, delay)

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._timers.put(uid, None)
        self._lasting.pop(uid, None)
        self._written.pop(uid, None)
        self._failures.pop(uid, None)

    async def close(self) -> None:
        """Ends writing."""
        if self._alarm is not None:
            self._alarm[1].cancel()
        await self._tasks.close()

    def _look(self, uid: str, delay: float) -> None:
        """Sees to it that the workload is looked at after that many seconds, or earlier if it was to be before."""
        row, last = self._brain.row(uid), self._written.get(uid)
        when = self._clock.now() + timedelta(seconds=delay)
        if row is not None and last is not None and last[1] == row.state.value:
            when = max(when, last[0] + INTERVAL)
        known = self._timers.of(uid)
        self._timers.put(uid, when if known is None else min(when, known))
        self._set_alarm()

    def _set_alarm(self) -> None:
        when = self._timers.next()
        if self._lasting:
            when = self._next_lasting if when is None else min(when, self._next_lasting)
        if when is None or (self._alarm is not None and self._alarm[0] <= when):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        self._alarm = (when, asyncio.ensure_future(self._ring(when)))

    async def _ring(self, when: datetime) -> None:
        await self._clock.sleep(max(0.0, (when - self._clock.now()).total_seconds()))
        self._alarm = None
        now = max(when, self._clock.now())  # a sleep may end a moment too early
        for uid in sorted(self._timers.due(now)):
            row = self._brain.row(uid)
            if row is None or not self._differs(row):
                continue
            if _delay(row) == LASTING:
                self._lasting[uid] = None
            else:
                self._tasks.spawn(self._write(uid))
        if self._lasting and now >= self._next_lasting:
            self._next_lasting = now + timedelta(seconds=max(SOON, self._outage.pause))
            for uid in list(self._lasting)[: 1 if self._busy() else LASTING_AT_A_TIME]:
                del self._lasting[uid]
                self._tasks.spawn(self._write(uid))
        self._set_alarm()

    def _differs(self, row: WorkloadRow, *, numbers: bool = True) -> bool:
        """Whether an object of the row says something else; without `numbers` those in the message count as equal.
        What has ended says so itself, also before its row does."""
        obj = self._brain.object_of(row)
        if obj is not None and self._brain.kind_of(row).finished(obj) is not None:
            return False
        said = told(row)
        if not numbers:
            said = {key: _without_numbers(text) for key, text in said.items()}
        for _, about in self._brain.kind_of(row).noted_on(obj) if obj is not None else ():
            have = about["metadata"].get("annotations") or {}
            for key, text in said.items():
                if (have.get(key) if numbers else _without_numbers(have.get(key))) != text:
                    return True
        return False

    async def _write(self, uid: str) -> None:
        try:
            async with self._slots:
                await self._outage.wait()
                row = self._brain.row(uid)
                if row is None or _delay(row) is None:
                    return
                if not self._brain.may_write():
                    raise not_leading()
                await self._bring(row)
            self._failures.pop(uid, None)
        except ApiError as error:
            backoff = self._failures.setdefault(uid, Backoff(self._random, first=0.5, greatest=60.0))
            if error.transient or (error.conflict and backoff.failures < 5):
                self._look(uid, backoff.next(error.retry_after))
            else:
                log.info("not sent", workload=uid, action="annotate", error=str(error))

    async def _bring(self, row: WorkloadRow) -> None:
        """Writes what the row's objects do not say yet."""
        obj, kind, wanted = self._brain.object_of(row), self._brain.kind_of(row), told(row)
        for resource, about in kind.noted_on(obj) if obj is not None else ():
            metadata = about["metadata"]
            have = metadata.get("annotations") or {}
            if all(have.get(key) == value for key, value in wanted.items()):
                continue
            body: Object = {"metadata": {"uid": metadata["uid"], "annotations": wanted}}
            try:
                result = await self._cluster.patch(resource, row.namespace, metadata["name"], body, PatchType.MERGE)
            except ApiError as error:
                if resource == kind.resource or not (error.not_found or error.conflict):
                    raise
                continue  # one of several pods is gone
            self._written[row.uid] = (self._clock.now(), row.state.value)
            if resource == kind.resource:
                self._brain.observe(resource, result)


def _delay(row: WorkloadRow) -> float | None:
    """Seconds after which the annotations are to say what the row is now; None where they never need to."""
    if row.state in ENDED or row.after_drain in ENDED:
        return None  # its own status says so
    if row.state is State.WAITING:
        # Nothing ends by itself what somebody has to do something about.
        return SOON if not row.queue or row.reason in HOPELESS else LASTING
    return LASTING if row.state in (State.STARTING, State.DRAINING) else SOON


def _has_numbers(row: WorkloadRow) -> bool:
    """Whether the message says what is short at the moment; that alone is no reason to write."""
    return row.state is State.WAITING or (row.state in STARTED and bool(row.reason))


def _is_news(old: WorkloadRow, row: WorkloadRow) -> bool:
    if _has_numbers(row):
        return (old.reason, old.queue) != (row.reason, row.queue)
    return told(old) != told(row)


def _without_numbers(text: str | None) -> str:
    return re.sub(r"\d+", "", text or "")
