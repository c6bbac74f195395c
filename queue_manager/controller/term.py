"""One term of leadership: rows and objects in, decisions out.

Everything in memory is built from the store and the watches when the term begins and dropped when it ends; any failure
of the database ends the term, and the next one reads again. There is one writer: the loop in `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import DataError, IntegrityError

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import NODES, PODS, TRAIN_JOBS, Cluster, Object, Resource
from queue_manager.config.compiled import compile_objects
from queue_manager.controller.counters import Counters
from queue_manager.controller.executor import Executors
from queue_manager.controller.explanations import explanation_of
from queue_manager.controller.garbage import settle_garbage
from queue_manager.controller.inbox import LONGEST_PAUSE, Inbox
from queue_manager.controller.intake import resolved_again
from queue_manager.controller.lifecycle import next_look
from queue_manager.controller.news import differs
from queue_manager.controller.picture import Picture
from queue_manager.controller.pod_gates import PodGates, is_elastic
from queue_manager.controller.reasons import Reasons
from queue_manager.controller.reconciler import Reconciler
from queue_manager.controller.resizing import resize, resize_waits
from queue_manager.controller.times import to_microseconds
from queue_manager.controller.transitions import Facts, admit, annotate, event, evict, sync
from queue_manager.controller.view import ClusterView
from queue_manager.engine.configuration import History
from queue_manager.engine.decision import Plan, Reason
from queue_manager.engine.resize import owner_uid
from queue_manager.kinds.kind import Kind, Lookup, Placement, Unresolvable
from queue_manager.store.deadlines import STARTED
from queue_manager.store.records import (
    CHARGED,
    ENDED,
    Change,
    Committed,
    OutboxEntry,
    StaleConfiguration,
    State,
    WorkloadRow,
)
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)

T = TypeVar("T")
BATCH = 0.005
"""Seconds in which events are gathered into one decision."""
SETTLE = 0.1
"""Seconds in which actions that are done are gathered before they are taken out of the outbox."""
HOPELESS = frozenset({Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR, Reason.MISCONFIGURED, Reason.INACTIVE})
"""Reasons that no end of another job will change: somebody has to do something, so an event says so."""


class Term:
    """The leader's loop over its picture. `run` returns only by exception or cancellation."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        epoch: int,
        *,
        clock: Clock,
        random: Random,
        in_thread: Callable[..., Awaitable[Any]],
        valid: Callable[[], bool],
    ) -> None:
        self.epoch = epoch
        self.counters = Counters()
        self.ready = False
        self.view = ClusterView(cluster, clock, random, lambda *news: self.inbox.on_event(*news))
        self.picture = Picture(self.view)
        self.inbox = Inbox(self.picture, clock, random)
        self.executors = Executors(cluster, self, clock, random)
        self.gates = PodGates(self.view, self.row, self.may_write, self.executors.send, clock, random)
        self.reconciler = Reconciler(self.picture, self.executors, clock, self.inbox.touch, self.gates.passed)
        self.reasons = Reasons(self.picture, clock)
        self._progress = asyncio.Event()
        self.executors.on_progress = self._progress.set
        self.executors.on_idle = self.inbox.touch
        self._store = store
        self._clock = clock
        self._in_thread = in_thread
        self._valid = valid
        self._reload = True
        self._asked = True
        self._asked_at = 0.0
        self._back: set[str] = set()
        self._left_over: list[OutboxEntry] = []
        self._nodes_to_save: set[str] = set()

    # --- what executors ask -------------------------------------------------------------------------------------

    @property
    def lookup(self) -> Lookup:
        """The caches."""
        return self.view

    def row(self, uid: str) -> WorkloadRow | None:
        """The row as last committed."""
        return self.picture.rows.get(uid)

    def kind_of(self, row: WorkloadRow) -> Kind:
        """The kind of the row's object."""
        return self.picture.kind_of(row)

    def object_of(self, row: WorkloadRow) -> Object | None:
        """The newest state known of the row's object; None when it is gone."""
        return self.picture.object_of(row)

    def placement_of(self, row: WorkloadRow) -> Placement:
        """What the pods of an admitted workload must carry."""
        return self.picture.placement_of(row)

    def live_pods(self, uid: str) -> int:
        """Pods that have not ended."""
        return self.picture.pods.live(uid)

    def unsettled(self, uid: str, obj: Object | None) -> str:
        """What can still make pods for the workload, in words; "" when nothing can."""
        return self.picture.unsettled(uid, obj)

    def report_refused(self, uid: str, message: str) -> None:
        """An executor found that the start is refused for good."""
        self.reconciler.report_refused(uid, message)

    def report_stop_trouble(self, uid: str, message: str) -> None:
        """An executor can't stop a workload, or not as usual."""
        self.reconciler.report_stop_trouble(uid, message)

    def observe(self, resource: Resource, obj: Object) -> None:
        """An answer of the API server to a write of ours."""
        if resource in self.view.reflectors:
            uid = obj["metadata"].get("uid", "")
            known = self.view.by_uid(resource, uid)
            self.view.observe(resource, obj)
            if known is None or differs(obj, known):
                self.inbox.touch(self.picture.owners.root(uid))

    def report_drained(self, uid: str) -> None:
        """An executor proved that no pod is left."""
        if uid in self.picture.rows:
            self.picture.drained.add(uid)
            self.inbox.touch(uid)

    def may_write(self) -> bool:
        """Whether the lease still holds."""
        return self._valid()

    async def refresh(self, row: WorkloadRow, obj: Object) -> bool:
        """Before a start: whether the object still asks for what was admitted (by Trainer's snapshot, if any)."""
        kind = self.kind_of(row)
        if kind.resource == TRAIN_JOBS:
            await self.view.read_snapshot(obj, ask_again=True)
        try:
            resolved = kind.resolve(obj, self.view)
        except Unresolvable:
            return True
        if resolved_again(row, resolved):
            return True
        self.report_refused(row.uid, "its pod sets changed after it was admitted")
        return False

    # --- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reads the store, waits for the watches, then decides for as long as it leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(self._settle())
            await self._load()
            await self.view.synced()
            self._begin()
            try:
                await self._step()
                settle_garbage()
                while True:
                    await self._step()
            finally:
                await self.executors.close()
                await self.gates.close()

    async def _db(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        result: T = await self._in_thread(call, *arguments, **named)
        return result

    async def _load(self) -> None:
        await self._load_configuration()
        for row in await self._db(self._store.load_workloads):
            self.picture.rows[row.uid] = row
            self._time(row)
        self._left_over.extend(await self._db(self._store.pending_outbox))
        # Nodes that went while nobody led are still in the store.
        self._nodes_to_save.update(node.name for node in await self._db(self._store.load_nodes))
        self.reconciler.adopting = await self._db(self._store.fact, "adopted") is None
        log.info(
            "state read",
            workloads=len(self.picture.rows),
            revision=self.picture.compiled.configuration.revision,
            epoch=self.epoch,
        )

    async def _load_configuration(self) -> None:
        self._reload = False
        revision, objects = await self._db(self._store.load_configuration)
        before = self.picture.compiled.configuration.history
        self.picture.configure(compile_objects(objects, revision))
        await self._load_history(before)
        self.reasons.something_happened()
        for row in self.picture.rows.values():
            self._time(row)

    async def _load_history(self, before: History | None) -> None:
        """Past usage as the ledger has it: when a term begins, and when its rules have changed."""
        rules = self.picture.compiled.configuration.history
        if rules is None or rules == before:
            return
        now = self._clock.now()
        spans = (timedelta(microseconds=rules.half_life), timedelta(microseconds=rules.at_once))
        averages = await self._db(self._store.past_usage, now, *spans)
        self.picture.engine.restore_history(averages, to_microseconds(now))

    def _time(self, row: WorkloadRow) -> None:
        """Sees to it that the workload is looked at when time alone may change it."""
        self.picture.note_readiness(row)
        self.inbox.timers.put(row.uid, next_look(row, self.picture.compiled.settings))

    async def _read_instructions(self) -> None:
        self._asked = False
        self._asked_at = self._clock.monotonic()
        pending = await self._db(self._store.pending_instructions)
        self.inbox.workloads |= self.reconciler.instructions.read(pending, self.picture.rows.keys())

    def _begin(self) -> None:
        """All caches are filled: tell the engine everything, then look at every object and every row once."""
        for node in self.view.all(NODES):
            self.inbox.nodes.add(node["metadata"]["name"])
        for row in self.picture.rows.values():
            self.picture.tell_engine(None, row)
        for pod in list(self.view.all(PODS)):
            self.inbox.pod_event(pod, deleted=False)
        for entry in self._left_over:
            self.executors.submit(entry)
        self._left_over.clear()
        self.inbox.sweep()

    async def _step(self) -> None:
        await self._wait_for_events()
        self.inbox.events.clear()
        started = self._clock.monotonic()
        if self._reload:
            settings = self.picture.compiled.settings
            await self._load_configuration()
            self.inbox.touch_where(lambda row: row.state in (State.WAITING, State.HELD, State.RESERVED))
            if self.picture.compiled.settings != settings:
                # Who is ready is not in its row yet where that was not watched: nobody would start before it is.
                self.inbox.touch_where(lambda row: row.state in STARTED)
            if self.reconciler.adopting:
                self.inbox.sweep()
        if self._asked or self._clock.monotonic() >= self._asked_at + LONGEST_PAUSE:
            await self._read_instructions()
        self.inbox.take_due()
        self._refresh_nodes()
        await self._reconcile(self.inbox.take())
        if self._back:
            # Who waits again may ask for something else by now: that is read before it can be admitted.
            back, self._back = sorted(self._back), set()
            await self._reconcile(back)
        if useless := self.reconciler.instructions.useless:
            await self._db(self._store.drop_instructions, self.epoch, tuple(useless))
            useless.clear()
        if self.reconciler.adopting and not self.inbox.has_later and self.picture.compiled.configuration.queues:
            await self._db(self._store.put_fact, "adopted", {"at": self._clock.now().isoformat()})
            self.reconciler.adopting = False
        await self._cycle()
        if stale := self.reasons.due():
            await self._commit(stale)
        self.ready = True
        self.counters.cycles += 1
        self.counters.last_seconds = self._clock.monotonic() - started
        self.counters.cycle_seconds += self.counters.last_seconds

    async def _wait_for_events(self) -> None:
        """Sleeps until an event, or until a workload's backoff ends; then gathers events for a moment."""
        if not self.inbox.events.is_set():
            pause = self._until_something_is_due()
            waiter = asyncio.ensure_future(self.inbox.events.wait())
            timer = asyncio.ensure_future(self._clock.sleep(pause))
            try:
                await asyncio.wait({waiter, timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()
        await self._clock.sleep(BATCH)

    def _until_something_is_due(self) -> float:
        """Seconds until a workload's backoff ends, or something is to be looked at again; a minute at most."""
        pause = self.reasons.pause(self.inbox.pause())
        if (backoff := self.picture.engine.wake_at()) is not None:
            pause = min(pause, (backoff - to_microseconds(self._clock.now())) / 1_000_000 + 0.001)
        return max(0.0, pause)

    def outbox_age(self) -> float:
        """Seconds that the oldest action not done has been waiting."""
        return self.executors.oldest_age()

    def configuration_changed(self) -> None:
        """The store has a new revision."""
        self._reload = True
        self.inbox.events.set()

    def instructions_given(self) -> None:
        """The store has a new instruction."""
        self._asked = True
        self.inbox.events.set()

    # --- nodes and pods -----------------------------------------------------------------------------------------

    def _refresh_nodes(self) -> None:
        for uid in self.picture.pods.dirty_bindings:
            row = self.picture.rows.get(uid)
            if row is not None and row.admission is not None:
                self.picture.bind(row)
        self.picture.pods.dirty_bindings.clear()
        self.inbox.workloads.update(self.picture.pods.dirty_workloads & self.picture.rows.keys())
        self.picture.pods.dirty_workloads.clear()
        names = self.inbox.take_nodes()
        for name in sorted(names):
            self.picture.refresh_node(name)
        self._nodes_to_save |= names
        if names:
            self.reasons.something_happened()

    async def save_nodes(self) -> None:
        """Keeps nodes and foreign use in the store, for plans and explanations made elsewhere."""
        names, self._nodes_to_save = self._nodes_to_save, set()
        try:
            rows = {name: self.picture.node_row(name) for name in sorted(names)}
            there, gone = (
                [row for row in rows.values() if row is not None],
                [name for name, row in rows.items() if row is None],
            )
            if rows:
                await self._db(self._store.save_nodes, self.epoch, there, gone, self._clock.now())
        except BaseException:
            self._nodes_to_save |= names
            raise

    # --- rows and objects ---------------------------------------------------------------------------------------

    async def _reconcile(self, uids: Sequence[str]) -> None:
        """Follows what the cluster shows: new jobs, changed jobs, starts confirmed, ends, drains."""
        failed = await self.reconciler.read_snapshots(uids)
        changes = []
        for uid in uids:
            row = self.picture.rows.get(uid)
            if uid in failed:
                continue
            try:
                change = self.reconciler.change_of(uid, row)
            except Exception:
                log.exception("could not look at a workload; it stays as it is, and is looked at later", workload=uid)
                failed.add(uid)
                continue
            if change is not None:
                changes.append(change)
            elif row is not None and row.state in (State.STARTING, State.DRAINING):
                # Whatever the outbox says: these states end by what an executor does.
                self.executors.submit(sync(row))
            elif row is not None:
                self.executors.wake(uid)
        failed |= await self._commit_readable(changes)
        for change in changes:
            if change.row.uid in self.picture.rows and change.row.uid not in failed:
                # One change a look: the same facts may ask for another one.
                self.inbox.touch(change.row.uid)
        self.inbox.look_later(failed)
        for uid in uids:
            self.gates.look(uid)

    async def _commit_readable(self, changes: Sequence[Change]) -> set[str]:
        """Commits together or, where the database takes one for nonsense, one by one; answers what is refused."""
        try:
            if changes:
                await self._commit(changes)
            return set()
        except (DataError, IntegrityError, ValueError) as error:
            if len(changes) == 1:
                log.error("a change is refused; it is tried later", workload=changes[0].row.uid, error=str(error))
                return {changes[0].row.uid}
        return {uid for change in changes for uid in await self._commit_readable([change])}

    # --- decisions ----------------------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """One pass of the engine, committed whole; losers are read again and the pass is taken back."""
        now = self._clock.now()
        one_at_a_time = self.picture.compiled.settings.block_admission
        self.picture.engine.gate(frozenset(self.picture.not_ready) if one_at_a_time else None)
        plan = self.picture.engine.plan(to_microseconds(now))
        changes = self._changes_of(plan, now)
        if not changes:
            return
        try:
            committed = await self._commit(changes, planned=True)
        except StaleConfiguration as stale:
            # Somebody changed the configuration after this pass read it: the next pass decides by the new one.
            self.picture.engine.revoke()
            self.configuration_changed()
            log.info("plan taken back", why=str(stale))
            return
        except BaseException:
            self.picture.engine.revoke()
            raise
        self._count(plan, committed)
        if committed.lost:
            log.info("plan lost rows", lost=sorted(committed.lost))

    def _changes_of(self, plan: Plan, now: datetime) -> list[Change]:
        changes: list[Change] = []
        for decided in plan.evictions:
            row = self.picture.rows[decided.uid]
            changes.append(
                evict(
                    row,
                    decided,
                    self.picture.rows.get(owner_uid(decided.by)),
                    Facts(now=now, exists=True, charge=self.picture.engine.charge_of(row.uid)),
                )
            )
        admitted = {admission.uid for admission in plan.admissions}
        for admission in plan.admissions:
            row = self.picture.rows[admission.uid]
            changes.append(admit(row, admission, now))
        for admission in plan.resizes:
            charge = self.picture.engine.charge_of(admission.uid)
            changes.append(resize(self.picture.rows[admission.uid], admission, charge))
        for waiting in plan.waiting:
            row = self.picture.rows[waiting.uid]
            if is_elastic(row):
                explanation = explanation_of(waiting, row, self.picture.rows, now)
                changes.append(resize_waits(row, waiting, explanation))
                continue
            if waiting.uid in admitted or row.state is not State.WAITING:
                continue
            # Who backs off was told before why, and until when.
            keeps = waiting.reason is Reason.BACKOFF and row.message
            fresh = replace(row, reason=waiting.reason.value, message=row.message if keeps else waiting.message)
            outbox = [annotate(fresh)] if row.reason != fresh.reason or row.message != fresh.message else []
            if row.reason != fresh.reason and waiting.reason in HOPELESS:
                outbox.append(event(fresh, "Waiting", fresh.message, warning=True))
            explanation = explanation_of(waiting, row, self.picture.rows, now)
            changes.append(Change(row=fresh, outbox=tuple(outbox), explanation=explanation))
        return changes

    def _count(self, plan: Plan, committed: Committed) -> None:
        for eviction in plan.evictions:
            row = self.picture.rows.get(eviction.uid)
            if row is not None and eviction.uid in committed.versions:
                name, reason = f"{row.namespace}/{row.name}", eviction.reason.value
                log.info("evicted", workload=row.uid, name=name, reason=reason, by=eviction.by)
        for admission in plan.admissions:
            row = self.picture.rows.get(admission.uid)
            if row is not None and admission.uid in committed.versions:
                self.counters.admissions += 1
                name = f"{row.namespace}/{row.name}"
                log.info("admitted", workload=row.uid, name=name, queue=admission.queue, attempt=row.attempt)

    async def _commit(self, changes: Sequence[Change], *, planned: bool = False) -> Committed:
        """Writes the changes, then tells memory, engine and executors what won; losers are read again."""
        revision = self.picture.compiled.configuration.revision if planned else None
        committed = await self._db(self._store.commit, self.epoch, revision, self._clock.now(), changes)
        if any(change.ledger is not None or change.request_changed for change in changes):
            self.reasons.something_happened()
        if committed.lost:
            self.counters.lost += len(committed.lost)
            if planned:
                # All of the plan is taken back; what won is told to the engine like news from elsewhere.
                self.picture.engine.revoke(committed.lost)
                planned = False
            await self._read_again(committed.lost)
        for change in changes:
            uid = change.row.uid
            if uid not in committed.lost:
                self.counters.count(self.picture.rows.get(uid), change.row)
                if change.instructions and self.reconciler.instructions.done(uid, change.instructions):
                    self.inbox.touch(uid)
                self._apply(replace(change.row, version=committed.versions[uid]), planned=planned)
        rows = {change.row.uid: change.row for change in changes}
        for entry in committed.outbox:
            self.executors.submit(entry, rows[entry.uid])
        return committed

    async def _read_again(self, uids: Iterable[str]) -> None:
        found = {row.uid: row for row in await self._db(self._store.get_workloads, sorted(uids))}
        for uid in uids:
            row, old = found.get(uid), self.picture.rows.get(uid)
            if row is None:
                self._forget(uid)
            else:
                self.picture.tell_engine(old, row)
                self.picture.rows[uid] = row
                self.picture.pods.charge(uid, row.state in CHARGED)
                self._time(row)
            self.inbox.touch(uid)

    def _apply(self, row: WorkloadRow, *, planned: bool) -> None:
        old = self.picture.rows.get(row.uid)
        if row.state in ENDED:
            self.picture.tell_engine(old, row)
            self.picture.pods.give_up(row.uid)
            self._forget(row.uid)
            return
        self.picture.rows[row.uid] = row
        self._time(row)
        if row.state is State.WAITING and old is not None and old.state is not State.WAITING:
            self._back.add(row.uid)
        if old is None:
            for pod in self.picture.pods.pods_of(row.uid):
                self.picture.place_pod(pod, row.uid)
        if not planned:
            self.picture.tell_engine(old, row)
        self.picture.pods.charge(row.uid, row.state in CHARGED)
        if old is not None and old.state is State.DRAINING and row.state is not State.DRAINING:
            self.picture.pods.give_up(row.uid)
        if row.state not in CHARGED or (old is not None and old.attempt != row.attempt):
            self.picture.drained.discard(row.uid)
        resized = old is not None and old.admission != row.admission
        if old is None or old.state is not row.state or old.after_drain is not row.after_drain or resized:
            self.inbox.touch(row.uid)
        self.reconciler.settled(row)

    def _forget(self, uid: str) -> None:
        self.picture.forget(uid)
        self.inbox.timers.put(uid, None)
        self.reconciler.forget(uid)
        self.executors.forget(uid)
        self.gates.forget(uid)

    async def _settle(self) -> None:
        """Takes out of the outbox what is done, a moment later: decisions need not wait for it, and doing an action
        again does no harm."""
        while True:
            await self._progress.wait()
            await self._clock.sleep(SETTLE)
            self._progress.clear()
            await self._settle_outbox()

    async def _settle_outbox(self) -> None:
        executors = self.executors
        done, executors.done = executors.done, []
        if ids := [id_ for id_ in done if id_]:
            await self._db(self._store.outbox_done, self.epoch, ids, self._clock.now())
        failed, executors.failed = executors.failed, []
        for id_, error, until in failed:
            if id_:
                await self._db(self._store.outbox_failed, self.epoch, id_, error, until, self._clock.now())
