"""What the engine knows: workloads, what each charges and occupies, the queues' waiting workloads. One state,
revocable.

What has to be looked at again is marked: `dirty` trees, where quota may have become free, `nodes_changed`, `live`
queues, which have heads that were not tried, and `fresh` workloads, which nobody has told yet why they wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from queue_manager.engine.ask import ask_of, shape_of
from queue_manager.engine.configuration import (
    Cell,
    Configuration,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    StopPolicy,
)
from queue_manager.engine.decision import Admission
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.fleet import Fleet, Occupancy
from queue_manager.engine.pending import Group, Parked, Pending
from queue_manager.engine.prepared import Prepared, prepare
from queue_manager.engine.selectors import meets_all
from queue_manager.engine.tree import FUTURE, NOW, QuotaTree, TreeNode
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import Workload

Planned = Mapping[str, Mapping[str, int]]
"""Pod set -> node -> pods planned there."""


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

    `resume` is the flavor to go on with by index of need (policy `resume_flavor_scan`).
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
    outside: str = ""
    reported: tuple[object, ...] | None = None
    resume: Mapping[int, int] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """Key of the workload."""
        return self.workload.uid

    @property
    def order(self) -> tuple[int, int, str]:
        """Place in a queue: higher priority, then older, then uid."""
        return (-self.workload.priority, self.workload.created, self.workload.uid)

    @property
    def admitted(self) -> int:
        """Time of the admission, 0 without one."""
        return 0 if self.admission is None else self.admission.admitted


@dataclass(eq=False, slots=True)
class QueueState:
    """A queue that is configured or that some workload names.

    `standing` are the workloads that take part in FUTURE, `outside` those that wait but are not in the order. In a
    StrictFIFO queue `blocked` is the head that failed, `front` the head last reported. `sticky` is the uid that goes
    first (no holds).
    """

    name: str
    pending: Pending
    queue: Queue | None = None
    node: TreeNode | None = None
    stopped: str = ""
    standing: dict[str, Record] = field(default_factory=dict)
    outside: dict[str, Record] = field(default_factory=dict)
    blocked: Parked | None = None
    front: str = ""
    sticky: str = ""

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

    @property
    def drains(self) -> bool:
        """Whether what runs here must go."""
        return self.queue is not None and self.queue.stop_policy is StopPolicy.HOLD_AND_DRAIN


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
        self.stopping: list[str] = []
        self.dirty: set[TreeNode] = set()
        self.live: set[str] = set()
        self.fresh: dict[str, Record] = {}
        self.nodes_changed = False

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

    def _set_standing(self, record: Record, view: int, standing: Standing | None) -> None:
        old = record.standing[view]
        record.standing[view] = standing
        if view == FUTURE:
            if old is not None:
                self.queues[old.queue].standing.pop(record.uid, None)
            if standing is not None:
                self.queue(standing.queue).standing[record.uid] = record

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
        if queue.queue is None:
            queue.stopped = f"queue {queue.name} does not exist" if queue.name else "no queue is named"
        elif queue.queue.inactive:
            queue.stopped = f"queue {queue.name} is inactive: {queue.queue.inactive}"
        elif queue.name in self.tree.broken:
            queue.stopped = f"queue {queue.name} is inactive: {self.tree.broken[queue.name]}"
        elif queue.queue.stop_policy is not StopPolicy.NONE:
            queue.stopped = f"queue {queue.name} is stopped ({queue.queue.stop_policy.value})"
        else:
            queue.stopped = ""

    def configure(self, configuration: Configuration) -> None:
        """Replaces the configuration and counts everything anew under it."""
        self.configuration = configuration
        self.tree = QuotaTree(configuration, self.log)
        for queue in self.queues.values():
            self._describe(queue)
        for name in configuration.queues:
            self.queue(name)
        for record in self.records.values():
            for view in (NOW, FUTURE):
                standing = record.standing[view]
                node = None if standing is None else self.tree.queues.get(standing.queue)
                if standing is not None and node is not None:
                    self.tree.add(node, standing.charge, view)
        self.members = {}
        for queue in self.queues.values():
            if queue.node is not None:
                self.members.setdefault(queue.node.root, []).append(queue)
        self.stopping = sorted(queue.name for queue in self.queues.values() if queue.drains)
        self._sort_waiting_anew()
        self.unplaced.update(uid for uid, record in self.records.items() if record.admission is not None)
        self.dirty.clear()
        self.dirty.update(self.members)
        self.nodes_changed = True

    def _sort_waiting_anew(self) -> None:
        for queue in self.queues.values():
            queue.pending = Pending(self.log)
            queue.outside = {}
            queue.blocked = None
        self.backoff.clear()
        for record in self.records.values():
            record.group = None
            record.outside = ""
            self.enqueue(record)

    # ---- waiting

    def enqueue(self, record: Record) -> None:
        """Puts a workload where it waits, if it does: its group, outside the order (`outside` says why), or backoff."""
        if record.phase is not Phase.WAITING or record.held or record.hold is not None:
            return
        workload = record.workload
        self.log.put(self.fresh, record.uid, record)
        queue = self.queue(workload.queue)
        reason = queue.stopped or self._unselected(queue, workload)
        if reason:
            self.log.assign(record, "outside", reason)
            self.log.put(queue.outside, record.uid, record)
        elif workload.not_before > 0:
            self.log.put(self.backoff, record.uid, record)
        else:
            self.join(queue, record)

    def join(self, queue: QueueState, record: Record) -> None:
        """Adds a workload to the group of its shape."""
        shape = shape_of(record.workload)
        group = queue.pending.groups.get(shape)
        if group is None:
            group = Group(shape, record.workload.priority, self.prepare(record.workload, queue))
        self.log.assign(record, "group", group)
        queue.pending.add(group, record.workload.created, record.uid)
        self.live.add(queue.name)

    def dequeue(self, record: Record) -> None:
        """Takes a workload out of wherever it waits."""
        queue = self.queue(record.workload.queue)
        if record.group is not None:
            queue.pending.discard(record.group, record.workload.created, record.uid)
            self.log.assign(record, "group", None)
        self.log.drop(queue.outside, record.uid)
        self.log.drop(self.backoff, record.uid)
        self.log.drop(self.fresh, record.uid)
        self.log.assign(record, "outside", "")

    def prepare(self, workload: Workload, queue: QueueState) -> Prepared:
        """What a workload asks of a queue."""
        assert queue.queue is not None
        return prepare(ask_of(workload, self.configuration), queue.queue, self.configuration)

    def _unselected(self, queue: QueueState, workload: Workload) -> str:
        assert queue.queue is not None
        selector = queue.queue.namespace_selector
        if selector is None:
            return f"queue {queue.name} takes no namespace"
        if not meets_all(selector, workload.namespace_labels):
            return f"queue {queue.name} does not take namespace {workload.namespace}"
        return ""

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

    # ---- steps of a life

    def touch(self, record: Record) -> None:
        """Marks what a workload's departure may have made free."""
        for standing in record.standing:
            if standing is not None:
                node = self.tree.queues.get(standing.queue)
                if node is not None:
                    self.dirty.add(node.root)
                if standing.places:
                    self.nodes_changed = True

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
        self.stand(record, FUTURE, None)
        self.log.assign(record, "hold", None)
        self.log.drop(self.holders, record.uid)
        self.enqueue(record)

    def drain(self, record: Record, by: str) -> None:
        """An admitted workload is on its way out: it stays charged NOW."""
        self.touch(record)
        self.stand(record, FUTURE, None)
        self.log.assign(record, "phase", Phase.DRAINING)
        self.log.assign(record, "evicted_by", by)
        self.log.put(self.draining, record.uid, record)

    def clear(self, record: Record) -> None:
        """Nothing is charged any more; the workload waits, but is not queued yet."""
        self.touch(record)
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
