"""The port to a Kubernetes API server; the real transport and the simulated cluster both implement it.

Objects are plain dicts as decoded from JSON and are never changed in place by either side.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]


class Resource(NamedTuple):
    """One REST collection. `group` is "" for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` alone for the core API."""
        return f"{self.group}/{self.version}" if self.group else self.version


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
TRAINING_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
WORKLOADS = Resource("scheduling.k8s.io", "v1beta1", "workloads", "Workload")
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
WORKLOADS_ALPHA = WORKLOADS._replace(version="v1alpha2")
POD_GROUPS_ALPHA = POD_GROUPS._replace(version="v1alpha2")
"""As Kubernetes 1.36 has them."""
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


PATCH_NOT_APPLICABLE = "the server rejected our request due to an error in our request"
"""The API server's whole message for a JSON Patch whose `test` fails or whose path is missing (422)."""


class ApiError(Exception):
    """An answer of the API server that is not a success.

    `status` is the HTTP status (0: no answer), `reason` the Status object's reason, `retry_after` seconds or None.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The resourceVersion moved on or a JSON Patch didn't apply: read again and decide again.

        A failed `test` and a path that isn't there give the same answer, which doesn't say which it was.
        """
        return self.status == 409 or (self.status == 422 and PATCH_NOT_APPLICABLE in self.message)

    @property
    def refused(self) -> bool:
        """Validation said no: 422 of a schema or built-in check, 403 of a webhook; the same request won't pass later
        unless something else changes first."""
        denied = self.status == 403 and "denied the request" in self.message
        return denied or (self.status == 422 and not self.conflict)

    @property
    def forbidden(self) -> bool:
        """Our rights don't cover it."""
        return self.status == 403

    @property
    def gone(self) -> bool:
        """The watched resourceVersion is too old: list again."""
        return self.status == 410

    @property
    def transient(self) -> bool:
        """Worth the same request again after a pause."""
        return self.status in (0, 408, 429, 500, 502, 503, 504)


class PatchType(StrEnum):
    """Content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(NamedTuple):
    type: EventType
    object: Object


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `continue_token` is "" on the last one."""

    items: list[Object]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """What a list or watch selects; selectors in the API's own syntax."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 500
    options: Mapping[str, str] = field(default_factory=dict)


EVERYTHING = Query()
"""The whole collection, in all namespaces."""

PatchBody = Object | list[Object]
"""Operations for a JSON Patch, an object for the others."""


class Cluster(Protocol):
    """A Kubernetes API server. Every method raises ApiError."""

    async def list(self, resource: Resource, query: Query = EVERYTHING, continue_token: str = "") -> Page:
        """One page of a collection, in the server's order."""
        ...

    def watch(self, resource: Resource, resource_version: str, query: Query = EVERYTHING) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version`, bookmarks included; ends when the server ends it, raises ApiError(410) when
        the version is too old."""
        ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object; `namespace` is "" for cluster scope."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """The object as the server stored it."""
        ...

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: PatchBody,
        patch_type: PatchType,
        *,
        subresource: str = "",
        field_manager: str = "queue-manager",
        force: bool = False,
    ) -> Object:
        """The object after the patch; `force` takes over fields with server-side apply."""
        ...

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", propagation: str = "Background"
    ) -> None:
        """Deletes it, only if it has `uid` when that is given (else ApiError 409)."""
        ...

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server serves the collection now (a CRD may come later)."""
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...
