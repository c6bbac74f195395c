"""The objects of a scenario, sorted by what they are. Native objects of Kueue and Kubernetes, and the project's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queue_manager.cluster.port import (
    DEVICE_CLASSES,
    LIMIT_RANGES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RUNTIME_CLASSES,
    Object,
    Resource,
)
from queue_manager.config import kueue, models
from queue_manager.config.problem import nearest_or_list
from queue_manager.kinds.fields import View
from queue_manager.simulate.problem import ScenarioError

METADATA_NAME = "kubernetes.io/metadata.name"
DEFAULT_NAMESPACE = "default"

_VERSIONS = {
    **dict.fromkeys((*kueue.KINDS, "Workload"), "kueue.x-k8s.io/v1beta2"),
    **dict.fromkeys(("Flavor", "Queue", "Settings"), models.API_VERSION),
    **dict.fromkeys(("Node", "Pod", "Namespace", "LimitRange"), "v1"),
    "Configuration": "config.kueue.x-k8s.io/v1beta2",
    "PriorityClass": "scheduling.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    **dict.fromkeys(("DeviceClass", "ResourceClaim", "ResourceClaimTemplate"), "resource.k8s.io/v1"),
}
"""What the apiVersion of a kind is where an object does not say."""
_LOOKED_UP = {
    resource.kind: resource
    for resource in (LIMIT_RANGES, RUNTIME_CLASSES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
}
"""What pod templates refer to, or are changed by."""
_CLUSTER_KINDS = {"Workload", "Node", "Pod", "Namespace", "PriorityClass", *_LOOKED_UP}
_CORE_KINDS_WITHOUT_A_PART = {
    *("ConfigMap", "Endpoints", "Event", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate"),
    *("ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"),
}


@dataclass(slots=True)
class Objects:
    """`configuration` is what `queue_manager.config` reads; of the rest each kind is a list in the order given."""

    configuration: list[Object] = field(default_factory=list)
    by_kind: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind of Kubernetes, or Kueue's workloads."""
        return self.by_kind.get(kind, [])


