"""Kueue's own objects (v1beta1, v1beta2, its Configuration) rewritten as ours before they are checked.

What has no counterpart here is dropped with a warning, never silently; the plumbing of Kueue's own process shares one.
"""

from __future__ import annotations

from queue_manager.config.models import API_VERSION
from queue_manager.config.source import LinedDict, LinedList

GROUP = "kueue.x-k8s.io/"
CONFIGURATION_GROUP = "config.kueue.x-k8s.io/"

Warnings = list[tuple[tuple[str | int, ...], str]]
"""(path in the object, message)."""

KINDS = {
    "ResourceFlavor": "Flavor",
    "ClusterQueue": "Queue",
    "Cohort": "Cohort",
    "LocalQueue": "LocalQueue",
    "WorkloadPriorityClass": "PriorityClass",
    "Topology": "Topology",
}
NOT_CONFIGURATION = {
    "Workload": "workloads come from jobs",
    "AdmissionCheck": "a check is its name in a queue's spec.admissionChecks; it answers by PUT to a workload's checks",
}
NO_COUNTERPART = {"ProvisioningRequestConfig", "MultiKueueConfig", "MultiKueueCluster"}

_OLD_FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}  # names of v1beta1
_UNSUPPORTED_QUEUE = ("admissionScope", "concurrentAdmissionPolicy")
_PLUMBING = frozenset(
    {
        *("cacheNamespace", "clientConnection", "controller", "featureGates", "gracefulShutdownTimeout", "health"),
        *("integrations", "internalCertManagement", "leaderElection", "manageJobsWithoutQueueName", "metrics"),
        *("managedJobsNamespaceSelector", "multiKueue", "namespace", "objectRetentionPolicies", "pprofBindAddress"),
        *("queueVisibility", "tls", "visibilityServer", "webhook"),
    }
)


def is_kueue(api_version: object) -> bool:
    """Whether an object is one of Kueue's."""
    return isinstance(api_version, str) and api_version.startswith((GROUP, CONFIGURATION_GROUP))


def known_kinds() -> tuple[str, ...]:
    """Kinds of Kueue that have a counterpart."""
    return (*KINDS, "Configuration")


def translate(content: LinedDict) -> Warnings:
    """Rewrites an object of Kueue in place; returns what was lost."""
    warnings: Warnings = []
    kind = content["kind"]
    _keep_only_identity(content)
    content["apiVersion"] = API_VERSION
    if kind == "Configuration":
        _configuration(content, warnings)
        return warnings
    content["kind"] = KINDS[kind]
    spec = content.get("spec")
    if isinstance(spec, LinedDict):
        if kind == "ClusterQueue":
            _cluster_queue(spec, warnings)
        elif kind == "ResourceFlavor":
            _resource_flavor(spec)
        elif kind == "LocalQueue" and spec.pop("fairSharing", None) is not None:
            warnings.append((("spec", "fairSharing"), "fair sharing among local queues is not supported: left out"))
    return warnings


def _keep_only_identity(content: LinedDict) -> None:
    content.pop("status", None)
    metadata = content.get("metadata")
    if isinstance(metadata, LinedDict):
        for name in [name for name in metadata if name not in ("name", "namespace", "labels")]:
            del metadata[name]


def _cluster_queue(spec: LinedDict, warnings: Warnings) -> None:
    for name in _UNSUPPORTED_QUEUE:
        if spec.pop(name, None) is not None:
            warnings.append((("spec", name), f"{name} has no counterpart here: left out"))
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, LinedDict):
        for name in ("whenCanBorrow", "whenCanPreempt"):
            value = fungibility.get(name)
            if isinstance(value, str) and value in _OLD_FUNGIBILITY:
                fungibility[name] = _OLD_FUNGIBILITY[value]


def join_checks(spec: LinedDict) -> None:
    """Rewrites the checks of a queue, ours or Kueue's, in place: `admissionChecksStrategy.admissionChecks`, or plain
    names (v1beta1), become one list `admissionChecks`."""
    strategy = spec.get("admissionChecksStrategy")
    names = spec.get("admissionChecks")
    if isinstance(strategy, LinedDict) and isinstance(strategy.get("admissionChecks"), LinedList) and not names:
        spec["admissionChecks"] = strategy["admissionChecks"]
        spec.lines["admissionChecks"] = spec.lines.get("admissionChecksStrategy", spec.line)
        del spec["admissionChecksStrategy"]
    elif isinstance(names, LinedList):
        for index, name in enumerate(names):
            if isinstance(name, str):
                names[index] = LinedDict(spec.line)
                names[index]["name"] = name


def _resource_flavor(spec: LinedDict) -> None:
    for items, extra in (("nodeTaints", "timeAdded"), ("tolerations", "tolerationSeconds")):
        for item in spec.get(items) or ():
            if isinstance(item, LinedDict):
                item.pop(extra, None)


def _configuration(content: LinedDict, warnings: Warnings) -> None:
    spec = LinedDict(content.line)
    for name in [name for name in content if name not in ("apiVersion", "kind", "metadata")]:
        line = content.lines.pop(name, content.line)
        value = content.pop(name)
        if name not in _PLUMBING:
            spec[name], spec.lines[name] = value, line
    content["kind"] = "Settings"
    content["metadata"] = LinedDict(content.line)
    content["metadata"]["name"] = "default"
    content["spec"] = spec
    warnings.append(((), "settings of Kueue's own process (integrations, metrics, webhook ...) are left out"))
    resources = spec.get("resources")
    if isinstance(resources, LinedDict):
        _resources(resources, warnings)


def _resources(resources: LinedDict, warnings: Warnings) -> None:
    for item in _mappings(resources.get("transformations")):
        if item.get("strategy") == "":
            item.pop("strategy")
        if item.get("multiplyBy") == "":
            item.pop("multiplyBy")
    for index, item in enumerate(_mappings(resources.get("deviceClassMappings"))):
        if item.pop("sources", None) is not None:
            path = ("spec", "resources", "deviceClassMappings", index, "sources")
            warnings.append((path, "devices are counted by number, not by counters or capacity: left out"))


def _mappings(value: object) -> list[LinedDict]:
    return [item for item in value if isinstance(item, LinedDict)] if isinstance(value, LinedList) else []
