"""Workloads and queues as a state keeps them: what each takes, and where it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from queue_manager.engine.alone import Alone
from queue_manager.engine.configuration import Cell, Limits, PreemptionPolicy, Queue, QueueingStrategy
from queue_manager.engine.decision import Admission, Reason
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.fleet import Fleet, Occupancy
from queue_manager.engine.limits import Counted, LimitHit, Tally
from queue_manager.engine.outside import Outside
from queue_manager.engine.pending import Group, Parked, Pending
from queue_manager.engine.seats import Seats
from queue_manager.engine.tree import QuotaTree, TreeNode
from queue_manager.engine.workload import Workload

Planned = Mapping[str, Mapping[str, int]]
"""Pod set -> node -> pods planned there."""

NO_LIMITS = Limits()


class Phase(Enum):
    """Where a workload is in its life."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a workload takes in one view: its charge to a queue, its pods on nodes, and the domains that its exclusive
    replicas have for themselves."""

    queue: str
    charge: Mapping[Cell, int]
    places: Occupancy = field(default_factory=dict)
    alone: frozenset[Alone] = frozenset()


def charge(tree: QuotaTree, fleet: Fleet, standing: Standing, view: int, sign: int) -> None:
    """Counts a standing in a view of a tree and of nodes (1), or no longer (-1). A queue that is gone has no charge."""
    node = tree.queues.get(standing.queue)
    if node is not None:
        (tree.add if sign > 0 else tree.remove)(node, standing.charge, view)
    occupy(fleet, standing, view, sign)


def occupy(fleet: Fleet, standing: Standing, view: int, sign: int) -> None:
    """Counts the pods of a standing and the domains that it has for itself, without its charge."""
    if standing.places:
        (fleet.occupy if sign > 0 else fleet.vacate)(standing.places, view, standing.alone)


@dataclass(eq=False, slots=True)
class Record:
    """One workload. `standing` is by view (NOW, FUTURE); `hold` is what is kept for a waiting workload until it fits
    NOW. `planned`, `bound` and `leaving` are pods by pod set and node (see `slots.py`).

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
    leaving: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
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


User = tuple[int, int, str, Record]
"""A workload that may be evicted, after its place in the order of those."""


@dataclass(eq=False, slots=True)
class QueueState:
    """A queue that is configured or that some workload names.

    `standing` are the workloads that take part in FUTURE, `users` those of them that may be evicted for some cells, in
    order (`preemption.py`), `outside` those that wait but are not in the order. In a
    StrictFIFO queue `blocked` is the head that failed, `front` the head last reported. `sticky` is the uid that goes
    first (no holds). `tally` and `seats` are there where the queue has limits.
    """

    name: str
    pending: Pending
    queue: Queue | None = None
    node: TreeNode | None = None
    standing: dict[str, Record] = field(default_factory=dict)
    users: dict[frozenset[Cell], list[User]] = field(default_factory=dict)
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
        return NO_LIMITS if self.queue is None else self.queue.limits

    def limit_hit(self, workload: Workload, charge: Mapping[Cell, int]) -> LimitHit | None:
        """The limit apart from quota that a workload would exceed with this charge."""
        return None if self.tally is None else self.tally.hit(self.limits, workload, charge)

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
