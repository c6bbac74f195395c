"""What the engine knows: workloads, what each charges and occupies, the queues' waiting workloads. One state,
revocable.

What has to be looked at again is marked: `dirty` trees, where quota may have become free, `nodes_changed`, `live`
queues, which have heads that were not tried, and `fresh` workloads, which nobody has told yet why they wait.
`now` is the time of the present pass or question (microseconds), `retries` when a workload that failed is worth another
try because a protection ends, by uid. `starving` are the holds for workloads that waited too long, `overdue` the queues
of a tree in which some have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappush

from queue_manager.engine.ask import Shape, ask_of, shape_of
from queue_manager.engine.configuration import (
    Cell,
    Cohort,
    Configuration,
    Limits,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    Starvation,
)
from queue_manager.engine.decision import Admission, BlockerType, Reason
from queue_manager.engine.edits import QuotaEdits, quota_edits
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.fleet import Fleet, Occupancy
from queue_manager.engine.history import UsageHistory
from queue_manager.engine.holds import FIRST_VIEW, StarvingHold, Target, end_of
from queue_manager.engine.limits import WHOLE, Counted, LimitHit, Tally, by_resource, parties_of
from queue_manager.engine.outside import Outside, drained_by, outsides_of
from queue_manager.engine.pending import Group, Parked, Pending
from queue_manager.engine.prepared import Prepared, prepare
from queue_manager.engine.quantities import added
from queue_manager.engine.resize import grown, growth_of, growth_uid, pinned
from queue_manager.engine.seats import Seats
from queue_manager.engine.tree import FUTURE, NOW, Charge, QuotaTree, TreeNode, cells_of
from queue_manager.engine.turns import Turns
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import Workload

Planned = Mapping[str, Mapping[str, int]]
"""Pod set -> node -> pods planned there."""


_NO_LIMITS = Limits()
INFINITE = 1 << 62


class Phase(Enum):
    """Where a workload is in its life."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a workload takes in one view: its charge to a queue, and its pods on nodes."""

    queue: str
    charge: Mapping[Cell, int]
    places: Occupancy = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Record:
    """One workload. `standing` is by view (NOW, FUTURE); `hold` is what is kept for a waiting workload until it fits
    NOW.

    `resume` is the flavor to go on with by index of need (policy `resume_flavor_scan`), found in the round and after as
    many departures from its queue as `resume_of` says; `verdict` the last reason found
    (without policy `present_reasons`). `counted` is what it counts for in the limits of a queue, `limit` the limit that
    keeps it outside its queue's order.
    """

    workload: Workload
    phase: Phase = Phase.WAITING
    held: bool = False
    admission: Admission | None = None
    evicted_by: str = ""
    standing: list[Standing | None] = field(default_factory=lambda: [None, None])
    planned: Planned = field(default_factory=dict)
    bound: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    hold: Assignment | None = None
    group: Group | None = None
    outside: Outside | None = None
    reported: tuple[object, ...] | None = None
    resume: Mapping[int, int] = field(default_factory=dict)
    resume_of: tuple[int, int] = (0, 0)
    counted: Counted | None = None
    limit: LimitHit | None = None
    verdict: Reason | None = None

    @property
    def uid(self) -> str:
        """Key of the workload."""
        return self.workload.uid

    @property
    def order(self) -> tuple[int, int, str]:
        """Place in a queue: higher priority, then queued earlier, then uid."""
        return (-self.workload.priority, self.workload.queued, self.workload.uid)

    @property
    def admitted(self) -> int:
        """Time of the admission, 0 without one."""
        return 0 if self.admission is None else self.admission.admitted


