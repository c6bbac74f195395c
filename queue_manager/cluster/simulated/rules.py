"""What the API server itself knows of a kind: defaults, own fields and what may not change. Job kinds: job_rules.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from queue_manager.cluster.port import NAMESPACES, NODES, PODS, Object, Resource
from queue_manager.cluster.simulated.admission import invalid
from queue_manager.cluster.simulated.documents import read


class View(Protocol):
    """What rules may look at beside the object itself."""

    def peek(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """A stored object."""
        ...

    def time(self) -> str:
        """Now, as the API writes it."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """Of a kind without own behaviour. `status`: it has a status subresource."""

    resource: Resource
    status: bool = False
    keeps_status_on_create: bool = False

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """The object with defaults and the server's own fields."""
        return new

    def check(self, new: Object, old: Object | None, view: View) -> None:
        """Raises ApiError for what is not allowed."""


class PodRules(Rules):
    """Pods: only gates, and what gates allow, may change after creation."""

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """Defaults, and the status of a new pod."""
        spec = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, **defaulted_pod_spec(new["spec"])}
        if old is not None:
            return {**new, "spec": spec}
        status: Object = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "lastTransitionTime": view.time(),
                }
            ]
        return {**new, "spec": spec, "status": status}

    def check(self, new: Object, old: Object | None, view: View) -> None:
        """Refuses changes of a pod's spec beyond what the API allows."""
        name = new["metadata"]["name"]
        if not new["spec"].get("containers"):
            raise invalid(self.resource, name, "spec.containers: Required value")
        if old is None:
            return
        before, after = old["spec"], new["spec"]
        was, now = _names(before.get("schedulingGates")), _names(after.get("schedulingGates"))
        if now - was:
            raise invalid(self.resource, name, "spec.schedulingGates: Forbidden: only deletion is allowed")
        free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"} | (
            {"nodeSelector", "affinity"} if was else set()
        )
        fixed = {field for field in {*before, *after} - free if before.get(field) != after.get(field)}
        if fixed:
            raise invalid(self.resource, name, f"spec: Forbidden: pod updates may not change fields {sorted(fixed)}")
        kept = all(entry in (after.get("tolerations") or []) for entry in before.get("tolerations") or [])
        selected = {**(before.get("nodeSelector") or {})}.items() <= {**(after.get("nodeSelector") or {})}.items()
        same = _without_node_affinity(before) == _without_node_affinity(after)
        if not kept or not selected or not same or not _only_narrowed(_terms(before), _terms(after)):
            raise invalid(self.resource, name, "spec: Forbidden: scheduling directives may only be narrowed")


class NodeRules(Rules):
    """Nodes: created with their status, as tools for simulated nodes do it."""


class NamespaceRules(Rules):
    """Namespaces."""

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """The label with the name, and the phase."""
        name = new["metadata"]["name"]
        labels = {"kubernetes.io/metadata.name": name, **(new["metadata"].get("labels") or {})}
        status = new.get("status") or {"phase": "Active"}
        return {**new, "metadata": {**new["metadata"], "labels": labels}, "status": status}


CORE_RULES: dict[Resource, Rules] = {
    PODS: PodRules(PODS, status=True),
    NODES: NodeRules(NODES, status=True, keeps_status_on_create=True),
    NAMESPACES: NamespaceRules(NAMESPACES, status=True),
}


def defaulted_pod_spec(spec: Object) -> Object:
    """Limits stand for missing requests: the API server defaults them in pods, but not in templates of pods."""
    result = dict(spec)
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            result[kind] = [_defaulted_container(container) for container in spec[kind]]
    return result


def _defaulted_container(container: Object) -> Object:
    limits = read(container, "resources", "limits", default={})
    requests = read(container, "resources", "requests", default={})
    if not limits or all(name in requests for name in limits):
        return container
    return {**container, "resources": {**container["resources"], "requests": {**limits, **requests}}}


def _names(entries: Any) -> set[str]:
    return {entry["name"] for entry in entries or ()}


def _terms(spec: Object) -> list[Object]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found: list[Object] = read(spec, "affinity", "nodeAffinity", required, "nodeSelectorTerms", default=[])
    return found


def _only_narrowed(before: list[Object], after: list[Object]) -> bool:
    """Where a gated pod has required terms, each may only get more requirements; an empty one, which matches nothing,
    gets none. Where it has none anything may be set."""
    if not before:
        return True
    if len(before) != len(after):
        return False
    for old, new in zip(before, after, strict=True):
        if not any(old.get(field) for field in _FIELDS) and any(new.get(field) for field in _FIELDS):
            return False
        if any((new.get(field) or [])[: len(old.get(field) or [])] != (old.get(field) or []) for field in _FIELDS):
            return False
    return True


_FIELDS = ("matchExpressions", "matchFields")


def _without_node_affinity(spec: Object) -> Object:
    return {kind: rule for kind, rule in (spec.get("affinity") or {}).items() if kind != "nodeAffinity" and rule}
