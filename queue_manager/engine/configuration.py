"""The configuration the engine decides by: topologies, flavors, cohorts, queues, policies. Amounts in base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from queue_manager.engine.resources import ResourceRules
from queue_manager.engine.workload import Requirement, Taint, Toleration


class Cell(NamedTuple):
    """What quota is counted in: one resource of one flavor."""

    flavor: str
    resource: str


HOSTNAME = "kubernetes.io/hostname"
"""The label whose value is a node's own name; the narrowest level a topology can have."""


@dataclass(frozen=True, slots=True)
class CellQuota:
    """Quota of one node for one cell; a limit of None is no limit (kueue.md 2.1)."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """Quotas of one flavor, by resource name."""

    flavor: str
    quotas: Mapping[str, CellQuota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that take their flavor together; flavors are tried in order."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Node label keys from the widest level to the narrowest."""

    name: str
    levels: tuple[str, ...]


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of capacity. Nodes belong to it by `node_labels`; with a topology, pods are placed on real nodes. A flavor
    that is stopped is given to nobody; `stopped` are words on who stopped it."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    stop_policy: StopPolicy = StopPolicy.NONE
    stopped: str = ""


def labels_of(flavors: Iterable[Flavor]) -> dict[str, str]:
    """The labels of nodes that belong to all of some flavors; of a key the last one counts."""
    return {key: value for flavor in flavors for key, value in flavor.node_labels.items()}


@dataclass(frozen=True, slots=True)
class Cohort:
    """Inner node of the queue tree; `parent` is "" at the root. Its quota is an extra pool for its children."""

    name: str
    parent: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight_milli: int = 1000


class QueueingStrategy(StrEnum):
    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class PreemptionPolicy(StrEnum):
    """Which workloads may be evicted; names as in Kueue."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class FlavorFungibility(StrEnum):
    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FlavorPreference(StrEnum):
    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True)
class Preemption:
    """`borrow_priority_threshold` is the highest victim priority for borrow-within-cohort; None is no threshold."""

    within_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class PartyLimits:
    """What one user, or one group of users, may have in a queue at once; None is no limit.

    `running` counts workloads that are charged (draining ones too), `resources` is what they are charged in all
    flavors together (base units), `waiting` counts those that take part in the queue's order.
    """

    running: int | None = None
    waiting: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def limits_running(self) -> bool:
        """Whether it limits what runs."""
        return self.running is not None or bool(self.resources)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a queue apart from its quota (design, section 6; issue 4). Durations in microseconds.

    `max_jobs` workloads at most run or take part in the order. `min_run_time` is how long a workload runs before it may
    be preempted. `checkpoint_grace` is how long a workload is spared after each start while it has not yet written a
    checkpoint of that run.
    """

    max_jobs: int | None = None
    per_user: PartyLimits = PartyLimits()
    per_group: PartyLimits = PartyLimits()
    min_run_time: int = 0
    checkpoint_grace: int = 0


@dataclass(frozen=True, slots=True)
class Starvation:
    """When what becomes free is kept for a workload that waits too long (issue 4). `after` is in microseconds.

    `per_cohort` is how many such holds there may be at a time in one tree of queues.
    """

    after: int
    per_cohort: int = 1


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """Something outside that has to agree before a workload starts; only with these `flavors`, () for any."""

    name: str
    flavors: tuple[str, ...] = ()


def checks_of(queue: Queue | None, flavors: Set[str]) -> tuple[str, ...]:
    """Names of the checks that a workload with these flavors needs in the queue, in the queue's order."""
    wanted = queue.checks if queue is not None else ()
    return tuple(check.name for check in wanted if not check.flavors or not flavors.isdisjoint(check.flavors))


