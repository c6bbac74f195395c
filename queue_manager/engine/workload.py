"""What a workload asks for: pod sets of equal pods, in pod groups, in one workload (docs/glossary.md).

All amounts are integers in base units: milli-CPU for `cpu`, bytes for memory and storage, counts for the rest.
All times are integer microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

MICROSECONDS = 1_000_000

Requests = Mapping[str, int]
"""Resource name -> amount in base units."""


class Taint(NamedTuple):
    """A node or flavor taint. `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A pod toleration; empty strings mean "not given", as in the Kubernetes API. `operator` is Equal or Exists."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(NamedTuple):
    """One expression of a node selector term. `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(NamedTuple):
    """Requirements that hold together; the terms of a required node affinity are alternatives."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class TopologyMode(StrEnum):
    """How strictly one domain of the level is wanted."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    UNCONSTRAINED = "unconstrained"


class SliceLayer(NamedTuple):
    """Pods go in slices of `size`, each slice in one domain of `level`, a node label key."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """All pods together in one domain of `level`, a node label key ("" for unconstrained).

    `slices` divide the pods of each pod set further, outermost layer first: every layer's size divides the one before,
    its level is narrower (kueue.md 2.11). `balanced`: where several domains are needed, they take equal parts.
    """

    mode: TopologyMode
    level: str = ""
    slices: tuple[SliceLayer, ...] = ()
    balanced: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """Replicas on distinct domains of `level`, a node label key: all those of a workload's pod sets with the same
    `group` (issue 5). A pod set without replicas counts as one."""

    level: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A topology spread constraint (DoNotSchedule) over the pod set's own pods: in no domain of `key`, a node label
    key, more than `max_skew` pods more than in the domain with the fewest; with fewer than `min_domains` domains the
    fewest counts as 0. Domains are those of the nodes that selector and affinity admit, with `honors_taints` only those
    whose taints are tolerated."""

    key: str
    max_skew: int
    min_domains: int = 0
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodRules:
    """What the pod template itself demands of the places of the pod set's own pods (issue 5): topology spread
    constraints, required pod affinity to each other (`together`: one domain of each key) and anti-affinity (`apart`:
    one pod a domain of each key)."""

    spread: tuple[SpreadRule, ...] = ()
    together: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


NO_RULES = PodRules()


@dataclass(frozen=True, slots=True)
class SharedClaim:
    """A resource claim that all pods which name it share: its devices (DeviceClass -> number) are counted once."""

    name: str
    devices: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices that the pods of a set get by resource claims, DeviceClass -> number.

    `each` is what a claim of its own gives to every pod. `backed` are extended resources among the requests that a
    DeviceClass serves (resource -> class): no node need list them.
    """

    each: Mapping[str, int] = field(default_factory=dict)
    shared: tuple[SharedClaim, ...] = ()
    backed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods.

    `stages` is the closed interval of stages in which its pods can run: pod sets whose intervals overlap may run at the
    same time and are charged together; the charge of a workload is the greatest need over its stages (design,
    section 4). `reclaimed` pods have finished and are on loan to others; they are not counted while the loan stands.
    Pod sets with the same `podset_group` share a domain: that of `group_topology`, and what each asks for itself lies
    inside it; or, where none has one, that of the request of the largest.
    `min_count` is set only for kinds that can run smaller. The count of an `elastic` one may change while it runs.

    Pods have ranks from 0; each `replica_size` of them are one replica (a child Job), 0: all of them are. A replica
    with an `exclusive` level, a node label key, has a domain of it for itself: no other exclusive replica of equal
    `pod_priority` (that of Kubernetes) may be there, its own workload's or another's (workloads.md 3.7).
    """

    name: str
    count: int
    requests: Requests
    stages: tuple[int, int] = (0, 0)
    reclaimed: int = 0
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: tuple[SelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyRequest | None = None
    podset_group: str = ""
    host_ports: tuple[int, ...] = ()
    devices: Devices = Devices()
    elastic: bool = False
    replica_size: int = 0
    distinct: Apart | None = None
    exclusive: str = ""
    pod_priority: int = 0
    rules: PodRules = NO_RULES
    group_topology: TopologyRequest | None = None


class GroupPolicy(StrEnum):
    """Gang: at least `PodGroup.minimum` pods start together. Basic: quota is reserved together, starts are free."""

    GANG = "gang"
    BASIC = "basic"


class DisruptionMode(StrEnum):
    """What becomes of a pod group of which a third party takes pods away: the whole workload goes back to the queue, or
    the pods that are lost are replaced (workloads.md 5.1)."""

    SINGLE = "single"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pod sets that form one gang (or a basic group). Its topology request lies around those of its pod sets
    (nested)."""

    name: str
    pod_sets: tuple[PodSet, ...]
    policy: GroupPolicy = GroupPolicy.GANG
    minimum: int | None = None
    topology: TopologyRequest | None = None
    disruption: DisruptionMode = DisruptionMode.SINGLE


@dataclass(frozen=True, slots=True)
class Workload:
    """One top-level job, keyed by `uid`; all its pod groups are admitted in one transaction.

    `topology` lies around those of the pod groups. `priority` orders it in its queue, higher first; it is not the pod
    priority. `not_before` keeps it from being tried earlier (requeue backoff). `requeued` is the time of the eviction
    that counts for its place in the queue; 0 means that its creation counts. `groups` are the groups of its user,
    `local_queue` is the "namespace/name" of the local queue that its label names, "" for none.

    `max_run_time` is how long it runs at most from its admission on, 0 when nobody knows. `min_run_time` (of its
    priority class) keeps it from being preempted before. `checkpointed_at` is when it last wrote a checkpoint, 0 when
    never. `resizes` is set by the engine alone: the uid of the running workload that these pods are added to.
    """

    uid: str
    namespace: str
    name: str
    queue: str
    created: int
    pod_groups: tuple[PodGroup, ...]
    priority: int = 0
    may_preempt: bool = True
    preemptible: bool = True
    user: str = ""
    topology: TopologyRequest | None = None
    not_before: int = 0
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    max_run_time: int = 0
    min_run_time: int = 0
    checkpointed_at: int = 0
    requeued: int = 0
    local_queue: str = ""
    resizes: str = ""

    @property
    def queued(self) -> int:
        """The time that decides between equal ranks, in microseconds (kueue.md 2.3, queue timestamp)."""
        return self.requeued or self.created

    @property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """The pod sets of all groups, in order."""
        return tuple(pod_set for group in self.pod_groups for pod_set in group.pod_sets)

    @property
    def elastic(self) -> bool:
        """Whether its pod counts may change while it runs."""
        return any(pod_set.elastic for pod_set in self.pod_sets)

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.namespace}/{self.name}"


def by_name(groups: Iterable[PodGroup]) -> dict[str, PodSet]:
    """All pod sets of these groups: no two of a workload have one name."""
    return {pod_set.name: pod_set for group in groups for pod_set in group.pod_sets}
