"""The kinds of configuration objects (design, section 6).

Field names and places are Kueue's where the meaning is equal.
"""

# ruff: noqa: RUF012 - pydantic copies the defaults

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator
from pydantic_core.core_schema import ValidationInfo

from queue_manager.config.fields import (
    Boolean,
    Count,
    Duration,
    Factor,
    LabelKey,
    Labels,
    LabelValue,
    Model,
    Priority,
    Quantity,
    Text,
    Weight,
    amount,
)

API_VERSION = "queue-manager.io/v1"

StopPolicyName = Literal["None", "Hold", "HoldAndDrain"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an object was read: equal to every other source, so that objects compare by what they say. `foreign` is
    whether it was one of Kueue's."""

    file: str = field(default="", compare=False)
    content: Any = field(default=None, compare=False, repr=False)
    foreign: bool = field(default=False, compare=False)


class Metadata(Model):
    name: Text
    namespace: Text = ""
    labels: Labels = {}


class ConfigObject(Model):
    """What all kinds have in common."""

    namespaced: ClassVar[bool] = False
    path_names: ClassVar[bool] = False

    api_version: Literal["queue-manager.io/v1"] = "queue-manager.io/v1"
    kind: str
    metadata: Metadata
    spec: Any

    _source: Source = PrivateAttr(default_factory=Source)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, namespace, name); namespace is "" but for local queues."""
        return self.kind, self.metadata.namespace, self.metadata.name

    @property
    def source(self) -> Source:
        return self._source

    def with_source(self, source: Source) -> ConfigObject:
        """Remembers where the object was read; for messages only."""
        self._source = source
        return self

    def document(self) -> dict[str, Any]:
        """The object as it is written in YAML or JSON, without what equals a default."""
        metadata = self.metadata.model_dump(by_alias=True, exclude_defaults=True)
        return {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata, "spec": self.spec_document()}

    def spec_document(self) -> dict[str, Any]:
        """The spec alone, as the store keeps it."""
        spec: Model = self.spec
        return spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)


class Level(Model):
    node_label: LabelKey


class TopologySpec(Model):
    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]


class Topology(ConfigObject):
    """Levels of a topology, widest first; node labels say in which domain a node lies."""

    kind: Literal["Topology"]
    spec: TopologySpec


class Taint(Model):
    key: LabelKey
    value: LabelValue = ""
    effect: Effect


class Toleration(Model):
    key: Text = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: Text = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class FlavorSpec(Model):
    node_labels: Labels = {}
    node_taints: list[Taint] = []
    tolerations: list[Toleration] = []
    topology_name: Text = ""


class Flavor(ConfigObject):
    """A kind of capacity: nodes with these labels."""

    kind: Literal["Flavor"]
    spec: FlavorSpec = FlavorSpec()


class ResourceQuota(Model):
    name: LabelKey
    nominal_quota: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None

    @field_validator("nominal_quota", "borrowing_limit", "lending_limit")
    @classmethod
    def _is_amount(cls, text: str | None, info: ValidationInfo) -> str | None:
        # `name` is missing here when it was wrong itself; any unit then does for the check.
        if text is not None:
            amount(info.data.get("name", "pods"), text)
        return text


class FlavorQuotas(Model):
    name: Text
    resources: Annotated[list[ResourceQuota], Field(min_length=1)]


class ResourceGroup(Model):
    covered_resources: Annotated[list[LabelKey], Field(min_length=1)]
    flavors: Annotated[list[FlavorQuotas], Field(min_length=1)]


class FairSharing(Model):
    weight: Weight = "1"


class CohortSpec(Model):
    parent: Text = ""
    resource_groups: list[ResourceGroup] = []
    fair_sharing: FairSharing = FairSharing()


class Cohort(ConfigObject):
    """Inner node of the queue tree; its own quota is a pool for all below it."""

    path_names: ClassVar[bool] = True
    kind: Literal["Cohort"]
    spec: CohortSpec = CohortSpec()


class BorrowWithinCohort(Model):
    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Priority | None = None


class Preemption(Model):
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


class FlavorFungibility(Model):
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] = "BorrowingOverPreemption"


class SelectorExpression(Model):
    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] = []


class LabelSelector(Model):
    match_labels: Labels = {}
    match_expressions: list[SelectorExpression] = []


class Share(Model):
    """What one user or group may have in a queue at once."""

    running: Count | None = None
    waiting: Count | None = None
    resources: dict[LabelKey, Quantity] = {}

    @field_validator("resources")
    @classmethod
    def _are_amounts(cls, resources: dict[str, str]) -> dict[str, str]:
        for resource, text in resources.items():
            amount(resource, text)
        return resources


class Limits(Model):
    max_jobs: Count | None = None
    per_user: Share | None = None
    per_group: Share | None = None
    min_run_time: Duration | None = None
    checkpoint_grace: Duration | None = None


class AdmissionCheck(Model):
    """Something outside that has to agree before a workload starts; `onFlavors` empty: whatever its flavors."""

    name: Annotated[Text, Field(min_length=1)]
    on_flavors: list[Text] = []


class QueueSpec(Model):
    """`namespaceSelector` left out selects no namespace, `{}` every one, as in Kueue."""

    cohort: Text = ""
    namespace_selector: LabelSelector | None = None
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    resource_groups: list[ResourceGroup] = []
    preemption: Preemption = Preemption()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    stop_policy: StopPolicyName = "None"
    fair_sharing: FairSharing = FairSharing()
    admission_checks: Annotated[list[AdmissionCheck], Field(max_length=64)] = []
    limits: Limits = Limits()


class Queue(ConfigObject):
    """Leaf of the queue tree: takes workloads."""

    path_names: ClassVar[bool] = True
    kind: Literal["Queue"]
    spec: QueueSpec = QueueSpec()

    def spec_document(self) -> dict[str, Any]:
        spec = super().spec_document()
        # An empty selector says "every namespace"; none says "no namespace".
        if self.spec.namespace_selector is not None:
            spec.setdefault("namespaceSelector", {})
        return spec


class LocalQueueSpec(Model):
    queue: Text
    stop_policy: StopPolicyName = "None"


class LocalQueue(ConfigObject):
    """What the label of a job names, in the job's namespace."""

    namespaced: ClassVar[bool] = True
    kind: Literal["LocalQueue"]
    spec: LocalQueueSpec


