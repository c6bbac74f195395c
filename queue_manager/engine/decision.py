"""What the engine decides: admissions, evictions, and a reason with numbers for each workload that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from queue_manager.engine.configuration import Cell
from queue_manager.engine.workload import Toleration


class Reason(StrEnum):
    """Why a workload waits (design, section 7)."""

    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    NOT_EVALUATED = "NotEvaluated"
    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    INACTIVE = "Inactive"
    BACKOFF = "Backoff"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    BEHIND_HOLD = "BehindHold"
    LIMIT_REACHED = "LimitReached"


HOPELESS = frozenset({Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR, Reason.MISCONFIGURED, Reason.INACTIVE})
"""Reasons that no end of another workload takes away."""


class BlockerType(StrEnum):
    """What stands in the way."""

    QUOTA = "Quota"
    MAX_QUOTA = "MaxQuota"
    FLAVOR = "Flavor"
    DEVICE_CLASS = "DeviceClass"
    TOPOLOGY = "Topology"
    PREEMPTION = "Preemption"
    AHEAD_IN_QUEUE = "AheadInQueue"
    QUEUE_STOPPED = "QueueStopped"
    QUEUE_INACTIVE = "QueueInactive"
    NAMESPACE = "Namespace"
    BACKOFF = "Backoff"
    PODS_READY = "PodsReady"
    HOLD = "Hold"
    LIMIT = "Limit"
    HISTORY = "History"


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing in the way, with numbers in base units. `node` is the queue or cohort whose limit binds, or the domain.

    `holders` are uids of workloads that hold what is missing, largest holder first, at most 10. `enough` are those of
    them that would do if they ended, the largest first; empty where all of them are too few or nobody knows.
    """

    type: BlockerType
    message: str
    node: str = ""
    flavor: str = ""
    resource: str = ""
    requested: int = 0
    available: int = 0
    missing: int = 0
    holders: tuple[str, ...] = ()
    enough: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why one workload waits. `position` is its 1-based place in its queue's order.

    `estimated_start` (microseconds) is when the room that is kept for it should be free; 0 when nobody knows.
    """

    uid: str
    reason: Reason
    message: str
    blockers: tuple[Blocker, ...]
    position: int
    estimated_start: int = 0


@dataclass(frozen=True, slots=True)
class DomainCount:
    """`count` pods in the domain with these label values, one a level down to the narrowest level."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """Flavors and places of one pod set.

    `selector` are the node labels that the pods must carry as node selector: flavor labels and, where the pods lie in
    one domain of the requested level, the labels of that level and of the wider ones. `domains` are planned places
    (narrowest level; the node when that is the host name) in the order of ranks: the first entry holds the lowest ones;
    None without topology. `pinned`: one selector does not do, or others could be in the way inside its domain:
    each pod has to go to exactly the place of its rank (issue 5). `tolerations` are those of its flavors. `count`
    leaves out the `reclaimed` pods, which were on loan when the workload was admitted.
    """

    name: str
    count: int
    flavors: Mapping[str, str]
    selector: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    domains: tuple[DomainCount, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    reclaimed: int = 0
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """Flavors, counts, domains and charge of one workload. `charge` is in base units per cell.

    `resize_asked` is when a larger size was first asked for (microseconds), 0 when none is. `checks` are the names of
    those that have to be ready before it starts: until then its quota is only reserved.
    """

    uid: str
    queue: str
    pod_sets: tuple[PodSetAssignment, ...]
    charge: Mapping[Cell, int]
    admitted: int
    resize_asked: int = 0
    checks: tuple[str, ...] = ()


class EvictionReason(StrEnum):
    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    FLAVOR_STOPPED = "FlavorStopped"


EVICTION_WORDS: Mapping[str, str] = {
    EvictionReason.IN_CLUSTER_QUEUE: "a workload of its own queue came first",
    EvictionReason.IN_COHORT_RECLAMATION: "the queue that owns the quota it had borrowed took it back",
    EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "a higher priority of the cohort borrowed in its place",
    EvictionReason.IN_COHORT_FAIR_SHARING: "another queue of the cohort was further below its fair share",
    EvictionReason.CLUSTER_QUEUE_STOPPED: "its queue was stopped and drained",
    EvictionReason.LOCAL_QUEUE_STOPPED: "its local queue was stopped and drained",
    EvictionReason.FLAVOR_STOPPED: "its flavor was stopped and drained",
}
"""Why, as the owner of the victim reads it; where something was stopped the eviction's message says by whom, too."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """End of an admission before its finish; `by` is the uid of the preemptor, "" if nobody preempted."""

    uid: str
    reason: EvictionReason
    message: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Room that is kept for a workload that waited too long: `charge` per cell, and `nodes` where it needs certain
    ones.

    `expected` (microseconds) is when all of it should be free, by the maximum run times of what runs there; 0 when
    something in the way has none.
    """

    uid: str
    queue: str
    charge: Mapping[Cell, int]
    nodes: tuple[str, ...]
    expected: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one pass, in the order decided. `waiting` holds those whose reason was (re)computed in this
    pass, `holds` all that stand after it. `resizes` are admissions of running workloads that grew: they replace the
    ones before. `more`: it ended at the number of admissions that was asked for, so that others may start, too."""

    now: int
    revision: int
    admissions: tuple[Admission, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    waiting: Sequence[Waiting] = ()
    holds: tuple[Hold, ...] = ()
    resizes: tuple[Admission, ...] = ()
    more: bool = False
