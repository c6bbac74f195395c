"""Follows what the cluster shows: new and changed jobs, starts, ends, drains. Makes changes; commits nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import NODES, TRAIN_JOBS, ApiError, Object
from queue_manager.controller.disruptions import Disruptions
from queue_manager.controller.executor import Executors
from queue_manager.controller.explanations import outside
from queue_manager.controller.group_watch import change_by_groups
from queue_manager.controller.instructions import Instructions
from queue_manager.controller.intake import Reading, arrived_at, merged, same_pods, with_reclaimed
from queue_manager.controller.labels import as_labelled, outvoted, settled
from queue_manager.controller.lifecycle import Rules, overdue, rules_for
from queue_manager.controller.lost_nodes import given_up
from queue_manager.controller.moves import Later, Moves
from queue_manager.controller.node_failures import NodeFailures
from queue_manager.controller.obey import obey, refused
from queue_manager.controller.picture import KIND_OF, Picture
from queue_manager.controller.plain_groups import emptied, is_abandoned
from queue_manager.controller.pod_priority import warning
from queue_manager.controller.reports import Reports
from queue_manager.controller.resizing import Resizing, is_elastic
from queue_manager.controller.rows import pod_priorities
from queue_manager.controller.transitions import (
    Facts,
    admit,
    charged,
    decide,
    drain,
    event,
    not_followed,
    placement_lost,
    start_refused,
    stop_trouble,
    sync,
)
from queue_manager.engine.copies import replace
from queue_manager.engine.resize import running_pods
from queue_manager.engine.workload import by_name
from queue_manager.kinds.kind import Done, Kind, Unresolvable
from queue_manager.kinds.kubernetes_groups import Covering
from queue_manager.kinds.registry import managed_ancestor
from queue_manager.store.deadlines import STARTED, open_checks
from queue_manager.store.records import CHARGED, ENDED, Change, OutboxEntry, State, Wish, WorkloadRow
from queue_manager.store.times import to_microseconds
from queue_manager.store.wishes import refusal

log = structlog.get_logger(__name__)

POD_PRIORITY = "PodPriority"
LABEL_NOT_FOLLOWED = "LabelNotFollowed"
OUTVOTED = "Not followed: "
"""Begins what is said of labels in the message of an admitted workload."""
LABELLED = (Wish.MOVE, Wish.REPRIORITISE)
PARALLEL_READS = 16


class Reconciler:
    """Answers for each workload what changes. `adopting` holds until the first look at everything is through."""

    def __init__(
        self,
        picture: Picture,
        reports: Reports,
        executors: Executors,
        clock: Clock,
        passed: Callable[[str], frozenset[str]],
    ) -> None:
        self.adopting = False
        self.instructions = Instructions()
        self.reports = reports
        self._resizing = Resizing(picture, passed)
        self._disruptions = Disruptions(picture)
        self._node_failures = NodeFailures(picture)
        self._moves = Moves(picture, self._resizing)
        self._outvoted: dict[str, str] = {}
        self._picture = picture
        self._executors = executors
        self._clock = clock

    def begin(self) -> set[str]:
        """A new round of looks begins; answers uids that were left out in the last one."""
        return self._node_failures.begin() | self._moves.begin()

    async def read_snapshots(self, uids: Sequence[str]) -> set[str]:
        """Asks for the snapshots that TrainJobs among these lack, several at once; answers where that failed."""
        failed: set[str] = set()
        slots = asyncio.Semaphore(PARALLEL_READS)

        async def read(uid: str, obj: Object) -> None:
            try:
                async with slots:
                    await self._picture.view.read_snapshot(obj)
            except ApiError as error:
                log.info("snapshot not read", workload=uid, error=str(error))
                failed.add(uid)

        await asyncio.gather(*(read(uid, obj) for uid in uids if (obj := self._without_snapshot(uid)) is not None))
        return failed

    def _without_snapshot(self, uid: str) -> Object | None:
        """The TrainJob of that uid, if it has yet to be admitted and its snapshot is worth asking for."""
        row, obj = self._picture.rows.get(uid), self._picture.view.by_uid(TRAIN_JOBS, uid)
        if obj is None or (row is not None and row.state in CHARGED):
            return None
        over = KIND_OF[TRAIN_JOBS.kind].finished(obj) is not None
        wanted = not over and self._picture.view.lacks_snapshot(obj) and self._picture.intake.is_managed(obj)
        return obj if wanted else None

    def change_of(self, uid: str, row: WorkloadRow | None) -> Change | None:
        """The next change of a workload, None when its row says what the cluster shows; snapshots are read before.

        May raise anything for an object that can't be read.
        """
        obj, kind = self._picture.find(uid, row)
        if row is None or row.state in ENDED:
            return self._arrival(obj, kind, row) if obj is not None and kind is not None else None
        assert kind is not None
        change = self._followed(row, obj, kind)
        return change or (self._labelled(row, obj, kind) if obj is not None else None)

    def _followed(self, row: WorkloadRow, obj: Object | None, kind: Kind) -> Change | None:
        """What the cluster shows, what people ask, what rules demand: whichever is first."""
        uid = row.uid
        facts = self._facts(row, obj, kind)
        starts = row.state is State.STARTING and facts.exists and facts.finished is None
        if starts and (refusal := self.reports.take_refusal(uid)) is not None:
            message, before = refusal
            return start_refused(row, message, facts, before)
        rules = self._rules(row)
        if (change := self._instructed(row, obj, facts, rules)) is not None:
            return change
        change = decide(row, facts) or overdue(row, facts, rules)
        if change is not None or obj is None:
            return change
        if row.state is State.DRAINING and (trouble := self.reports.take_stop_trouble(uid)):
            return stop_trouble(row, trouble)
        if row.state in (State.WAITING, State.HELD):
            return self._reread(row, obj, kind) or emptied(row, obj, facts.now)
        groups: tuple[Covering, ...] = ()
        if row.admission is not None and row.state is not State.DRAINING:
            settings = self._picture.compiled.settings
            groups = self._picture.kubernetes_groups.of(uid, obj, kind)
            if (change := self._disruptions.change_of(row, facts, groups)) is not None:
                return change
            if (change := self._node_failures.change_of(row, facts, settings)) is not None:
                return change
        # One voice at a time in the message of a row. Who gives a reason as well (it waits for nodes, or for more pods)
        # goes before all others; and a place that is to change is not written again.
        quiet = bool(row.reason)
        if row.state is State.RUNNING and not quiet and (problem := self._lost_placement(row, obj, kind)):
            running = bool(self._picture.pods.live(row.uid)) or kind.is_active(obj, self._picture.view)
            if (change := placement_lost(row, problem, running=running)) is not None:
                return change
            quiet = True
        if row.state in STARTED and (change := change_by_groups(row, groups, facts, quiet=quiet)) is not None:
            return change
        if row.state in STARTED:
            self._picture.refresh(row)
            if is_elastic(row):
                return self._resizing.change_of(row, obj, kind, facts.now)
            return self._loan(row, obj, kind, facts)
        if row.state in (State.RESERVED, State.DEACTIVATED) and self._can_be_stopped(obj, kind):
            self._executors.submit(sync(row))
        if row.state is not State.RESERVED:
            return None
        return change_by_groups(row, groups, facts) or self._changed_while_reserved(row, obj, kind, facts)

    def _rules(self, row: WorkloadRow) -> Rules:
        compiled = self._picture.compiled
        queue = row.admission.admission.queue if row.admission is not None else row.queue
        return rules_for(row, compiled.settings, compiled.configuration.queues.get(queue))

    def waits_for(self, row: WorkloadRow) -> list[str]:
        """The checks that a reserved workload waits for."""
        return open_checks(row.checks, self._rules(row).checks) if row.state is State.RESERVED else []

    def _instructed(self, row: WorkloadRow, obj: Object | None, facts: Facts, rules: Rules) -> Change | None:
        """Carries out the next instruction; the job's own end goes before."""
        while (instruction := self.instructions.first(row.uid)) is not None:
            if obj is None or not facts.exists or facts.finished is not None:
                return None
            if why := refusal(row, instruction.wish, facts.now):
                change: Change | Later | None = refused(row, instruction, why)
            elif instruction.wish in LABELLED:
                # What is on its way would look like somebody else's label once it has been decided again.
                on_its_way = self._executors.relabels(row.uid)
                change = Later() if on_its_way else self._moves.change_of(row, obj, instruction, facts)
            else:
                change = obey(row, instruction, facts, rules)
            if isinstance(change, Later):
                return None
            if change is not None:
                return replace(change, instructions=(instruction.id,))
            log.info("nothing to do", workload=row.uid, wish=instruction.wish.value, state=row.state.value)
            self.instructions.drop(instruction)
        return None

    def _labelled(self, row: WorkloadRow, obj: Object, kind: Kind) -> Change | None:
        """Notes the labels that are written by now, and tells of those that do not count while it is admitted."""
        if (fresh := settled(row, obj, kind)) is not row:
            return Change(row=fresh)
        admitted = row.state in (*STARTED, State.RESERVED)
        words = outvoted(row, obj, kind, self._picture.view) if admitted else ""
        known = self._outvoted.pop(row.uid, "")
        if words:
            self._outvoted[row.uid] = words
        if not admitted:
            return None
        message = OUTVOTED + words if words else ""
        # In the message of a row everything else goes before it.
        speaks = not row.message or row.message.startswith(OUTVOTED)
        fresh = replace(row, message=message) if speaks else row
        is_news = bool(words) and words != known and row.message != message
        outbox = (event(fresh, LABEL_NOT_FOLLOWED, message, warning=True),) if is_news else ()
        return Change(row=fresh, outbox=outbox) if outbox or fresh != row else None

    def _changed_while_reserved(self, row: WorkloadRow, obj: Object, kind: Kind, facts: Facts) -> Change | None:
        """Its quota was reserved for what it asked for then: it queues again for what it asks for now."""
        fresh = self._picture.intake.read(as_labelled(row, obj, kind), kind, row.inputs)
        if fresh.queue == row.queue and same_pods(fresh.pod_groups, row.pod_groups):
            return None
        message = "Its reservation is given up: its job asks for something else now"
        return drain(row, facts, State.WAITING, "JobChanged", message, event_reason="Evicted")

    def _lost_placement(self, row: WorkloadRow, obj: Object, kind: Kind) -> str:
        try:
            return kind.lost_placement(obj, self._picture.placement_of(row), self._picture.view)
        except Unresolvable:
            return ""

    def _can_be_stopped(self, obj: Object, kind: Kind) -> bool:
        """Whether it runs, and there is something to write against that. Plain pods that nobody admitted run on."""
        if kind.is_suspended(obj):
            return False
        try:
            return not isinstance(kind.next_stop(obj, self._picture.view, drained=True), Done)
        except Unresolvable:
            return True  # its executor meets that as well, and tries again after a pause

    def _facts(self, row: WorkloadRow, obj: Object | None, kind: Kind) -> Facts:
        now, live = self._clock.now(), self._picture.pods.live(row.uid)
        if obj is None:
            drained = live == 0 and row.uid in self._picture.drained
            charge = self._picture.engine.charge_of(row.uid)
            lost = self._lost_nodes(row, obj, now)
            return Facts(now=now, exists=False, live_pods=live, drained=drained, charge=charge, lost_nodes=lost)
        finished = kind.finished(obj)
        drained = live == 0 and (finished is not None or row.uid in self._picture.drained)
        placed = False
        if row.state is State.STARTING and not kind.is_suspended(obj) and not self._executors.busy(row.uid):
            # A stop of an unadmitted start may still be on its way: it would look like its user's once this is running.
            # What can't be told, its executor meets as well, and reports it.
            with suppress(Unresolvable):
                placed = isinstance(kind.next_start(obj, self._picture.placement_of(row), self._picture.view), Done)
        watched = row.state is State.RUNNING and self._picture.compiled.settings.ready_timeout > 0
        return Facts(
            now=now,
            exists=row.state in CHARGED or not (is_leaving(obj) or is_abandoned(row, obj, now)),
            suspended=kind.is_suspended(obj),
            placed=placed,
            finished=finished,
            live_pods=live,
            drained=drained,
            managed=self._picture.intake.is_managed(obj),
            charge=self._picture.engine.charge_of(row.uid),
            lost_nodes=self._lost_nodes(row, obj, now),
            ready=watched and kind.pods_ready(obj, self._picture.view),
        )

    def _lost_nodes(self, row: WorkloadRow, obj: Object | None, now: datetime) -> tuple[str, ...]:
        """Nodes whose pods nobody will ever report gone, once nothing else keeps a draining workload (design, 5)."""
        if row.state is not State.DRAINING or row.admission is None or row.admission.evicted_at is None:
            return ()
        pods = self._picture.pods.pods_of(row.uid)
        timeout = timedelta(microseconds=self._picture.compiled.settings.drain_timeout)
        if not pods or now - row.admission.evicted_at < timeout:
            return ()
        if (
            obj is not None
            and self._picture.kind_of(row).finished(obj) is None
            and self._picture.unsettled(row.uid, obj)
        ):
            return ()
        return given_up(
            [pod.node for pod in pods],
            lambda name: self._picture.view.get(NODES, "", name),
            row.admission.evicted_at,
            now,
            timeout,
        )

    def _arrival(self, obj: Object, kind: Kind, ended: WorkloadRow | None) -> Change | None:
        """A job nobody has seen yet (or that was given up and asks again): queued, adopted when it ran before our first
        start, or left alone."""
        if kind.finished(obj) is not None or is_leaving(obj):
            return None
        if (
            not self._picture.intake.is_managed(obj)
            or managed_ancestor(obj, self._picture.view, self._picture.answers_for) is not None
        ):
            return None
        reading = self._picture.intake.read_all(obj, kind)
        row = replace(reading.row, created_at=arrived_at(reading.row.created_at, self._clock.now()))
        if ended is not None:
            row = replace(row, version=ended.version, attempt=ended.attempt)
        self._note_reading(row, obj, kind)
        if self.adopting and self._picture.compiled.settings.adopt and not kind.is_suspended(obj):
            if not self._picture.compiled.configuration.queues:
                return None  # nobody has said yet what queues there are: what runs is left alone
            adopted = self._adopt(row)
            if adopted is not None:
                return adopted
        problem = not row.queue or row.state is State.HELD
        outbox = [event(row, "Held", row.message, warning=True)] if problem else []
        outbox += not_followed(row, reading.messages) + self._of_priority(row, reading)
        if self._can_be_stopped(obj, kind):
            outbox.append(sync(row))
        return Change(row=row, outbox=tuple(outbox), request_changed=True, explanation=self._first_explanation(row))

    def _note_reading(self, row: WorkloadRow, obj: Object, kind: Kind) -> None:
        self._picture.readings.note(row, obj, kind.resource)

    def _of_priority(self, row: WorkloadRow, reading: Reading) -> list[OutboxEntry]:
        lowest = self._picture.rows.lowest_pod_priority(row.uid)
        message = warning(row, reading.preempting, lowest, self._picture.compiled.settings)
        return [event(row, POD_PRIORITY, message, warning=True)] if message else []

    def _first_explanation(self, row: WorkloadRow) -> Mapping[str, Any] | None:
        return outside(row) if not row.queue or row.state is State.HELD else None

    def _adopt(self, row: WorkloadRow) -> Change | None:
        """A job that ran before our first start is charged as it runs, even over quota (design, section 5)."""
        if not row.queue or row.state is not State.WAITING:
            return None
        now = self._clock.now()
        admission = self._picture.engine.adopt(self._picture.workload(row), to_microseconds(now))
        if admission is None:
            return None
        change = admit(row, admission, now)
        running = replace(change.row, state=State.RUNNING)
        outbox = (event(running, "Adopted", f"It ran before: charged to queue {row.queue}"),)
        return replace(change, row=running, outbox=outbox, request_changed=True)

    def _reread(self, row: WorkloadRow, obj: Object, kind: Kind) -> Change | None:
        """A waiting job's label, spec, runtime or the configuration changed: ask anew for what it wants."""
        if self._picture.readings.is_current(row, obj):
            if self._can_be_stopped(obj, kind):
                self._executors.submit(sync(row))
            return None
        reading = self._picture.intake.read_all(as_labelled(row, obj, kind), kind, row.inputs)
        fresh = merged(row, reading.row)
        self._note_reading(fresh or row, obj, kind)
        if fresh is None:
            if row.state is State.WAITING and row.queue:
                self._picture.engine.upsert_workload(
                    self._picture.workload(row)
                )  # the labels of its namespace are not in the row
            if self._can_be_stopped(obj, kind):
                self._executors.submit(sync(row))
            return None
        outbox = not_followed(fresh, reading.messages)
        if pod_priorities(fresh) != pod_priorities(row):
            outbox += self._of_priority(fresh, reading)
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
        if self._can_be_stopped(obj, kind):
            outbox.append(sync(fresh))
        changed = fresh.pod_groups != row.pod_groups or fresh.topology != row.topology
        return Change(
            row=fresh, outbox=tuple(outbox), request_changed=changed, explanation=self._first_explanation(fresh)
        )

    def _loan(self, row: WorkloadRow, obj: Object, kind: Kind, facts: Facts) -> Change | None:
        """Pods that have finished lend their quota; a restart of the job takes it back (workloads.md D11). Those that
        had finished before the admission have no places: where each must have one, the job queues again."""
        groups = with_reclaimed(row.pod_groups, kind.reclaimable(obj, self._picture.view))
        if groups == row.pod_groups:
            return None
        assert row.admission is not None
        fresh = replace(row, pod_groups=groups)
        pod_sets = by_name(groups)
        for assigned in row.admission.admission.pod_sets:
            pods = running_pods(pod_sets.get(assigned.name), assigned)
            if assigned.pinned and pods > assigned.count:
                message = f"Its restart makes {pods} pods of {assigned.name}, it was admitted with places for"
                message = f"{message} {assigned.count}: the others had finished before"
                return drain(row, facts, State.WAITING, "RestartNeedsPlaces", message, event_reason="Evicted")
        ledger = charged(row.admission.admission.charge, self._picture.engine.charge_with(row.uid, groups))
        return Change(row=fresh, ledger=ledger, request_changed=True)

    def forget(self, uid: str) -> None:
        """The row is gone."""
        self.instructions.forget(uid)
        self._outvoted.pop(uid, None)
        self._node_failures.forget(uid)
        self.reports.forget(uid)
