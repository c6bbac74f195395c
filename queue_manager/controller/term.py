"""One term of leadership: rows and objects in, decisions out.

Everything in memory is built from the store and the watches when the term begins and dropped when it ends; any failure
of the database ends the term, and the next one reads again. There is one writer: the loop in `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import DataError, IntegrityError

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import (
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    TRAIN_JOBS,
    ApiError,
    Cluster,
    EventType,
    Object,
    Resource,
)
from queue_manager.config.compiled import compile_objects
from queue_manager.controller.drain import unsettled
from queue_manager.controller.executor import Executors
from queue_manager.controller.explanations import explanation_of, unknown_queue
from queue_manager.controller.intake import Intake, merged, resolved_again, with_reclaimed
from queue_manager.controller.lost_nodes import given_up, readable_node
from queue_manager.controller.news import differs
from queue_manager.controller.owners import Owners
from queue_manager.controller.pod_table import Pod, PodTable, read_pod
from queue_manager.controller.times import to_microseconds
from queue_manager.controller.transitions import (
    Facts,
    admit,
    annotate,
    decide,
    entries,
    event,
    evict,
    loans,
    placement_lost,
    start_refused,
    stop_trouble,
    sync,
)
from queue_manager.controller.view import ClusterView
from queue_manager.engine.decision import Plan, Reason
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Workload
from queue_manager.kinds.kind import Done, Kind, Lookup, Placement, PodPlacement, Unresolvable
from queue_manager.kinds.registry import KINDS, managed_ancestor
from queue_manager.store.records import (
    CHARGED,
    ENDED,
    Change,
    Committed,
    LedgerState,
    NodeRow,
    OutboxEntry,
    StaleConfiguration,
    State,
    WorkloadRow,
)
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)

T = TypeVar("T")
LONGEST_PAUSE = 60.0
"""Seconds after which the loop looks round although nothing happened."""
PARALLEL_READS = 16
BATCH = 0.005
"""Seconds in which events are gathered into one decision."""
SETTLE = 0.1
"""Seconds in which actions that are done are gathered before they are taken out of the outbox."""
KIND_OF: Mapping[str, Kind] = {kind.resource.kind: kind for kind in KINDS}
CHILDREN = (JOBS, JOB_SETS)
WITH_ECHOES = frozenset({NODES, TRAIN_JOBS, *CHILDREN})
HOPELESS = frozenset({Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR, Reason.MISCONFIGURED, Reason.INACTIVE})
"""Reasons that no end of another job will change: somebody has to do something, so an event says so."""


@dataclass
class Counters:
    """What happened in this term, for metrics."""

    cycles: int = 0
    cycle_seconds: float = 0.0
    last_seconds: float = 0.0
    admissions: int = 0
    evictions: int = 0
    lost: int = 0


class Term:
    """The leader's state and its loop. `run` returns only by exception or cancellation."""

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
        self.rows: dict[str, WorkloadRow] = {}
        self.engine = Engine()
        self.compiled = compile_objects(())
        self.counters = Counters()
        self.pods = PodTable()
        self.view = ClusterView(cluster, clock, random, self._on_event)
        self.intake = Intake(self.view, lambda: self.compiled)
        self.executors = Executors(cluster, self, clock, random)
        self._progress = asyncio.Event()
        self.executors.on_progress = self._progress.set
        self.executors.on_idle = self._touch
        self.ready = False
        self._store = store
        self._clock = clock
        self._in_thread = in_thread
        self._valid = valid
        self._owners = Owners()
        self._dirty: set[str] = set()
        self._dirty_nodes: set[str] = set()
        self._nodes_to_save: set[str] = set()
        self._events = asyncio.Event()
        self._reload = True
        self._left_over: list[OutboxEntry] = []
        self._stored_nodes: set[str] = set()
        self._later: set[str] = set()
        self._later_at = 0.0
        self._later_pauses = Backoff(random, first=1.0, greatest=60.0)
        self._drains_at = 0.0
        self._adopting = False
        self._drained: set[str] = set()
        self._refused: dict[str, str] = {}
        self._refusals: dict[str, int] = {}
        self._stop_troubles: dict[str, str] = {}
        self._told_troubles: dict[str, set[str]] = {}

    @property
    def lookup(self) -> Lookup:
        """The caches."""
        return self.view

    # --- what executors ask -------------------------------------------------------------------------------------

    def row(self, uid: str) -> WorkloadRow | None:
        """The row as last committed."""
        return self.rows.get(uid)

    def kind_of(self, row: WorkloadRow) -> Kind:
        """The kind of the row's object."""
        return KIND_OF[row.kind]

    def object_of(self, row: WorkloadRow) -> Object | None:
        """The newest state known of the row's object; None when it is gone."""
        return self.view.by_uid(self.kind_of(row).resource, row.uid)

    def observe(self, resource: Resource, obj: Object) -> None:
        """An answer of the API server to a write of ours."""
        if resource in self.view.reflectors:
            uid = obj["metadata"].get("uid", "")
            known = self.view.by_uid(resource, uid)
            self.view.observe(resource, obj)
            if known is None or differs(obj, known):
                self._touch(self._owners.root(uid))

    def placement_of(self, row: WorkloadRow) -> Placement:
        """What the pods of an admitted workload must carry."""
        assert row.admission is not None
        return {
            pod_set.name: PodPlacement(
                count=pod_set.count, node_selector=dict(pod_set.selector), tolerations=pod_set.tolerations
            )
            for pod_set in row.admission.admission.pod_sets
        }

    def live_pods(self, uid: str) -> int:
        """Pods that have not ended."""
        return self.pods.live(uid)

    def unsettled(self, uid: str, obj: Object | None) -> str:
        """What can still make pods for the workload, in words; "" when nothing can."""
        if found := unsettled(uid, obj, self.view):
            return found
        # A deleted job's JobSet is collected before its Jobs.
        for child in sorted(self._owners.below(uid)) if obj is None else ():
            left = self.view.by_uid(JOBS, child) or self.view.by_uid(JOB_SETS, child)
            if left is not None:
                return f"{left['kind']} {left['metadata']['name']} is not deleted yet"
        return ""

    def report_drained(self, uid: str) -> None:
        """An executor proved that no pod is left."""
        if uid in self.rows:
            self._drained.add(uid)
            self._touch(uid)

    def report_refused(self, uid: str, message: str) -> None:
        """An executor found that the start is refused for good."""
        row = self.rows.get(uid)
        if row is not None and row.state is State.STARTING:
            self._refused[uid] = message
            self._touch(uid)

    def report_stop_trouble(self, uid: str, message: str) -> None:
        """An executor can't stop a workload, or not as usual; said once for each message."""
        row = self.rows.get(uid)
        if row is None or row.state is not State.DRAINING:
            return
        told = self._told_troubles.setdefault(uid, set())
        if message not in told:
            told.add(message)
            self._stop_troubles[uid] = message
            self._touch(uid)

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

    # --- events -------------------------------------------------------------------------------------------------

    def _touch(self, uid: str) -> None:
        if uid:
            self._dirty.add(uid)
            self._events.set()

    def _on_event(self, resource: Resource, kind: EventType, new: Object | None, old: Object | None) -> None:
        obj = new or old
        assert obj is not None
        if resource == PODS:
            self._pod_event(obj, deleted=kind is EventType.DELETED)
            if not (self.pods.dirty_workloads or self.pods.dirty_bindings or self.pods.dirty_nodes):
                return
        elif resource in WITH_ECHOES and kind is EventType.MODIFIED and new and old and not differs(new, old):
            return
        elif resource == NODES:
            self._dirty_nodes.add(obj["metadata"]["name"])
        elif resource in CHILDREN or resource == TRAIN_JOBS:
            self._job_event(obj, deleted=kind is EventType.DELETED)
        elif resource in (NAMESPACES, LIMIT_RANGES):
            namespace = obj["metadata"].get("namespace") or obj["metadata"]["name"]
            self._touch_where(lambda row: row.namespace == namespace)
            if resource == NAMESPACES:
                self._touch_jobs_of(namespace)
        elif resource == RUNTIME_CLASSES or resource not in (PODS, NODES):
            self._touch_where(lambda row: row.admission is None)
        self._events.set()

    def _touch_where(self, wanted: Callable[[WorkloadRow], bool]) -> None:
        self._dirty.update(uid for uid, row in self.rows.items() if wanted(row))

    def _touch_jobs_of(self, namespace: str) -> None:
        for kind in KINDS:
            self._dirty.update(obj["metadata"]["uid"] for obj in self.view.list(kind.resource, namespace))

    def _job_event(self, obj: Object, *, deleted: bool) -> None:
        uid = obj["metadata"]["uid"]
        if self._owners.learn(obj):
            root = self._owners.root(uid)
            for pod in self.pods.pods_of(uid):
                self._place_pod(pod, root)
        root = self._owners.root(uid)
        if deleted and root not in self.rows:
            self._owners.drop(uid)
        self._touch(root)

    def _pod_event(self, obj: Object, *, deleted: bool) -> None:
        if deleted:
            self.pods.remove(obj["metadata"]["uid"])
        else:
            pod = read_pod(obj)
            self._place_pod(pod, self._owners.root(pod.controller) if pod.controller else "")

    def _place_pod(self, pod: Pod, root: str) -> None:
        row = self.rows.get(root)
        pod_set = self.kind_of(row).pod_set_of({"metadata": {"labels": dict(pod.labels)}}) if row else ""
        self.pods.put(pod, root, pod_set)

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
                while True:
                    await self._step()
            finally:
                await self.executors.close()

    async def _db(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        result: T = await self._in_thread(call, *arguments, **named)
        return result

    async def _load(self) -> None:
        await self._load_configuration()
        for row in await self._db(self._store.load_workloads):
            self.rows[row.uid] = row
        self._left_over.extend(await self._db(self._store.pending_outbox))
        self._stored_nodes.update(node.name for node in await self._db(self._store.load_nodes))
        self._adopting = await self._db(self._store.fact, "adopted") is None
        log.info(
            "state read", workloads=len(self.rows), revision=self.compiled.configuration.revision, epoch=self.epoch
        )

    async def _load_configuration(self) -> None:
        self._reload = False
        revision, objects = await self._db(self._store.load_configuration)
        self.compiled = compile_objects(objects, revision)
        self.engine.configure(self.compiled.configuration)

    def _begin(self) -> None:
        """All caches are filled: tell the engine everything, then look at every object and every row once."""
        for node in self.view.all(NODES):
            self._dirty_nodes.add(node["metadata"]["name"])
        # Nodes that went while nobody led are still in the store.
        self._nodes_to_save |= self._stored_nodes
        self._stored_nodes.clear()
        for row in self.rows.values():
            self._tell_engine(None, row)
        for pod in list(self.view.all(PODS)):
            self._pod_event(pod, deleted=False)
        self._dirty.update(self.rows)
        for kind in KINDS:
            self._dirty.update(obj["metadata"]["uid"] for obj in self.view.all(kind.resource))
        for entry in self._left_over:
            self.executors.submit(entry)
        self._left_over.clear()
        self._events.set()

    async def _step(self) -> None:
        await self._wait_for_events()
        self._events.clear()
        started = self._clock.monotonic()
        if self._reload:
            await self._load_configuration()
            self._touch_where(lambda row: row.state in (State.WAITING, State.HELD))
            if self._adopting:
                self.sweep()
        self._take_due()
        self._refresh_nodes()
        await self._reconcile()
        if self._adopting and not self._later and self.compiled.configuration.queues:
            await self._db(self._store.put_fact, "adopted", {"at": self._clock.now().isoformat()})
            self._adopting = False
        await self._cycle()
        self.ready = True
        self.counters.cycles += 1
        self.counters.last_seconds = self._clock.monotonic() - started
        self.counters.cycle_seconds += self.counters.last_seconds

    async def _wait_for_events(self) -> None:
        """Sleeps until an event, or until a workload's backoff ends; then gathers events for a moment."""
        if not self._events.is_set():
            pause = self._until_something_is_due()
            waiter = asyncio.ensure_future(self._events.wait())
            timer = asyncio.ensure_future(self._clock.sleep(pause))
            try:
                await asyncio.wait({waiter, timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()
        await self._clock.sleep(BATCH)

    def _until_something_is_due(self) -> float:
        """Seconds until a workload's backoff ends, or something is to be looked at again; a minute at most."""
        pause = LONGEST_PAUSE
        if (backoff := self.engine.wake_at()) is not None:
            pause = min(pause, (backoff - to_microseconds(self._clock.now())) / 1_000_000 + 0.001)
        if self._later:
            pause = min(pause, self._later_at - self._clock.monotonic())
        return max(0.0, pause)

    def _take_due(self) -> None:
        """Marks what could not be looked at before, and once in a while what drains: time alone may release it."""
        now = self._clock.monotonic()
        if self._later and now >= self._later_at:
            self._dirty |= self._later
            self._later.clear()
        if now >= self._drains_at:
            self._drains_at = now + LONGEST_PAUSE
            self._touch_where(lambda row: row.state is State.DRAINING)

    def _look_later(self, uids: Collection[str]) -> None:
        if not uids:
            if not self._later:
                self._later_pauses.reset()
            return
        if not self._later:
            self._later_at = self._clock.monotonic() + self._later_pauses.next()
        self._later.update(uids)

    def outbox_age(self) -> float:
        """Seconds that the oldest action not done has been waiting."""
        return self.executors.oldest_age()

    def configuration_changed(self) -> None:
        """The store has a new revision."""
        self._reload = True
        self._events.set()

    def sweep(self) -> None:
        """Looks at everything again: the safety net under the events."""
        self._dirty.update(self.rows)
        for kind in KINDS:
            self._dirty.update(obj["metadata"]["uid"] for obj in self.view.all(kind.resource))
        self._events.set()

    # --- nodes and pods -----------------------------------------------------------------------------------------

    def _refresh_nodes(self) -> None:
        for uid in self.pods.dirty_bindings:
            row = self.rows.get(uid)
            if row is not None and row.admission is not None:
                self._bind(row)
        self.pods.dirty_bindings.clear()
        self._dirty.update(self.pods.dirty_workloads & self.rows.keys())
        self.pods.dirty_workloads.clear()
        names = self._dirty_nodes | self.pods.dirty_nodes
        for name in sorted(names):
            found = self.view.get(NODES, "", name)
            if found is None:
                self.engine.remove_node(name)
            else:
                self.engine.upsert_node(readable_node(found, self.pods.foreign(name)))
        self._nodes_to_save |= names
        self._dirty_nodes.clear()
        self.pods.dirty_nodes.clear()

    def _bind(self, row: WorkloadRow) -> None:
        assert row.admission is not None
        bound = self.pods.bound(row.uid)
        for pod_set in row.admission.admission.pod_sets:
            self.engine.bind(row.uid, pod_set.name, bound.get(pod_set.name, {}))

    async def save_nodes(self) -> None:
        """Keeps nodes and foreign use in the store, for plans and explanations made elsewhere."""
        names, self._nodes_to_save = self._nodes_to_save, set()
        try:
            await self._save_nodes(sorted(names))
        except BaseException:
            self._nodes_to_save |= names
            raise

    async def _save_nodes(self, names: Sequence[str]) -> None:
        rows, removed = [], []
        for name in names:
            found = self.view.get(NODES, "", name)
            if found is None:
                removed.append(name)
                continue
            node = readable_node(found, {})
            rows.append(
                NodeRow(
                    name=name,
                    labels=node.labels,
                    taints=node.taints,
                    allocatable=node.allocatable,
                    foreign=self.pods.foreign(name),
                    ready=node.ready,
                    unschedulable=node.unschedulable,
                )
            )
        if rows or removed:
            await self._db(self._store.save_nodes, self.epoch, rows, removed, self._clock.now())

    # --- rows and objects ---------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        """Follows what the cluster shows: new jobs, changed jobs, starts confirmed, ends, drains."""
        uids, self._dirty = sorted(self._dirty), set()
        failed = await self._read_snapshots(uids)
        changes = []
        for uid in uids:
            row = self.rows.get(uid)
            if uid in failed:
                continue
            try:
                change = await self._change_of(uid, row)
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
        self._look_later(failed)

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

    async def _read_snapshots(self, uids: Sequence[str]) -> set[str]:
        """Asks for the snapshots that TrainJobs among these lack, several at once; answers where that failed."""
        failed: set[str] = set()
        slots = asyncio.Semaphore(PARALLEL_READS)

        async def read(uid: str, obj: Object) -> None:
            try:
                async with slots:
                    await self.view.read_snapshot(obj)
            except ApiError as error:
                log.info("snapshot not read", workload=uid, error=str(error))
                failed.add(uid)

        wanted = []
        for uid in uids:
            row, obj = self.rows.get(uid), self.view.by_uid(TRAIN_JOBS, uid)
            waits = row.state in (State.WAITING, State.HELD) if row is not None else True
            if obj is not None and waits and self.view.lacks_snapshot(obj) and self.intake.is_managed(obj):
                wanted.append(read(uid, obj))
        await asyncio.gather(*wanted)
        return failed

    async def _change_of(self, uid: str, row: WorkloadRow | None) -> Change | None:
        obj, kind = self._find(uid, row)
        if row is None or row.state in ENDED:
            return await self._arrival(obj, kind, row) if obj is not None and kind is not None else None
        assert kind is not None
        facts = self._facts(row, obj, kind)
        if uid in self._refused and row.state is State.STARTING and facts.exists and facts.finished is None:
            failures = self._refusals[uid] = self._refusals.get(uid, 0) + 1
            return start_refused(row, self._refused.pop(uid), facts, failures - 1)
        change = decide(row, facts)
        if change is not None or obj is None:
            return change
        if row.state is State.DRAINING and (trouble := self._stop_troubles.pop(uid, "")):
            return stop_trouble(row, trouble)
        if row.state in (State.WAITING, State.HELD):
            return await self._reread(row, obj, kind)
        if row.state is State.RUNNING and (change := self._lost_placement(row, obj, kind)) is not None:
            return change
        if row.state in (State.STARTING, State.RUNNING):
            return self._loan(row, obj, kind)
        return None

    def _lost_placement(self, row: WorkloadRow, obj: Object, kind: Kind) -> Change | None:
        try:
            problem = kind.lost_placement(obj, self.placement_of(row), self.view)
        except Unresolvable:
            return None
        running = bool(self.pods.live(row.uid)) or kind.is_active(obj, self.view)
        return placement_lost(row, problem, running=running) if problem else None

    def _find(self, uid: str, row: WorkloadRow | None) -> tuple[Object | None, Kind | None]:
        kinds: Iterable[Kind] = KINDS if row is None else (self.kind_of(row),)
        for kind in kinds:
            obj = self.view.by_uid(kind.resource, uid)
            if obj is not None:
                return obj, kind
        return None, None if row is None else self.kind_of(row)

    def _facts(self, row: WorkloadRow, obj: Object | None, kind: Kind) -> Facts:
        now, live = self._clock.now(), self.pods.live(row.uid)
        if obj is None:
            drained = live == 0 and row.uid in self._drained
            charge = self.engine.charge_of(row.uid)
            lost = self._lost_nodes(row, obj, now)
            return Facts(now=now, exists=False, live_pods=live, drained=drained, charge=charge, lost_nodes=lost)
        finished = kind.finished(obj)
        drained = live == 0 and (finished is not None or row.uid in self._drained)
        placed = False
        if row.state is State.STARTING and not kind.is_suspended(obj) and not self.executors.busy(row.uid):
            # A stop of an unadmitted start may still be on its way: it would look like its user's once this is running.
            # What can't be told, its executor meets as well, and reports it.
            with suppress(Unresolvable):
                placed = isinstance(kind.next_start(obj, self.placement_of(row), self.view), Done)
        return Facts(
            now=now,
            exists=row.state in CHARGED or not obj["metadata"].get("deletionTimestamp"),
            suspended=kind.is_suspended(obj),
            placed=placed,
            finished=finished,
            live_pods=live,
            drained=drained,
            managed=self.intake.is_managed(obj),
            charge=self.engine.charge_of(row.uid),
            lost_nodes=self._lost_nodes(row, obj, now),
        )

    def _lost_nodes(self, row: WorkloadRow, obj: Object | None, now: datetime) -> tuple[str, ...]:
        """Nodes whose pods nobody will ever report gone, once nothing else keeps a draining workload (design, 5)."""
        if row.state is not State.DRAINING or row.admission is None or row.admission.evicted_at is None:
            return ()
        pods = self.pods.pods_of(row.uid)
        timeout = timedelta(microseconds=self.compiled.settings.drain_timeout)
        if not pods or now - row.admission.evicted_at < timeout:
            return ()
        if obj is not None and self.kind_of(row).finished(obj) is None and self.unsettled(row.uid, obj):
            return ()
        return given_up(
            [pod.node for pod in pods],
            lambda name: self.view.get(NODES, "", name),
            row.admission.evicted_at,
            now,
            timeout,
        )

    def _charge_facts(self, row: WorkloadRow, now: datetime) -> Facts:
        return Facts(now=now, exists=True, charge=self.engine.charge_of(row.uid))

    async def _arrival(self, obj: Object, kind: Kind, ended: WorkloadRow | None) -> Change | None:
        """A job nobody has seen yet (or that was given up and asks again): queued, adopted when it ran before our first
        start, or left alone."""
        if kind.finished(obj) is not None or obj["metadata"].get("deletionTimestamp"):
            return None
        if not self.intake.is_managed(obj) or managed_ancestor(obj, self.view, self.intake.is_managed) is not None:
            return None
        if kind.resource == TRAIN_JOBS:
            await self.view.read_snapshot(obj)
        row = self.intake.read(obj, kind)
        if ended is not None:
            row = replace(row, version=ended.version, attempt=ended.attempt)
        if self._adopting and self.compiled.settings.adopt and not kind.is_suspended(obj):
            if not self.compiled.configuration.queues:
                return None  # nobody has said yet what queues there are: what runs is left alone
            adopted = self._adopt(row)
            if adopted is not None:
                return adopted
        words = f"Waiting in queue {row.queue}" if row.queue and row.state is State.WAITING else row.message
        problem = not row.queue or row.state is State.HELD
        outbox = [event(row, "Held" if problem else "Queued", words, warning=problem)]
        if problem:
            # Else the decision that follows says why it waits, and the next change of words would wait for a minute.
            outbox.append(annotate(row))
        if not kind.is_suspended(obj):
            outbox.append(sync(row))
        return Change(row=row, outbox=tuple(outbox), request_changed=True, explanation=self._first_explanation(row))

    def _first_explanation(self, row: WorkloadRow) -> Mapping[str, Any] | None:
        return unknown_queue(row) if not row.queue or row.state is State.HELD else None

    def _adopt(self, row: WorkloadRow) -> Change | None:
        """A job that ran before our first start is charged as it runs, even over quota (design, section 5)."""
        if not row.queue or row.state is not State.WAITING:
            return None
        now = self._clock.now()
        admission = self.engine.adopt(self._workload(row), to_microseconds(now))
        if admission is None:
            return None
        change = admit(row, admission, now)
        running = replace(change.row, state=State.RUNNING)
        outbox = (event(running, "Adopted", f"It ran before: charged to queue {row.queue}"), annotate(running))
        return replace(change, row=running, outbox=outbox, request_changed=True)

    async def _reread(self, row: WorkloadRow, obj: Object, kind: Kind) -> Change | None:
        """A waiting job's label, spec, runtime or the configuration changed: ask anew for what it wants."""
        if kind.resource == TRAIN_JOBS:
            await self.view.read_snapshot(obj)
        fresh = merged(row, self.intake.read(obj, kind))
        if fresh is None:
            if row.state is State.WAITING and row.queue:
                self.engine.upsert_workload(self._workload(row))  # the labels of its namespace are not in the row
            if not kind.is_suspended(obj):
                self.executors.submit(sync(row))
            return None
        outbox = [annotate(fresh)] if fresh.reason != row.reason else []
        if fresh.state is not row.state:
            held = fresh.state is State.HELD
            outbox.append(
                event(
                    fresh,
                    "Held" if held else "Queued",
                    fresh.message or f"Waiting in queue {fresh.queue}",
                    warning=held,
                )
            )
        if not kind.is_suspended(obj):
            outbox.append(sync(fresh))
        changed = fresh.pod_groups != row.pod_groups or fresh.topology != row.topology
        return Change(
            row=fresh, outbox=tuple(outbox), request_changed=changed, explanation=self._first_explanation(fresh)
        )

    def _loan(self, row: WorkloadRow, obj: Object, kind: Kind) -> Change | None:
        """Pods that have finished lend their quota; a restart of the job takes it back (workloads.md D11)."""
        groups = with_reclaimed(row.pod_groups, kind.reclaimable(obj, self.view))
        if groups == row.pod_groups:
            return None
        assert row.admission is not None
        fresh = replace(row, pod_groups=groups)
        charge = self.engine.charge_with(row.uid, groups)
        full = row.admission.admission.charge
        ledger = entries(charge, LedgerState.RESERVED) + loans(full, charge)
        return Change(row=fresh, ledger=ledger, request_changed=True)

    # --- decisions ----------------------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """One pass of the engine, committed whole; losers are read again and the pass is taken back."""
        now = self._clock.now()
        plan = self.engine.plan(to_microseconds(now))
        changes = self._changes_of(plan, now)
        if not changes:
            return
        try:
            committed = await self._commit(changes, planned=True)
        except StaleConfiguration as stale:
            # Somebody changed the configuration after this pass read it: the next pass decides by the new one.
            self.engine.revoke()
            self.configuration_changed()
            log.info("plan taken back", why=str(stale))
            return
        except BaseException:
            self.engine.revoke()
            raise
        self._count(plan, committed)
        if committed.lost:
            log.info("plan lost rows", lost=sorted(committed.lost))

    def _changes_of(self, plan: Plan, now: datetime) -> list[Change]:
        changes: list[Change] = []
        for decided in plan.evictions:
            row = self.rows[decided.uid]
            changes.append(evict(row, decided, self.rows.get(decided.by), self._charge_facts(row, now)))
        admitted = {admission.uid for admission in plan.admissions}
        for admission in plan.admissions:
            row = self.rows[admission.uid]
            changes.append(admit(row, admission, now))
        for waiting in plan.waiting:
            row = self.rows[waiting.uid]
            if waiting.uid in admitted or row.state is not State.WAITING:
                continue
            # Who backs off was told before why, and until when.
            keeps = waiting.reason is Reason.BACKOFF and row.message
            fresh = replace(row, reason=waiting.reason.value, message=row.message if keeps else waiting.message)
            outbox = [annotate(fresh)] if row.reason != fresh.reason or row.message != fresh.message else []
            if row.reason != fresh.reason and waiting.reason in HOPELESS:
                outbox.append(event(fresh, "Waiting", fresh.message, warning=True))
            explanation = explanation_of(waiting, row, self.rows, now)
            changes.append(Change(row=fresh, outbox=tuple(outbox), explanation=explanation))
        return changes

    def _count(self, plan: Plan, committed: Committed) -> None:
        for eviction in plan.evictions:
            row = self.rows.get(eviction.uid)
            if row is not None and eviction.uid in committed.versions:
                self.counters.evictions += 1
                name, reason = f"{row.namespace}/{row.name}", eviction.reason.value
                log.info("evicted", workload=row.uid, name=name, reason=reason, by=eviction.by)
        for admission in plan.admissions:
            row = self.rows.get(admission.uid)
            if row is not None and admission.uid in committed.versions:
                self.counters.admissions += 1
                name = f"{row.namespace}/{row.name}"
                log.info("admitted", workload=row.uid, name=name, queue=admission.queue, attempt=row.attempt)

    async def _commit(self, changes: Sequence[Change], *, planned: bool = False) -> Committed:
        """Writes the changes, then tells memory, engine and executors what won; losers are read again."""
        revision = self.compiled.configuration.revision if planned else None
        committed = await self._db(self._store.commit, self.epoch, revision, self._clock.now(), changes)
        if committed.lost:
            self.counters.lost += len(committed.lost)
            if planned:
                # All of the plan is taken back; what won is told to the engine like news from elsewhere.
                self.engine.revoke(committed.lost)
                planned = False
            await self._read_again(committed.lost)
        for change in changes:
            uid = change.row.uid
            if uid not in committed.lost:
                self._apply(replace(change.row, version=committed.versions[uid]), planned=planned)
        rows = {change.row.uid: change.row for change in changes}
        for entry in committed.outbox:
            self.executors.submit(entry, rows[entry.uid])
        return committed

    async def _read_again(self, uids: Iterable[str]) -> None:
        found = {row.uid: row for row in await self._db(self._store.get_workloads, sorted(uids))}
        for uid in uids:
            row, old = found.get(uid), self.rows.get(uid)
            if row is None:
                self._forget(uid)
            else:
                self._tell_engine(old, row)
                self.rows[uid] = row
                self.pods.charge(uid, row.state in CHARGED)
            self._touch(uid)

    def _apply(self, row: WorkloadRow, *, planned: bool) -> None:
        old = self.rows.get(row.uid)
        if row.state in ENDED:
            self._tell_engine(old, row)
            self.pods.give_up(row.uid)
            self._forget(row.uid)
            return
        self.rows[row.uid] = row
        if old is None:
            for pod in self.pods.pods_of(row.uid):
                self._place_pod(pod, row.uid)
        if not planned:
            self._tell_engine(old, row)
        self.pods.charge(row.uid, row.state in CHARGED)
        if old is not None and old.state is State.DRAINING and row.state is not State.DRAINING:
            self.pods.give_up(row.uid)
        if row.state not in CHARGED or (old is not None and old.attempt != row.attempt):
            self._drained.discard(row.uid)
        if old is None or old.state is not row.state or old.after_drain is not row.after_drain:
            self._touch(row.uid)
        if row.state is not State.STARTING:
            self._refused.pop(row.uid, None)
        if row.state is State.RUNNING:
            self._refusals.pop(row.uid, None)
        if row.state is not State.DRAINING:
            self._forget_troubles(row.uid)

    def _forget_troubles(self, uid: str) -> None:
        self._stop_troubles.pop(uid, None)
        self._told_troubles.pop(uid, None)

    def _forget(self, uid: str) -> None:
        self.engine.remove_workload(uid)
        self.rows.pop(uid, None)
        self.pods.charge(uid, False)
        self._owners.forget(uid)
        self._drained.discard(uid)
        self._refusals.pop(uid, None)
        self._refused.pop(uid, None)
        self._forget_troubles(uid)
        self.executors.forget(uid)

    def _tell_engine(self, old: WorkloadRow | None, row: WorkloadRow) -> None:
        """Brings the engine's picture of a workload from `old` to `row`."""
        if row.state in ENDED or (row.state is not State.WAITING and row.state not in CHARGED) or not row.queue:
            if old is None or row.state in ENDED or old.state not in CHARGED:
                self.engine.remove_workload(row.uid)
            elif old.state in CHARGED:
                self.engine.release(row.uid)
                self.engine.remove_workload(row.uid)
            if row.admission is None:
                return
        if row.state is State.WAITING and old is not None and old.state in CHARGED:
            self.engine.release(row.uid)
        if row.state in ENDED:
            return
        self.engine.upsert_workload(self._workload(row))
        if row.admission is None:
            return
        if old is None or old.admission is None:
            self.engine.restore_admission(
                row.admission.admission, draining=row.state is State.DRAINING, evicted_by=row.admission.by
            )
            self.pods.charge(row.uid, True)
            self._bind(row)
        elif row.state is State.DRAINING and old.state is not State.DRAINING:
            if row.admission.by:
                self.engine.restore_admission(row.admission.admission, draining=True, evicted_by=row.admission.by)
                self._bind(row)
            else:
                self.engine.evict(row.uid)

    def _workload(self, row: WorkloadRow) -> Workload:
        return Workload(
            uid=row.uid,
            namespace=row.namespace,
            name=row.name,
            queue=row.queue,
            created=to_microseconds(row.created_at),
            pod_groups=row.pod_groups,
            priority=row.priority,
            may_preempt=row.may_preempt,
            preemptible=row.preemptible,
            user=row.user,
            topology=row.topology,
            not_before=to_microseconds(row.not_before) if row.not_before else 0,
            namespace_labels=self.intake.namespace_labels(row.namespace),
        )

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