class PriorityClassSpec(Model):
    value: Priority
    may_preempt: Boolean = True
    preemptible: Boolean = True
    min_run_time: Duration | None = None
    description: Text = ""


class PriorityClass(ConfigObject):
    """Rank of a workload in its queue; not the pod priority."""

    kind: Literal["PriorityClass"]
    spec: PriorityClassSpec


class Subject(Model):
    kind: Literal["User", "Group", "Token"]
    name: Annotated[Text, Field(min_length=1)]


class RoleBindingSpec(Model):
    """`node` is the name or path of a queue or cohort; empty is the whole tree."""

    role: Literal["viewer", "operator", "queue-admin", "platform-admin"]
    subjects: Annotated[list[Subject], Field(min_length=1)]
    node: Text = ""


class RoleBinding(ConfigObject):
    """Gives people a role in a subtree."""

    kind: Literal["RoleBinding"]
    spec: RoleBindingSpec


class FairSharingSettings(Model):
    enable: Boolean = True
    preemption_strategies: list[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]] = [
        "LessThanOrEqualToFinalShare",
        "LessThanInitialShare",
    ]


class AdmissionFairSharing(Model):
    usage_half_life_time: Duration | None = None
    usage_sampling_interval: Duration = "5m"
    resource_weights: dict[LabelKey, Weight] = {}


class RequeuingStrategy(Model):
    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    backoff_limit_count: Count | None = None
    backoff_base_seconds: Count = 60
    backoff_max_seconds: Count = 3600


class WaitForPodsReady(Model):
    enable: Boolean = True
    timeout: Duration = "30m"
    recovery_timeout: Duration | None = None
    block_admission: Boolean = False
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class Transformation(Model):
    """`outputs` are per unit of `input`; a negative one is an allowance on what other inputs make."""

    input: LabelKey
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: LabelKey | None = None
    outputs: dict[LabelKey, Factor] = {}