@dataclass(frozen=True, slots=True)
class Queue:
    """Leaf of the queue tree. `namespace_selector` None selects no namespace, () every one. `inactive` says why, or
    "". `stopped` are words on who stopped it."""

    name: str
    cohort: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    preemption: Preemption = Preemption()
    when_can_borrow: FlavorFungibility = FlavorFungibility.MAY_STOP_SEARCH
    when_can_preempt: FlavorFungibility = FlavorFungibility.TRY_NEXT_FLAVOR
    flavor_preference: FlavorPreference = FlavorPreference.BORROWING_OVER_PREEMPTION
    namespace_selector: tuple[Requirement, ...] | None = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    weight_milli: int = 1000
    inactive: str = ""
    limits: Limits = Limits()
    checks: tuple[AdmissionCheck, ...] = ()
    stopped: str = ""


class FairStrategy(StrEnum):
    """When a workload may take from a borrower (kueue.md 2.7): if its side's share is then at most the other side's
    without the victim, or less than the other side's with the victim."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Fair sharing is on: who is next and who gives way is decided by shares. Strategies are tried in order."""

    strategies: tuple[FairStrategy, ...] = (FairStrategy.FINAL_SHARE, FairStrategy.INITIAL_SHARE)


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """What a queue label in one namespace means. Its stop policy is for its own workloads alone."""

    queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """Past usage corrects the order (`engine/history.py`). Times are in microseconds, weights in thousandths.

    `at_once` is how long a workload counts as having run already when it starts, so that a burst is charged at once. A
    resource without a weight has weight 1.
    """

    half_life: int
    weights: Mapping[str, int] = field(default_factory=dict)
    at_once: int = 300_000_000


@dataclass(frozen=True, slots=True)
class Policies:
    """Rules of ours that change outcomes against Kueue's; all on in the product (design, section 5).

    `resume_flavor_scan` is Kueue's own rule, off in the product: a workload that was passed over goes on with the
    flavor after the last one tried, even if an earlier one is free again. `implied_topology`: pods without a
    topology request may use a flavor with a topology next to flavors without one. `pass_over`: a head whose room others
    of its round take or reserve every time is passed over; Kueue tries it for ever and never looks at those behind
    it. `present_reasons`: a workload's reason is why it waits now; Kueue keeps the last one that it found for it.
    `hold_for_starving` lets `Configuration.starvation` count. `just_victims`: every victim of the final set is
    justified, and under fair sharing shares must differ. `no_turns`: workloads do not take turns for ever (`turns.py`).
    `past_usage` lets `Configuration.history` count.
    `fit_by_rank` is Kueue's, too: the resource that decides the rank of a flavor decides whether it fits; where that
    one borrows and another one needs preemption, the workload is taken for one that fits, and then passed over.
    `fragmentation_aware`: the last domain that somebody larger who waits could use is left to him if there is another
    place, and every pod is checked against one real node; off, domains are as Kueue chooses them.
    `location_aware_victims`: preemption for nodes clears the domain that costs least.
    `host_ports`: a port of a node is given once.
    `pod_rules`: spread constraints and pod affinity of a pod template hold for the places of its pods.
    """

    hold_freed_quota: bool = True
    stages: bool = True
    next_flavor_after_topology: bool = True
    implied_topology: bool = True
    just_victims: bool = True
    no_turns: bool = True
    past_usage: bool = True
    fragmentation_aware: bool = True
    location_aware_victims: bool = True
    host_ports: bool = True
    pod_rules: bool = True
    resume_flavor_scan: bool = False
    hold_for_starving: bool = True
    pass_over: bool = True
    present_reasons: bool = True
    fit_by_rank: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """One consistent configuration, keyed by name; local queues by "namespace/name"."""

    topologies: Mapping[str, Topology] = field(default_factory=dict)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    policies: Policies = Policies()
    resources: ResourceRules = field(default_factory=ResourceRules)
    fair_sharing: FairSharing | None = None
    history: History | None = None
    revision: int = 0
    starvation: Starvation | None = None
    local_queues: Mapping[str, LocalQueue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A cluster node. `foreign` is what pods that we do not manage use on it, `pods` (a count) and host ports
    (`quantities.port_resource`) included."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    foreign: Mapping[str, int] = field(default_factory=dict)