@dataclass(eq=False, slots=True)
class QueueState:
    """A queue that is configured or that some workload names.

    `standing` are the workloads that take part in FUTURE, `outside` those that wait but are not in the order. In a
    StrictFIFO queue `blocked` is the head that failed, `front` the head last reported. `sticky` is the uid that goes
    first (no holds). `tally` and `seats` are there where the queue has limits.
    """

    name: str
    pending: Pending
    queue: Queue | None = None
    node: TreeNode | None = None
    standing: dict[str, Record] = field(default_factory=dict)
    outside: dict[str, Record] = field(default_factory=dict)
    blocked: Parked | None = None
    front: str = ""
    sticky: str = ""
    departures: int = 0
    tally: Tally | None = None
    seats: Seats | None = None

    @property
    def limits(self) -> Limits:
        """Its limits apart from quota."""
        return _NO_LIMITS if self.queue is None else self.queue.limits

    @property
    def by_user(self) -> bool:
        """Whether its limits tell users apart in what runs."""
        return self.limits.per_user.limits_running or self.limits.per_group.limits_running

    @property
    def strict(self) -> bool:
        """Whether a blocked head blocks the queue."""
        return self.queue is not None and self.queue.strategy is QueueingStrategy.STRICT_FIFO

    @property
    def may_preempt(self) -> bool:
        """Whether any workload of the queue may evict others."""
        if self.queue is None or self.node is None:
            return False
        preemption = self.queue.preemption
        return preemption.within_queue is not PreemptionPolicy.NEVER or (
            preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER and self.node.parent is not None
        )


