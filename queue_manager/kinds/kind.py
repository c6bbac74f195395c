"""What every job kind answers. All functions are pure: decide from (wish, object, what the lookup shows)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from queue_manager.cluster.port import Object, PatchType, Query, Resource
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.workload import PodGroup, PodSet, Toleration, TopologyRequest

PREFIX = "queue-manager.io/"
QUEUE_LABEL = PREFIX + "queue"
PRIORITY_CLASS_LABEL = PREFIX + "priority-class"
MANAGED_LABEL = PREFIX + "managed"
MANAGER = "queue-manager.io/manager"
"""Our key in `spec.runtimePatches` of a TrainJob (workloads.md D2)."""


class Lookup(Protocol):
    """Other objects of the cluster, from the watch caches; None when absent."""

    @property
    def kueue_keys(self) -> bool:
        """Whether Kueue's labels and annotations count where none of ours says the same (`kinds.kueue_keys`)."""
        ...

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object of any watched collection (runtimes, snapshot ConfigMaps, JobSets, RuntimeClasses ...)."""
        ...

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """All objects of the collection in the namespace (LimitRanges, child Jobs ...)."""
        ...

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        """Objects whose controller owner reference has this uid."""
        ...

    def schema(self, resource: Resource) -> Object | None:
        """The CRD's openAPIV3Schema of the served version; None for built-in kinds and absent CRDs."""
        ...


class Unresolvable(Exception):
    """The pod sets can't be told; the workload is held with this message until something it names changes.

    `reason` is a CamelCase word, `field` the path on the user's object (or "Kind/name: path" on another object).
    """

    def __init__(self, reason: str, field: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field
        self.message = message

    @property
    def told(self) -> str:
        """The message, with the field before it where it does not name it itself."""
        return self.message if not self.field or self.field in self.message else f"{self.field}: {self.message}"


class PlacementLost(Unresolvable):
    """What we wrote is not there any more. `repair` is the step after which the placement is written again; taken once,
    for an API server or another controller that drops it would do so for ever."""

    def __init__(self, field: str, message: str, repair: Step) -> None:
        super().__init__("PlacementLost", field, message)
        self.repair = repair


@dataclass(frozen=True, slots=True)
class Resolved:
    """Pod groups as the controllers would create them, the workload's own topology wish, and what it was read from.

    `inputs` maps "Kind/name" to "uid/generation" of the objects used (runtime, snapshot), so that a change is noticed.
    `pod_priority_class` is the priorityClassName that counts for the job, `pod_priority_classes` those of its pod sets,
    by name. `messages` are findings for the user (warnings).
    """

    pod_groups: tuple[PodGroup, ...]
    topology: TopologyRequest | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    pod_priority_class: str = ""
    pod_priority_classes: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """What the pods of one pod set must carry. `count` is the admitted count, `gates` names of scheduling gates."""

    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] = ()


Placement = Mapping[str, PodPlacement]
"""Pod set name -> placement."""


@dataclass(frozen=True, slots=True)
class Additions:
    """What a pod gets in the write that lets it through, beside its place: annotations, and JSON Patch operations."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[dict[str, Any], ...] = ()


NOTHING = Additions()


@dataclass(frozen=True, slots=True)
class Write:
    """One request to the API server. `verb` is patch or delete. `says` tells people what it does."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    says: str
    body: Any = None
    patch_type: PatchType = PatchType.JSON
    subresource: str = ""
    field_manager: str = "queue-manager"
    force: bool = False
    uid: str = ""
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to write now: the cluster has to move first (children being rebuilt, pods draining)."""

    what: str


@dataclass(frozen=True, slots=True)
class Done:
    """The object is as wished."""


@dataclass(frozen=True, slots=True)
class Several:
    """Writes that depend on nothing but the objects as they were seen: sent at once. What has happened in the meantime
    (an object is gone, or another of its name is there) is no matter."""

    writes: tuple[Write, ...]


Step = Write | Several | Wait | Done


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finished:
    """How the job ended, with its controller's message."""

    outcome: Outcome
    message: str


class Kind(Protocol):
    """A job kind. `obj` is always the newest object known."""

    resource: Resource

    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        """The pod sets before any pod exists. Raises Unresolvable."""
        ...

    def is_suspended(self, obj: Object) -> bool:
        """Whether its controller is told to run no pods."""
        ...

    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        """JSON Patch operations of the mutating webhook: suspend, and our own empty entry where the API has keys."""
        ...

    def next_start(self, obj: Object, placement: Placement, lookup: Lookup, *, refused: str = "") -> Step:
        """The next step towards running with this placement. `refused` is the server's message when it refused the last
        one as invalid (then a longer way is taken, e.g. two writes instead of one). Done: unsuspended with our
        placement. Raises Unresolvable."""
        ...

    def lost_placement(self, obj: Object, placement: Placement, lookup: Lookup) -> str:
        """Says so when the placement was written into this object and somebody took it away again; else "". Raises
        Unresolvable."""
        ...

    def next_stop(self, obj: Object, lookup: Lookup, *, drained: bool, refused: str = "") -> Step:
        """The next step towards suspended and, once `drained` (no pod left), restored to what the user gave. Raises
        Unresolvable where no write of ours can stop it."""
        ...

    def is_active(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """Whether its status shows running children; False alone does not mean drained (workloads.md D6).

        Give `lookup`: Trainer v2.0 fills no `jobsStatus`, only its JobSet knows.
        """
        ...

    def pods_ready(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """Whether all pods that can run by now are ready or done; `lookup` as for `is_active`."""
        ...

    def finished(self, obj: Object) -> Finished | None:
        """Set once it ended for good."""
        ...

    def reclaimable(self, obj: Object, lookup: Lookup) -> Mapping[str, int]:
        """Pod set name -> pods that have finished and are not needed now; a loan (workloads.md D11)."""
        ...

    def pods_query(self, obj: Object) -> Query:
        """Selects its pods, and maybe others: `occupies` tells."""
        ...

    def occupies(self, obj: Object, pod: Object) -> bool:
        """Whether a pod that the query finds keeps what the job was admitted with."""
        ...

    def passage(self, pod: Object, placement: PodPlacement, admission: str) -> Additions:
        """What one of its pods that waits at a gate of ours gets when it is let through, beside its slot. `admission`
        names the one it is let through by."""
        ...

    def most_running(self, pod_set: PodSet, assigned: PodSetAssignment, pods: Sequence[Object]) -> int | None:
        """How many of the pods of a pod set may be past their gate and not have ended; None where the job's controller
        sees to it that there are no more than were admitted."""
        ...

    def keeps_slot(self, pod: Object, uid: str, attempt: int) -> bool:
        """Whether a pod that ended under that admission keeps its slot from others: asked where `most_running` tells a
        number."""
        ...

    def noted_on(self, obj: Object) -> Sequence[tuple[Resource, Object]]:
        """The objects on which people read what becomes of it: events and annotations are written there."""
        ...

    def pod_set_of(self, pod: Object) -> str:
        """The name of the pod set a pod of this kind belongs to."""
        ...
