"""One term of leadership: rows and objects in, decisions out.

Everything in memory is built from the store and the watches when the term begins and dropped when it ends; any failure
of the database ends the term, and the next one reads again. There is one writer: the loop in `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import TypeVar

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import NODES, PODS, Cluster
from queue_manager.config.compiled import compile_objects
from queue_manager.controller.answers import Answers
from queue_manager.controller.commits import Commits
from queue_manager.controller.counters import Counters
from queue_manager.controller.crowds import Crowds
from queue_manager.controller.executor import Executors
from queue_manager.controller.garbage import settle_garbage
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.inbox import LONGEST_PAUSE, SLICE, Inbox
from queue_manager.controller.memory import Memory
from queue_manager.controller.picture import Picture
from queue_manager.controller.plan_changes import changes_of
from queue_manager.controller.pod_events import PodEvents
from queue_manager.controller.pod_gates import PodGates
from queue_manager.controller.reasons import Reasons
from queue_manager.controller.reconciler import Reconciler
from queue_manager.controller.reports import Reports
from queue_manager.controller.seats import Seats
from queue_manager.controller.settling import Settling
from queue_manager.controller.stored_namespaces import StoredNamespaces
from queue_manager.controller.stored_nodes import StoredNodes
from queue_manager.controller.transitions import sync
from queue_manager.controller.view import ClusterView
from queue_manager.engine.configuration import History
from queue_manager.engine.decision import Plan
from queue_manager.store.deadlines import STARTED
from queue_manager.store.records import CHARGED, Committed, OutboxEntry, StaleConfiguration, State
from queue_manager.store.store import Store
from queue_manager.store.times import to_microseconds

log = structlog.get_logger(__name__)
T = TypeVar("T")

BATCH, MOST_BATCH, SHARE, QUIET = 0.005, 0.15, 2, 8
"""Seconds in which events are gathered into one decision, within these bounds: `SHARE` times as long as the last one
took: where there is much to do, fewer passes and commits have more in them, and starts are sent in between. Where
`QUIET` starts and stops or fewer are being written, what an end frees is given away at once."""
BACKLOG, MOST_ADMITTED = 128, 512
"""How many starts and stops may have yet to be written when there is a plan, and the admissions of a plan. What could
not be started for seconds would hold quota that those who come meanwhile have a better right to, and be evicted."""


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """SLICE after SLICE of them."""
    return (items[start : start + SLICE] for start in range(0, len(items), SLICE))


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
        in_thread: InThread,
        valid: Callable[[], bool],
        events: bool | None = None,
    ) -> None:
        """`events`: whether events are written on the objects of workloads; None leaves it to the Settings."""
        self.epoch = epoch
        self.counters = Counters()
        self.ready = False
        self.view = ClusterView(cluster, clock, random, lambda *news: self.inbox.on_event(*news))
        self.picture = Picture(self.view)
        self.inbox = Inbox(self.picture, clock, random)
        reports = Reports(self.picture.rows, self.inbox.touch)

        def tells() -> bool:
            return self.picture.compiled.settings.events if events is None else events

        answers = Answers(self.picture, reports, self.inbox.touch, valid, tells)
        self.executors = Executors(cluster, answers, clock, random)
        self.executors.on_idle = self.inbox.touch
        self.gates = PodGates(
            Seats(
                self.view,
                self.picture.pods_of,
                self.picture.kind_of,
                self.picture.placement_of,
                self.picture.sites.node_named,
                lambda uid: self.picture.sites.shut.get(uid, ()),
            ),
            self.picture.rows.get,
            valid,
            self.executors.send,
            clock,
            random,
            PodEvents(cluster, clock, lambda: valid() and tells()),
        )
        self.reconciler = Reconciler(self.picture, reports, self.executors, clock, self.gates.passed)
        self.reasons = Reasons(self.picture, clock)
        self.stored_nodes = StoredNodes(store, in_thread, epoch, self.picture, clock)
        self.stored_namespaces = StoredNamespaces(store, in_thread, epoch, self.view, clock)
        self._settling = Settling(store, in_thread, epoch, self.executors, clock)
        self._memory = Memory(self.picture, self.inbox, self.reconciler, self.executors, self.gates)
        self._commits = Commits(
            store,
            in_thread,
            epoch,
            clock,
            picture=self.picture,
            memory=self._memory,
            inbox=self.inbox,
            reconciler=self.reconciler,
            executors=self.executors,
            reasons=self.reasons,
            counters=self.counters,
            events=tells,
        )
        self._store = store
        self._clock = clock
        self._in_thread = in_thread
        self._reload = True
        self._asked = True
        self._asked_at = 0.0
        self._kueue_keys = False
        self._crowds = Crowds(clock, self.picture.pods.live)
        self._left_over: list[OutboxEntry] = []
        self._more = False

    async def run(self) -> None:
        """Reads the store, waits for the watches, then decides for as long as it leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(self._settling.run())
            await self._load()
            await self.view.synced()
            await self._begin()
            try:
                settle_garbage()
                await self._step()
                while self.inbox.sweeping:
                    await self._step()
                settle_garbage()
                while True:
                    await self._step()
            finally:
                await self.executors.close()
                await self.gates.close()

    async def _load(self) -> None:
        await self._load_configuration()
        for row in await self._in_thread(self._store.load_workloads):
            self._memory.load(row)
        self._left_over.extend(await self._in_thread(self._store.pending_outbox))
        await self.stored_nodes.load()
        await self.stored_namespaces.load()
        self.reconciler.adopting = await self._in_thread(self._store.fact, "adopted") is None
        log.info(
            "state read",
            workloads=len(self.picture.rows),
            revision=self.picture.compiled.configuration.revision,
            epoch=self.epoch,
        )

    async def _load_configuration(self) -> None:
        self._reload = False
        revision, objects = await self._in_thread(self._store.load_configuration)
        before = self.picture.compiled.configuration.history
        self.picture.configure(compile_objects(objects, revision))
        await self._load_history(before)
        self.reasons.something_happened()
        for row in self.picture.rows.values():
            self._memory.time(row)

    async def _load_history(self, before: History | None) -> None:
        """Past usage as the ledger has it: when a term begins, and when its rules have changed."""
        rules = self.picture.compiled.configuration.history
        if rules is None or rules == before:
            return
        now = self._clock.now()
        spans = (timedelta(microseconds=rules.half_life), timedelta(microseconds=rules.at_once))
        averages = await self._in_thread(self._store.past_usage, now, *spans)
        self.picture.engine.restore_history(averages, to_microseconds(now))

    async def _read_instructions(self) -> None:
        self._asked = False
        self._asked_at = self._clock.monotonic()
        pending = await self._in_thread(self._store.pending_instructions)
        self.inbox.workloads |= self.reconciler.instructions.read(pending, self.picture.rows.keys())

    async def _begin(self) -> None:
        """All caches are filled: tell the engine everything, then look at every object and every row once: at what is
        charged before anything is decided, for it may have ended; at who waits while decisions go on."""
        for node in self.view.all(NODES):
            self.inbox.nodes.add(node["metadata"]["name"])
            self.picture.sites.learn(node["metadata"]["name"], node)
        for rows in slices(list(self.picture.rows.values())):
            for row in rows:
                self.picture.tell_engine(None, row)
            await asyncio.sleep(0)
        self._kueue_keys = self.view.kueue_keys
        for pod in list(self.view.all(PODS)):
            self.inbox.pod_event(pod, deleted=False)
        for entry in self._left_over:
            self.executors.submit(entry)
        self._left_over.clear()
        self.executors.begin(self.picture.rows.values())
        self.inbox.workloads.clear()  # of all marks that the caches made while they were filled
        self.inbox.touch_where(lambda row: row.state in CHARGED)
        self.inbox.sweep(at_once=self.reconciler.adopting)

    def _heed_kueue(self) -> None:
        """Kueue came or went, or `kueueLabels` was changed: jobs may be ours by its labels, or no longer be."""
        if self.view.kueue_keys is self._kueue_keys:
            return
        self._kueue_keys = self.view.kueue_keys
        log.info("Kueue's labels and annotations", read=self._kueue_keys)
        self.inbox.sweep(at_once=self.reconciler.adopting)

    async def _step(self) -> None:
        await self._wait_for_events()
        self.inbox.events.clear()
        started = self._clock.monotonic()
        if self._reload:
            settings, basis = self.picture.compiled.settings, self.picture.basis
            await self._load_configuration()
            self.inbox.touch_where(lambda row: row.state in (State.HELD, State.RESERVED))
            if self.picture.basis != basis:
                self.inbox.touch_where(lambda row: row.state is State.WAITING)
            if self.picture.compiled.settings.unhealthy_after != settings.unhealthy_after:
                self.inbox.nodes.update(node["metadata"]["name"] for node in self.view.all(NODES))
            if self.picture.compiled.settings != settings:
                # Who is ready is not in its row yet where that was not watched: nobody would start before it is.
                self.inbox.touch_where(lambda row: row.state in STARTED)
            if self.reconciler.adopting:
                self.inbox.sweep(at_once=True)
        self._heed_kueue()
        if self._asked or self._clock.monotonic() >= self._asked_at + LONGEST_PAUSE:
            await self._read_instructions()
        self.inbox.take_due()
        nodes_changed = self._refresh_nodes()
        await self._reconcile(self.inbox.take())
        if nodes_changed:
            # Only now: a place that is lost has another one by this time.
            self.gates.nodes_changed()
        if back := self._memory.take_back():
            # Who waits again may ask for something else by now: that is read before it can be admitted.
            await self._reconcile(back)
        if useless := self.reconciler.instructions.useless:
            await self._in_thread(self._store.drop_instructions, self.epoch, tuple(useless))
            useless.clear()
        all_looked_at = not self.inbox.has_later and not self.inbox.sweeping
        if self.reconciler.adopting and all_looked_at and self.picture.compiled.configuration.queues:
            await self._in_thread(self._store.put_fact, "adopted", {"at": self._clock.now().isoformat()})
            self.reconciler.adopting = False
        await self._cycle()
        if self.reasons.is_time():
            # What became free may be a place for pods that have lost theirs.
            self.inbox.touch_all(self.picture.unplaced)
        if stale := self.reasons.due():
            await self._commits.commit(stale)
        if not self.ready and not self.inbox.sweeping:
            self.ready = True
            log.info("all looked at", workloads=len(self.picture.rows), epoch=self.epoch)
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
        gather = SHARE * self.counters.last_seconds if self.executors.backlog() > QUIET else 0.0
        await self._clock.sleep(min(MOST_BATCH, max(BATCH, gather)))

    def _until_something_is_due(self) -> float:
        """Seconds until a workload's backoff ends, or something is to be looked at again; a minute at most."""
        pause = self._crowds.pause(self.reasons.pause(self.inbox.pause()))
        if self._more:
            pause = min(pause, MOST_BATCH)
        if (patience := self.picture.sites.next()) is not None:
            pause = min(pause, (patience - self._clock.now()).total_seconds() + 0.001)
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

    def _refresh_nodes(self) -> bool:
        """Takes over what is new of nodes and bindings; answers whether there is something of nodes."""
        now = self._clock.now()
        names = self.inbox.take_nodes() | self.picture.sites.due(now)
        used = self.inbox.take_used() - names
        for name in sorted(names):
            self.inbox.workloads |= self.picture.refresh_node(name, now)
        for name in sorted(used):
            self.picture.refresh_use(name)
        self.stored_nodes.changed(names | used)
        if names or used:
            self.reasons.something_happened()
        for uid in self.picture.pods.dirty_bindings:
            row = self.picture.rows.get(uid)
            if row is not None and row.admission is not None:
                self.picture.bind(row)
        self.picture.pods.dirty_bindings.clear()
        self.inbox.workloads |= self.picture.displaced(sorted(used))
        self.inbox.workloads |= self._crowds.take(self.picture.pods.dirty_workloads & self.picture.rows.keys())
        self.picture.pods.dirty_workloads.clear()
        return bool(names or used)

    # --- rows and objects ---------------------------------------------------------------------------------------

    async def _reconcile(self, uids: Sequence[str]) -> None:
        """Follows what the cluster shows: new jobs, changed jobs, starts confirmed, ends, drains."""
        failed = await self.reconciler.read_snapshots(uids)
        self.reconciler.begin()
        for part in slices(uids):
            failed |= await self._look(part, failed)
            await asyncio.sleep(0)
        self.inbox.look_later(failed)
        postponed = self.reconciler.begin()
        self.inbox.touch_all(postponed)
        for uid in uids:
            if uid not in postponed:
                self.gates.look(uid)

    async def _look(self, uids: Sequence[str], unread: Collection[str]) -> set[str]:
        """Decides and commits what changes of these workloads; answers of whom that failed."""
        failed, changes = set(), []
        for uid in uids:
            row = self.picture.rows.get(uid)
            if uid in unread:
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
        failed |= await self._commits.commit_readable(changes)
        for change in changes:
            if change.row.uid in self.picture.rows and change.row.uid not in failed:
                # One change a look: the same facts may ask for another one.
                self.inbox.touch(change.row.uid)
        return failed

    # --- decisions ----------------------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """One pass of the engine, committed whole; losers are read again and the pass is taken back. None while much of
        those before has yet to be written."""
        self._more = self.executors.backlog() > BACKLOG
        if self._more:
            return
        now = self._clock.now()
        one_at_a_time = self.picture.compiled.settings.block_admission
        self.picture.engine.gate(frozenset(self.picture.not_ready) if one_at_a_time else None)
        plan = self.picture.engine.plan(to_microseconds(now), MOST_ADMITTED)
        self._more = plan.more
        changes = changes_of(plan, self.picture, now)
        if not changes:
            return
        try:
            committed = await self._commits.commit(changes, planned=True)
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
