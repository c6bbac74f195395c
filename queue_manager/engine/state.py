"""What the engine knows: workloads, what each charges and occupies, the queues' waiting workloads. One state,
revocable.

What has to be looked at again is marked: `dirty` trees, where quota may have become free, `nodes_changed`, `live`
queues, which have heads that were not tried, and `fresh` workloads, which nobody has told yet why they wait.
`now` is the time of the present pass or question (microseconds), `retries` when a workload that failed is worth another
try because a protection ends, by uid. `starving` are the holds for workloads that waited too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from queue_manager.engine.ask import Shape, ask_of, shape_of
from queue_manager.engine.configuration import Configuration
from queue_manager.engine.decision import Admission, BlockerType, Reason
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.fleet import Fleet
from queue_manager.engine.history import UsageHistory
from queue_manager.engine.holds import StarvingHold
from queue_manager.engine.limits import WHOLE, Counted, Tally, by_resource, parties_of
from queue_manager.engine.outside import Outside, drained_by, outsides_of
from queue_manager.engine.pending import Group, Pending
from queue_manager.engine.prepared import Layout, Prepared, layout_of, prepare
from queue_manager.engine.records import NO_LIMITS, Phase, Planned, QueueState, Record, Standing, charge
from queue_manager.engine.resize import growth_uid, pinned
from queue_manager.engine.seats import Seats
from queue_manager.engine.starving import StarvingHolds
from queue_manager.engine.tree import FUTURE, NOW, Charge, QuotaTree, TreeNode
from queue_manager.engine.turns import Turns
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import Workload

MOST_PREPARED = 10_000
"""How many prepared asks are kept. They follow from the configuration, so they are no state and need no undoing."""


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
        self.prepared: dict[tuple[Shape, Layout], Prepared] = {}
        self.turns = Turns(self.log)
        self.starving = StarvingHolds(self.tree, self.fleet, self.log, self.queues, self._hold_changed, self._tell)
        self.history: UsageHistory | None = None

    # ---- standing

    def stand(self, record: Record, view: int, standing: Standing | None) -> None:
        """Replaces what a workload takes in one view, revocable."""
        old = record.standing[view]
        if old is not None:
            charge(self.tree, self.fleet, old, view, -1)
        if standing is not None:
            charge(self.tree, self.fleet, standing, view, 1)
        self._set_standing(record, view, standing)
        self.log.call(self._set_standing, record, view, old)
        for changed in (old, standing):
            if changed is not None:
                self._resize(self.queues[changed.queue])
        if view == FUTURE:
            self.starving.follow(record)

    def _set_standing(self, record: Record, view: int, standing: Standing | None) -> None:
        old = record.standing[view]
        record.standing[view] = standing
        if view == FUTURE:
            if old is not None:
                queue = self.queues[old.queue]
                queue.standing.pop(record.uid, None)
                queue.users.clear()
            if standing is not None:
                queue = self.queue(standing.queue)
                queue.standing[record.uid] = record
                queue.users.clear()
        self.count(record)

    def reordered(self, record: Record) -> None:
        """What a workload asks for or was given is another: so may be its place among those that may be evicted."""
        standing = record.standing[FUTURE]
        if standing is not None:
            self.queues[standing.queue].users.clear()

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
            self.describe(found)
        return found

    def describe(self, queue: QueueState) -> None:
        """Sets what a queue's state has from the configuration."""
        queue.queue = self.configuration.queues.get(queue.name)
        queue.node = self.tree.queues.get(queue.name)
        limits = queue.limits
        queue.tally = Tally() if queue.by_user or limits.max_jobs is not None else None
        seats = limits.max_jobs, limits.per_user.waiting, limits.per_group.waiting
        queue.seats = None if seats == (None, None, None) else Seats(limits, self.log)

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
        if not self.configuration.policies.hold_freed_quota or self.queue(record.workload.queue).limits != NO_LIMITS:
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

    def shape(self, queue: QueueState, workload: Workload, shape: Shape) -> Shape:
        """The shape of a workload, `shape`, as it is in a queue: with how long it may run where there are holds, with
        whose it is where limits go by user."""
        if self.starving.rules is not None:
            shape = (workload.max_run_time, *shape)
        return (workload.user, workload.groups, *shape) if queue.by_user else shape

    def join(self, queue: QueueState, record: Record) -> None:
        """Adds a workload to the group of its shape."""
        asked = shape_of(record.workload)
        shape = self.shape(queue, record.workload, asked)
        if record.phase is Phase.DRAINING:
            shape = (*shape, "draining")  # what it fails at is no reason to park those who may evict
        group = queue.pending.groups.get(shape)
        if group is None:
            user = record.workload.user if queue.by_user else ""
            group = Group(shape, record.workload.priority, self._prepare_once(record.workload, queue, asked), user)
        self.log.assign(record, "group", group)
        queue.pending.add(group, record.workload.queued, record.uid)
        self.live.add(queue.name)
        if record.phase is Phase.WAITING:
            self.starving.wait(record)

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
        self.starving.end(record.uid)
        if record.group.parked is not None and record.group.parked.limited:
            self.live.add(queue.name)  # what its user has behind it was passed over, and not parked
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

    def _prepare_once(self, workload: Workload, queue: QueueState, shape: Shape) -> Prepared:
        """The same for all of one shape in queues with quota of the same cells, however many these are."""
        if workload.resizes:
            return self.prepare(workload, queue)
        assert queue.queue is not None
        key = (shape, layout_of(queue.queue))
        found = self.prepared.get(key)
        if found is None:
            if len(self.prepared) >= MOST_PREPARED:
                self.prepared.clear()
            found = self.prepared[key] = self.prepare(workload, queue)
        return found

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
        if standing is None:
            return
        if drained_by(record.workload, standing.queue, standing.charge, self.configuration) is not None:
            self.to_stop.add(record.uid)

    def name_of(self, uid: str) -> str:
        """What people call a workload."""
        record = self.records.get(uid)
        return uid if record is None else record.workload.key

    def holders_of(self, queue: QueueState) -> list[Record]:
        """Workloads of a queue for which room is held, in its order."""
        found = [record for record in self.holders.values() if record.workload.queue == queue.name]
        return sorted(found, key=lambda record: record.order)

    def _hold_changed(self, hold: StarvingHold) -> None:
        """Others may get more or less than before."""
        self.dirty.add(hold.node.root)
        if hold.on_nodes:
            self.nodes_changed = True
        self._tell(hold.record)

    def _tell(self, record: Record) -> None:
        self.log.put(self.fresh, record.uid, record)

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

    def own_charge(self, record: Record) -> Charge:
        """What the workload that this one is to be added to has already."""
        grows = self.records.get(record.workload.resizes)
        standing = None if grows is None else grows.standing[NOW]
        return {} if standing is None else standing.charge

    def drop_growth(self, record: Record) -> None:
        """Nothing is asked for any more beside what a workload has."""
        growth = self.records.get(growth_uid(record.uid))
        if growth is not None:
            self.take_out(growth)

    def take_out(self, growth: Record) -> None:
        """What a workload lacks is not asked for any more."""
        if growth.hold is not None:
            self.drop_hold(growth)
        queue = self.queue(growth.workload.queue)
        if queue.strict and queue.node is not None:
            self.dirty.add(queue.node.root)  # others may have had to stand back for it
        self.dequeue(growth)
        self.stand(growth, FUTURE, None)
        self.log.drop(self.records, growth.uid)

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
        self.log.assign(record, "leaving", {})
        self.log.assign(record, "evicted_by", "")
        self.log.assign(record, "resume", {})
        self.log.assign(record, "phase", Phase.WAITING)
        self.unplaced.discard(record.uid)
