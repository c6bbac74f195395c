"""Commits of the leader: changes are written, then memory, engine and executors are told what won."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog
from sqlalchemy.exc import DataError, IntegrityError

from queue_manager.cluster.clock import Clock
from queue_manager.controller.counters import Counters
from queue_manager.controller.executor import Executors
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.inbox import Inbox
from queue_manager.controller.memory import Memory
from queue_manager.controller.picture import Picture
from queue_manager.controller.reasons import Reasons
from queue_manager.controller.reconciler import Reconciler
from queue_manager.engine.copies import replace
from queue_manager.store.records import Action, Change, Committed
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)


class Commits:
    """Writes under the epoch of one term."""

    def __init__(
        self,
        store: Store,
        in_thread: InThread,
        epoch: int,
        clock: Clock,
        *,
        picture: Picture,
        memory: Memory,
        inbox: Inbox,
        reconciler: Reconciler,
        executors: Executors,
        reasons: Reasons,
        counters: Counters,
        events: Callable[[], bool],
    ) -> None:
        """`events`: whether events on the objects of workloads are wanted."""
        self._store = store
        self._in_thread = in_thread
        self._epoch = epoch
        self._clock = clock
        self._picture = picture
        self._memory = memory
        self._inbox = inbox
        self._reconciler = reconciler
        self._executors = executors
        self._reasons = reasons
        self._counters = counters
        self._events = events

    async def commit(self, changes: Sequence[Change], *, planned: bool = False) -> Committed:
        """Writes the changes, then tells memory, engine and executors what won; losers are read again."""
        if not self._events():
            changes = [_without_events(change) for change in changes]
        revision = self._picture.compiled.configuration.revision if planned else None
        now, known = self._clock.now(), self._picture.rows
        committed = await self._in_thread(self._store.commit, self._epoch, revision, now, changes, known)
        if any(change.ledger is not None or change.request_changed for change in changes):
            self._reasons.something_happened()
        if committed.lost:
            self._counters.lost += len(committed.lost)
            if planned:
                # All of the plan is taken back; what won is told to the engine like news from elsewhere.
                self._picture.engine.revoke(committed.lost)
                planned = False
            await self._read_again(committed.lost)
        for change in changes:
            uid = change.row.uid
            if uid not in committed.lost:
                self._counters.count(self._picture.rows.get(uid), change.row)
                if change.instructions and self._reconciler.instructions.done(uid, change.instructions):
                    self._inbox.touch(uid)
                self._memory.apply(replace(change.row, version=committed.versions[uid]), planned=planned)
        rows = {change.row.uid: change.row for change in changes}
        for entry in committed.outbox:
            self._executors.submit(entry, rows[entry.uid])
        return committed

    async def commit_readable(self, changes: Sequence[Change]) -> set[str]:
        """Commits together or, where the database takes one for nonsense, one by one; answers what is refused."""
        try:
            if changes:
                await self.commit(changes)
            return set()
        except (DataError, IntegrityError, ValueError) as error:
            if len(changes) == 1:
                log.error("a change is refused; it is tried later", workload=changes[0].row.uid, error=str(error))
                return {changes[0].row.uid}
        return {uid for change in changes for uid in await self.commit_readable([change])}

    async def _read_again(self, uids: Iterable[str]) -> None:
        found = {row.uid: row for row in await self._in_thread(self._store.get_workloads, sorted(uids))}
        for uid in uids:
            self._memory.read_again(uid, found.get(uid))


def _without_events(change: Change) -> Change:
    outbox = tuple(entry for entry in change.outbox if entry.action is not Action.EVENT)
    return change if len(outbox) == len(change.outbox) else replace(change, outbox=outbox)