def objects_in(content: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of all objects of a decoded file: a scenario, or a List as kubectl prints it; lists among the
    objects are unpacked. Raises ScenarioError."""
    if not isinstance(content, dict):
        raise ScenarioError("must be a JSON object whose field objects is a list of objects of Kueue and Kubernetes")
    if _is_list(content):
        yield from _listed("items", content.get("items"))
        return
    for path, item in _listed("objects", content.get("objects")):
        if _is_list(item):
            yield from _listed(f"{path}.items", item.get("items"))
        else:
            yield path, item


def _is_list(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    kind = content.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and "items" in content


def _listed(path: str, items: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(items, list):
        raise ScenarioError(f"{path}: must be a list of objects of Kueue and Kubernetes")
    for index, item in enumerate(items):
        yield f"{path}[{index}]", item


def sort_objects(contents: Iterable[tuple[str, Any]]) -> Objects:
    """Sorts decoded objects, each with its path; what plays no part in admission is left out.

    Raises ScenarioError for what is no object.
    """
    found = Objects()
    for path, given in contents:
        content = _with_version(given, path)
        kind, version = content["kind"], content["apiVersion"]
        if version == models.API_VERSION or (kueue.is_kueue(version) and kind != "Workload"):
            found.configuration.append(_without_empty_groups(content))
        elif kind in _CLUSTER_KINDS:
            _refuse_shape(content)
            found.by_kind.setdefault(kind, []).append(content)
        elif version == "v1" and kind not in _CORE_KINDS_WITHOUT_A_PART:
            hint = nearest_or_list(kind, _VERSIONS, "kind")
            raise ScenarioError(f"{path}: kind: unknown kind {kind!r} ({hint})")
    _refuse_duplicates(found)
    return found


def _with_version(content: Any, path: str) -> Object:
    if not isinstance(content, dict):
        raise ScenarioError(f"{path}: must be an object with apiVersion, kind and metadata")
    kind = content.get("kind")
    if not isinstance(kind, str | None):
        raise ScenarioError(f"{path}: kind: must be a string")
    if not kind:
        raise ScenarioError(f"{path}: kind: is missing ({nearest_or_list('', _VERSIONS, 'kind')})")
    version = content.get("apiVersion") or _VERSIONS.get(kind)
    if not isinstance(version, str):
        raise ScenarioError(f"{path}: {kind}: apiVersion: is missing")
    metadata = content.get("metadata")
    if kind != "Configuration" and not (isinstance(metadata, dict) and isinstance(metadata.get("name"), str)):
        raise ScenarioError(f"{path}: {kind}: metadata.name: is missing")
    if kind != "Configuration" and not content["metadata"]["name"]:
        raise ScenarioError(f"{path}: {kind}: metadata.name: must not be empty")
    for name in ("namespace", "uid"):
        if isinstance(metadata, dict) and not isinstance(metadata.get(name), str | None):
            raise ScenarioError(f"{path}: {kind}: metadata.{name}: must be a string")
    return content if version == content.get("apiVersion") else {**content, "apiVersion": version}


def _refuse_shape(content: Object) -> None:
    for name in ("spec", "status"):
        if not isinstance(content.get(name), dict | None):
            raise ScenarioError(f"{content['kind']} {label(content)}: {name} must be an object")


def _without_empty_groups(content: Object) -> Object:
    """Resource groups that cover nothing say nothing, though Kueue's own API server would not store them."""
    spec = content.get("spec")
    if not isinstance(spec, dict) or not isinstance(groups := spec.get("resourceGroups"), list):
        return content
    kept = [group for group in groups if not isinstance(group, dict) or group.get("coveredResources")]
    return content if len(kept) == len(groups) else {**content, "spec": {**spec, "resourceGroups": kept}}


def _refuse_duplicates(found: Objects) -> None:
    for kind, items in found.by_kind.items():
        seen: set[str] = set()
        for item in items:
            key = label(item)
            if key in seen:
                raise ScenarioError(f"{kind} {key}: metadata.name: is given twice (remove one)")
            seen.add(key)


def label(obj: Object) -> str:
    """`namespace/name` of a namespaced object, else the name."""
    metadata = obj["metadata"]
    return f"{namespace_of(obj)}/{metadata['name']}" if obj["kind"] in _NAMESPACED else str(metadata["name"])


_NAMESPACED = {"Workload", "Pod", *(kind for kind, resource in _LOOKED_UP.items() if resource.namespaced)}


def namespace_of(obj: Object) -> str:
    """The namespace of a namespaced object; what says none lies in `default`, as in kubectl."""
    return obj["metadata"].get("namespace") or DEFAULT_NAMESPACE


def namespace_labels(objects: Objects) -> Mapping[str, Mapping[str, str]]:
    """Labels by namespace; each has its name as a label, as the API server sees to."""
    found = {}
    for o in objects.of("Namespace"):
        name = o["metadata"]["name"]
        found[name] = {METADATA_NAME: name, **View(o, f"Namespace {name}: ").at("metadata", "labels").texts()}
    return found


class ScenarioLookup:
    """What `kinds` look up beside a pod template."""

    kueue_keys = False
    """A Workload of Kueue says by fields what its job said by annotations."""

    def __init__(self, objects: Objects) -> None:
        self._found: dict[tuple[Resource, str], dict[str, Object]] = {}
        for kind, resource in _LOOKED_UP.items():
            for item in objects.of(kind):
                namespace = namespace_of(item) if resource.namespaced else ""
                self._found.setdefault((resource, namespace), {})[item["metadata"]["name"]] = item

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object of the scenario."""
        return self._found.get((resource, namespace), {}).get(name)

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """All objects of a kind, of one namespace if they have namespaces."""
        return list(self._found.get((resource, namespace), {}).values())

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        """Nothing: a scenario has no jobs."""
        return []

    def schema(self, resource: Resource) -> Object | None:
        """None: a scenario has no CRDs."""
        return None