class State:
    """All of it. Every change goes through `log`."""

    def __init__(self) -> None:
        self.log = UndoLog()
        self.configuration = Configuration()
        self.tree = QuotaTree(self.configuration, self.log)
        self.fleet = Fleet(self.log)
        self.records: dict[str, Record] = {}
        self.queues: dict[str, QueueState] = {}
        self.backoff: dict[str, Record] = {}
        self.unplaced: set[str] = set()
        self.draining: dict[str, Record] = {}
        self.holders: dict[str, Record] = {}
        self.members: dict[TreeNode, list[QueueState]] = {}
        self.to_stop: set[str] = set()
        self.dirty: set[TreeNode] = set()
        self.live: set[str] = set()
        self.fresh: dict[str, Record] = {}
        self.nodes_changed = False
        self.not_ready: frozenset[str] | None = None
        self.rounds = 0
        self.now = 0
        self.retries: dict[str, int] = {}
        self.turns = Turns(self.log)
        self.starvation: Starvation | None = None
        self.starving: dict[str, StarvingHold] = {}
        self.overdue: dict[TreeNode, dict[str, QueueState]] = {}
        self.due: list[tuple[int, str]] = []
        self.history: UsageHistory | None = None

    # ---- standing

    def stand(self, record: Record, view: int, standing: Standing | None) -> None:
        """Replaces what a workload takes in one view, revocable."""
        old = record.standing[view]
        if old is not None:
            node = self.tree.queues.get(old.queue)
            if node is not None:
                self.tree.remove(node, old.charge, view)
            if old.places:
                self.fleet.vacate(old.places, view)
        if standing is not None:
            node = self.tree.queues.get(standing.queue)
            if node is not None:
                self.tree.add(node, standing.charge, view)
            if standing.places:
                self.fleet.occupy(standing.places, view)
        self._set_standing(record, view, standing)
        self.log.call(self._set_standing, record, view, old)
        for changed in (old, standing):
            if changed is not None:
                self._resize(self.queues[changed.queue])
        if view == FUTURE:
            self.follow(record)

    def _set_standing(self, record: Record, view: int, standing: Standing | None) -> None:
        old = record.standing[view]
        record.standing[view] = standing
        if view == FUTURE:
            if old is not None:
                self.queues[old.queue].standing.pop(record.uid, None)
            if standing is not None:
                self.queue(standing.queue).standing[record.uid] = record
        self.count(record)

    def count(self, record: Record) -> None:
        """Brings the limits' count of a workload in line with what it is charged."""
        standing = record.standing[NOW] or record.standing[FUTURE]
        tally = None if standing is None else self.queue(standing.queue).tally
        if standing is None or tally is None:
            counted = None
        else:
            parties, amounts = parties_of(record.workload), by_resource(standing.charge)
            counted = Counted(standing.queue, parties, amounts, 0 if record.workload.resizes else 1)
        if counted == record.counted:
            return
        if record.counted is not None:
            self._count(record.counted, -1)
        record.counted = counted
        if counted is not None:
            self._count(counted, 1)

    def _count(self, counted: Counted, sign: int) -> None:
        tally = self.queues[counted.queue].tally
        if tally is not None:
            tally.shift(counted, sign)

    def queue(self, name: str) -> QueueState:
        """The state of a queue, made when first named."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueState(name, Pending(self.log))
            self._describe(found)
        return found

    def _describe(self, queue: QueueState) -> None:
        """Sets what a queue's state has from the configuration."""
        queue.queue = self.configuration.queues.get(queue.name)
        queue.node = self.tree.queues.get(queue.name)
        limits = queue.limits
        queue.tally = Tally() if queue.by_user or limits.max_jobs is not None else None
        seats = limits.max_jobs, limits.per_user.waiting, limits.per_group.waiting
        queue.seats = None if seats == (None, None, None) else Seats(limits, self.log)

    def configure(self, configuration: Configuration) -> None:
        """Replaces the configuration and counts everything anew under it, if more than amounts of quota changed."""
        edits = quota_edits(self.configuration, configuration)
        self.configuration = configuration
        for uid in list(self.starving):
            self.end_hold(uid)
        if edits is not None:
            self._edit(edits)
            return
        policies = configuration.policies
        holds = policies.hold_for_starving and policies.hold_freed_quota
        self.starvation = configuration.starvation if holds else None
        self.overdue.clear()
        self.due.clear()
        self.tree = QuotaTree(configuration, self.log)
        self._keep_history()
        for queue in self.queues.values():
            self._describe(queue)
        for name in configuration.queues:
            self.queue(name)
        for record in self.records.values():
            record.counted = None
            self.count(record)
            for view in (NOW, FUTURE):
                standing = record.standing[view]
                node = None if standing is None else self.tree.queues.get(standing.queue)
                if standing is not None and node is not None:
                    self.tree.add(node, standing.charge, view)
        self.members = {}
        for queue in self.queues.values():
            if queue.node is not None:
                self.members.setdefault(queue.node.root, []).append(queue)
        self.to_stop.clear()
        for record in self.records.values():
            self.watch_stop(record)
        self._sort_waiting_anew()
        self.unplaced.update(uid for uid, record in self.records.items() if record.admission is not None)
        self.dirty.clear()
        self.dirty.update(self.members)
        self.nodes_changed = True

    def _edit(self, edits: QuotaEdits) -> None:
        """Changes amounts of quota in place; who waits is tried again unless there is still too little for it."""
        edited: list[tuple[TreeNode, Queue | Cohort]] = []
        for name, queue in edits.queues.items():
            self.queue(name).queue = queue
            edited.append((self.tree.queues[name], queue))
        edited += [(self.tree.cohorts[name], cohort) for name, cohort in edits.cohorts.items()]
        for node, found in edited:
            self.tree.edit(node, cells_of(found.resource_groups))
        for root in {node.root for node, _ in edited}:
            self.dirty.add(root)
            for member in self.members.get(root, ()):
                assert member.node is not None
                if member.pending.try_again(member.node):
                    self.live.add(member.name)

    def _keep_history(self) -> None:
        rules, before = self.configuration.history, self.history
        self.history = None
        if rules is not None and self.configuration.policies.past_usage:
            self.history = UsageHistory(self.tree, rules, self.log)
            if before is not None:
                self.history.continue_from(before)

    def _sort_waiting_anew(self) -> None:
        for queue in self.queues.values():
            queue.pending = Pending(self.log)
            queue.outside = {}
            queue.blocked = None
        self.backoff.clear()
        for record in self.records.values():
            record.group = None
            record.limit = None
            record.outside = None
            self.enqueue(record)

    # ---- waiting

    def enqueue(self, record: Record) -> None:
        """Puts a workload where it waits, if it does: its group, outside the order (`outside` says why), or backoff. A
        victim has its turn while it drains, for it is back in its old place then."""
        if record.held or record.hold is not None:
            return
        workload = record.workload
        if record.phase is not Phase.WAITING:
            if self._returns(record):
                self.join(self.queue(workload.queue), record)
            return
        self.log.put(self.fresh, record.uid, record)
        queue = self.queue(workload.queue)
        outside = self.outside(workload)
        if outside is not None:
            self.log.assign(record, "outside", outside)
            self.log.put(queue.outside, record.uid, record)
        elif workload.not_before > 0:
            self.log.put(self.backoff, record.uid, record)
        else:
            self.line_up(queue, record)

    def _returns(self, record: Record) -> bool:
        """Whether a draining workload queues again as soon as it is gone, so that its turn is kept. Not where limits
        apart from quota count: what drains counts there, and would count twice."""
        if record.phase is not Phase.DRAINING or record.evicted_by == "":
            return False
        if not self.configuration.policies.hold_freed_quota or self.queue(record.workload.queue).limits != _NO_LIMITS:
            return False
        return self.outside(record.workload) is None

    def line_up(self, queue: QueueState, record: Record) -> None:
        """Adds a workload to the order of its queue, if it has a seat there."""
        if queue.seats is None or record.workload.resizes:
            self.join(queue, record)
            return
        changes = queue.seats.add(record.order, parties_of(record.workload), self._open_seats(queue))
        self._reseat(queue, changes)

    @staticmethod
    def _open_seats(queue: QueueState) -> int:
        running = 0 if queue.tally is None else queue.tally.running.get(WHOLE, 0)
        return (queue.limits.max_jobs or 0) - running

    def _reseat(self, queue: QueueState, changes: Mapping[str, bool]) -> None:
        """Moves workloads into the order of a queue or out of it. Order: uid."""
        assert queue.seats is not None
        running = 0 if queue.tally is None else queue.tally.running.get(WHOLE, 0)
        for uid, seated in sorted(changes.items()):
            record = self.records[uid]
            if seated and record.group is None:
                self.log.drop(queue.outside, uid)
                self.log.assign(record, "outside", None)
                self.log.assign(record, "limit", None)
                self.join(queue, record)
            elif not seated and not record.outside:
                if record.group is not None:
                    self._leave_group(queue, record)
                hit = queue.seats.hit(uid, running)
                assert hit is not None
                self.log.assign(record, "limit", hit)
                message = f"limit {hit.what} of queue {queue.name}"
                outside = Outside(Reason.LIMIT_REACHED, BlockerType.LIMIT, message, queue.name)
                self.log.assign(record, "outside", outside)
                self.log.put(queue.outside, uid, record)
            self.log.put(self.fresh, uid, record)

    def _resize(self, queue: QueueState) -> None:
        """What runs in a queue has changed: as many as may now take part."""
        if queue.seats is not None and queue.limits.max_jobs is not None:
            self._reseat(queue, queue.seats.resize(self._open_seats(queue)))

    def shape(self, queue: QueueState, workload: Workload) -> Shape:
        """The shape of a workload in a queue: with how long it may run where there are holds, with whose it is where
        limits go by user."""
        shape = shape_of(workload)
        if self.starvation is not None:
            shape = (workload.max_run_time, *shape)
        return (workload.user, workload.groups, *shape) if queue.by_user else shape

    def join(self, queue: QueueState, record: Record) -> None:
        """Adds a workload to the group of its shape."""
        shape = self.shape(queue, record.workload)
        if record.phase is Phase.DRAINING:
            shape = (*shape, "draining")  # what it fails at is no reason to park those who may evict
        group = queue.pending.groups.get(shape)
        if group is None:
            user = record.workload.user if queue.by_user else ""
            group = Group(shape, record.workload.priority, self.prepare(record.workload, queue), user)
        self.log.assign(record, "group", group)
        queue.pending.add(group, record.workload.queued, record.uid)
        self.live.add(queue.name)
        if self.starvation is not None and record.phase is Phase.WAITING:
            heappush(self.due, (record.workload.queued + self.starvation.after, record.uid))

    def dequeue(self, record: Record) -> None:
        """Takes a workload out of wherever it waits."""
        queue = self.queue(record.workload.queue)
        if record.group is not None:
            self._leave_group(queue, record)
        self.log.drop(queue.outside, record.uid)
        self.log.drop(self.backoff, record.uid)
        self.log.drop(self.fresh, record.uid)
        self.log.drop(self.retries, record.uid)
        self.log.assign(record, "outside", None)
        self.log.assign(record, "limit", None)
        if queue.seats is not None and record.uid in queue.seats:
            self._reseat(queue, queue.seats.discard(record.uid))

    def _leave_group(self, queue: QueueState, record: Record) -> None:
        assert record.group is not None
        self.end_hold(record.uid)
        queue.pending.discard(record.group, record.workload.queued, record.uid)
        self.log.assign(record, "group", None)
        if record.phase is Phase.DRAINING and queue.blocked is not None and queue.blocked.uid == record.uid:
            self.log.assign(queue, "blocked", None)

    def prepare(self, workload: Workload, queue: QueueState) -> Prepared:
        """What a workload asks of a queue."""
        assert queue.queue is not None
        prepared = prepare(ask_of(workload, self.configuration), queue.queue, self.configuration)
        grows = self.records.get(workload.resizes)
        return prepared if grows is None or grows.admission is None else pinned(prepared, grows.admission)

    def outside(self, workload: Workload) -> Outside | None:
        """The first thing that keeps a workload out of the order of its queue; None if it may take its place."""
        return next(self.outsides(workload), None)

    def outsides(self, workload: Workload) -> Iterator[Outside]:
        """All that keeps a workload out of the order of its queue."""
        return outsides_of(workload, self.configuration, self.tree.broken)

    def resume(self, record: Record) -> Mapping[int, int]:
        """The flavors to go on with, unless they were found before the last round and somebody has left the queue since
        (kueue.md 2.5f)."""
        found_in, departures = record.resume_of
        fresh = self.rounds - found_in <= 1 or self.queue(record.workload.queue).departures == departures
        return record.resume if fresh else {}

    def watch_stop(self, record: Record) -> None:
        """Marks an admitted workload, or one for which room is held, that a stop policy wants gone."""
        standing = record.standing[FUTURE]
        if standing is not None and drained_by(record.workload, standing.queue, self.configuration) is not None:
            self.to_stop.add(record.uid)

    def totals(self, view: int) -> dict[str, dict[Cell, int]]:
        """Charged amounts of each queue, and of each cohort's whole subtree (a queue of the same name is added in)."""
        found: dict[str, dict[Cell, int]] = {}
        for name, node in self.tree.queues.items():
            charged = {cell: amount for cell, amount in node.usage[view].items() if amount}
            for place in (node, *node.ancestors()):
                sums = found.setdefault(place.name if place is not node else name, {})
                for cell, amount in charged.items():
                    sums[cell] = sums.get(cell, 0) + amount
        for name in self.tree.cohorts:
            found.setdefault(name, {})
        return found

    def holders_of(self, queue: QueueState) -> list[Record]:
        """Workloads of a queue for which room is held, in its order."""
        found = [record for record in self.holders.values() if record.workload.queue == queue.name]
        return sorted(found, key=lambda record: record.order)

    # ---- holds for the starving

    def hold_for(self, record: Record, target: Target) -> StarvingHold:
        """Begins a hold for a waiting workload, or changes it: others may get what it keeps no longer."""
        hold = self.starving.get(record.uid)
        if hold is None:
            hold = self._new_hold(record, target)
            self.log.put(self.fresh, record.uid, record)
        else:
            self.shift(hold, hold.target.standing, -1)
            self.log.assign(hold, "target", target)
            self._news(hold)
        self.shift(hold, target.standing, 1)
        for queue in self.queues.values():
            for other in queue.standing.values():
                self._follow(hold, other)
        for other_hold in list(self.starving.values()):
            if other_hold is not hold:
                self._stand_beside(other_hold, hold)
                self._stand_beside(hold, other_hold)
        return hold

    def _new_hold(self, record: Record, target: Target) -> StarvingHold:
        taken = {hold.view for hold in self.starving.values()}
        view = next(v for v in range(FIRST_VIEW, FIRST_VIEW + len(taken) + 1) if v not in taken)
        hold = StarvingHold(record, self.tree.queues[record.workload.queue], view, target)
        self.tree.clear_view(hold.node.root, view)
        self.fleet.clear_view(view)
        self.log.put(self.starving, record.uid, hold)
        return hold

    def end_hold(self, uid: str) -> None:
        """A hold ends: its workload starts, is gone, or has no hope."""
        hold = self.starving.get(uid)
        if hold is None:
            return
        self.tree.clear_view(hold.node.root, hold.view)
        self.fleet.clear_view(hold.view)
        self.log.drop(self.starving, uid)
        self.stand_aside(hold)
        self._news(hold)

    def stand_aside(self, hold: StarvingHold) -> None:
        """Takes a starving workload out of the views of the other holds."""
        for other in self.starving.values():
            if other is not hold:
                self._put(other, hold.record.uid, None)

    def _news(self, hold: StarvingHold) -> None:
        self.dirty.add(hold.node.root)
        if hold.on_nodes:
            self.nodes_changed = True
        self.log.put(self.fresh, hold.record.uid, hold.record)

    def _stand_beside(self, hold: StarvingHold, other: StarvingHold) -> None:
        """Two holds at a time: the one that starts first still runs when the other is complete, unless it is known to
        end before."""
        first, then = other.target.expected, hold.target.expected
        longest = other.record.workload.max_run_time
        if (first or INFINITE, other.record.order) > (then or INFINITE, hold.record.order):
            self._put(hold, other.record.uid, None)
            return
        ended = other.record.uid in hold.target.gone or (first and then and longest and first + longest <= then)
        stands_for_it = not other.target.gone.isdisjoint(hold.target.stays)
        self._put(hold, other.record.uid, None if ended or stands_for_it else other.target.standing)

    def follow(self, record: Record) -> None:
        """Keeps the views of all holds in line with what a workload takes and how long it may run."""
        for hold in self.starving.values():
            self._follow(hold, record)

    def _follow(self, hold: StarvingHold, record: Record) -> None:
        """Keeps the view of a hold in line with what a workload takes."""
        standing = record.standing[FUTURE]
        if standing is not None and not hold.outlasts(record.uid, end_of(record)):
            standing = None
        self._put(hold, record.uid, standing)

    def _put(self, hold: StarvingHold, uid: str, standing: Standing | None) -> None:
        old = hold.members.get(uid)
        if old is standing:
            return
        if old is not None:
            self.shift(hold, old, -1)
            self.log.drop(hold.members, uid)
        if standing is not None:
            self.shift(hold, standing, 1)
            self.log.put(hold.members, uid, standing)

    def shift(self, hold: StarvingHold, standing: Standing, sign: int) -> None:
        """Counts something in the view of a hold (1), or no longer (-1)."""
        node = self.tree.queues.get(standing.queue)
        if node is not None and node.root is hold.node.root:
            (self.tree.add if sign > 0 else self.tree.remove)(node, standing.charge, hold.view)
        if standing.places:
            (self.fleet.occupy if sign > 0 else self.fleet.vacate)(standing.places, hold.view)

    # ---- steps of a life

    def settle_turns(self, root: TreeNode | None = None) -> None:
        """Something has changed from outside in a tree, or in all of them: who made room for whom counts no more."""
        over = []
        for uid in self.turns.victims():
            record = self.records.get(uid)
            node = None if record is None else self.tree.queues.get(record.workload.queue)
            if root is None or node is None or node.root is root:
                over.append(uid)
        self.turns.forget(over)

    def touch(self, record: Record) -> None:
        """Marks what a workload's departure may have made free."""
        for standing in record.standing:
            if standing is not None:
                node = self.tree.queues.get(standing.queue)
                if node is not None:
                    self.dirty.add(node.root)
                if standing.places and self.configuration.policies.fragmentation_aware:
                    self.nodes_changed = True  # in Kueue an end is no news to other trees that use the same nodes

    def admit(self, record: Record, admission: Admission, standing: Standing, planned: Planned) -> None:
        """A waiting workload starts."""
        self.dequeue(record)
        self.log.assign(record, "hold", None)
        self.log.drop(self.holders, record.uid)
        self.log.assign(record, "admission", admission)
        self.log.assign(record, "planned", planned)
        self.log.assign(record, "phase", Phase.ADMITTED)
        self.log.assign(record, "reported", None)
        self.log.assign(record, "resume", {})
        self.stand(record, FUTURE, standing)
        self.stand(record, NOW, standing)

    def regrow(self, record: Record) -> None:
        """What a running elastic workload lacks waits, and nothing else for it does."""
        wanted = None
        if record.admission is not None and record.phase is Phase.ADMITTED:
            wanted = growth_of(record.workload, record.admission)
        growth = self.records.get(growth_uid(record.uid))
        if growth is not None and growth.workload == wanted:
            return
        self.drop_growth(record)
        if wanted is not None:
            made = Record(wanted)
            self.log.put(self.records, made.uid, made)
            self.enqueue(made)

    def own_charge(self, record: Record) -> Charge:
        """What the workload that this one is to be added to has already."""
        grows = self.records.get(record.workload.resizes)
        standing = None if grows is None else grows.standing[NOW]
        return {} if standing is None else standing.charge

    def drop_growth(self, record: Record) -> None:
        """Nothing is asked for any more beside what a workload has."""
        growth = self.records.get(growth_uid(record.uid))
        if growth is not None:
            self._take_out(growth)

    def _take_out(self, growth: Record) -> None:
        if growth.hold is not None:
            self.drop_hold(growth)
        queue = self.queue(growth.workload.queue)
        if queue.strict and queue.node is not None:
            self.dirty.add(queue.node.root)  # others may have had to stand back for it
        self.dequeue(growth)
        self.stand(growth, FUTURE, None)
        self.log.drop(self.records, growth.uid)

    def grow(self, growth: Record, admission: Admission, more: Standing, planned: Planned) -> Record:
        """What a running workload lacked is admitted: it becomes one with the workload, which is returned."""
        self._take_out(growth)
        record = self.records[growth.workload.resizes]
        now = record.standing[NOW]
        assert record.admission is not None
        assert now is not None
        charge, places = added(now.charge, more.charge), dict(now.places)
        for node, amounts in more.places.items():
            places[node] = added(places.get(node, {}), amounts)
        nodes = {name: added(record.planned.get(name, {}), found) for name, found in planned.items()}
        self.regrown(record, grown(record.admission, admission), {**record.planned, **nodes})
        for view in (NOW, FUTURE):
            self.stand(record, view, Standing(now.queue, charge, places))
        return record

    def regrown(self, record: Record, admission: Admission, planned: Planned) -> None:
        """Replaces the admission of a running workload."""
        self.log.assign(record, "admission", admission)
        self.log.assign(record, "planned", planned)

    def keep_room(self, record: Record, assignment: Assignment, standing: Standing) -> None:
        """Holds quota and nodes for a waiting workload; it leaves the order of its queue."""
        self.dequeue(record)
        self.log.assign(record, "hold", assignment)
        self.log.put(self.holders, record.uid, record)
        self.log.put(self.fresh, record.uid, record)
        self.stand(record, FUTURE, standing)

    def drop_hold(self, record: Record) -> None:
        """Gives up what is held for a workload; it waits in the order of its queue again."""
        self.touch(record)
        self.stand_in_line(record)

    def stand_in_line(self, record: Record) -> None:
        """The same, and no news to others: it is first to have the room again."""
        self.stand(record, FUTURE, None)
        self.log.assign(record, "hold", None)
        self.log.drop(self.holders, record.uid)
        self.enqueue(record)

    def drain(self, record: Record, by: str) -> None:
        """An admitted workload is on its way out: it stays charged NOW."""
        self.drop_growth(record)
        self.touch(record)
        self.stand(record, FUTURE, None)
        self.log.assign(record, "phase", Phase.DRAINING)
        self.log.assign(record, "evicted_by", by)
        self.log.put(self.draining, record.uid, record)
        self.enqueue(record)

    def clear(self, record: Record) -> None:
        """Nothing is charged any more; the workload waits, but is not queued yet."""
        self.drop_growth(record)
        self.touch(record)
        if record.admission is not None:
            queue = self.queue(record.admission.queue)
            self.log.assign(queue, "departures", queue.departures + 1)
        if record.group is not None:
            self._leave_group(self.queue(record.workload.queue), record)
        self.log.assign(record, "hold", None)
        self.log.drop(self.holders, record.uid)
        self.stand(record, FUTURE, None)
        self.stand(record, NOW, None)
        self.log.drop(self.draining, record.uid)
        self.log.assign(record, "admission", None)
        self.log.assign(record, "planned", {})
        self.log.assign(record, "bound", {})
        self.log.assign(record, "evicted_by", "")
        self.log.assign(record, "resume", {})
        self.log.assign(record, "phase", Phase.WAITING)
        self.unplaced.discard(record.uid)