class DeviceClassMapping(Model):
    """Devices of these DeviceClasses are counted as the resource `name`."""

    name: LabelKey
    device_class_names: Annotated[list[Annotated[Text, Field(min_length=1)]], Field(min_length=1)]


class Resources(Model):
    exclude_resource_prefixes: list[Text] = []
    transformations: list[Transformation] = []
    device_class_mappings: list[DeviceClassMapping] = []
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"


class Starvation(Model):
    """When what becomes free is kept for a workload that waits at the head of its queue; off unless `after` is set."""

    after: Duration | None = None
    per_cohort: Count = 1


class NodeFailure(Model):
    """What becomes of a running workload whose nodes fail. `unhealthyAfter`: how long a node has to be not ready;
    `waitForReplacement`: how long it waits for other nodes, before it goes back to its queue or is given up."""

    unhealthy_after: Duration = "1m"
    wait_for_replacement: Duration = "5m"
    then: Literal["Requeue", "Deactivate"] = "Requeue"


class PodPriority(Model):
    """Pods by whose Kubernetes priority kube-scheduler could preempt those of other queues. `Normalize` gives the
    pods of new Jobs and JobSets the priority class `className`."""

    policy: Literal["Warn", "Normalize", "Ignore"] = "Warn"
    class_name: Text = ""


class Retention(Model):
    """How long the past is kept: workloads after their end, intervals of the usage ledger after theirs (both are
    forgotten by whole months), and changes for readers of the event stream that have to catch up."""

    workloads: Duration = "400d"
    usage: Duration = "1200d"
    events: Duration = "24h"


class RateLimit(Model):
    """Of requests to the API: each token (without one: each client address) may send `requestsPerSecond`, and after a
    pause `burst` at once."""

    requests_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    burst: Annotated[int, Field(ge=1, le=1_000_000)] = 200


class AccessSettings(Model):
    """What people see of the queue tree outside the subtrees that they have a role in; and whether admins of a subtree
    claim namespaces that nobody has (docs/decisions/0011), or only platform admins of the whole tree give them."""

    outside: Literal["ReadOnly", "Hidden"] = "ReadOnly"
    namespaces: Literal["Unclaimed", "Platform"] = "Unclaimed"


class SettingsSpec(Model):
    """`trustedSubmitters` are users (controllers) that may name another user for a job they create."""

    fair_sharing: FairSharingSettings | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady = WaitForPodsReady()
    resources: Resources = Resources()
    adoption: Literal["Adopt", "Suspend"] = "Adopt"
    kueue_labels: Literal["auto", "on", "off"] = "auto"
    events: Literal["on", "off"] = "on"
    user_may_override: list[LabelKey] = []
    trusted_submitters: list[Text] = []
    drain_timeout: Duration = "10m"
    node_failure: NodeFailure = NodeFailure()
    pod_priority: PodPriority = PodPriority()
    starvation: Starvation = Starvation()
    retention: Retention = Retention()
    rate_limit: RateLimit = RateLimit()
    access: AccessSettings = AccessSettings()


class Settings(ConfigObject):
    """The one object `default` of what holds for the whole system."""

    kind: Literal["Settings"]
    spec: SettingsSpec = SettingsSpec()

    def spec_document(self) -> dict[str, Any]:
        spec = super().spec_document()
        # Like Kueue, a section that is there switches the feature on, even when everything in it is a default.
        for name, section in (
            ("fairSharing", self.spec.fair_sharing),
            ("admissionFairSharing", self.spec.admission_fair_sharing),
        ):
            if section is not None:
                spec.setdefault(name, {})
        return spec


KINDS: dict[str, type[ConfigObject]] = {
    kind.model_fields["kind"].annotation.__args__[0]: kind  # type: ignore[union-attr]
    for kind in (Topology, Flavor, Cohort, Queue, LocalQueue, PriorityClass, RoleBinding, Settings)
}
"""All kinds in the order in which they are exported: what is referred to comes first."""
