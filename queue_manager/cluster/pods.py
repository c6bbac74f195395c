"""What we need to know of a pod: what it takes of its node, where it is, and whether it still counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.port import Object
from queue_manager.engine.quantities import PODS, parse, port_resource

REQUESTS = "requests"
HOST_PORTS = "hostPorts"
"""Top-level keys that `project` adds: effective requests (base units) and host ports of the pod."""
DISRUPTION_TARGET = "DisruptionTarget"


@lru_cache(maxsize=65_536)
def amount(resource: str, text: str | int) -> int:
    """`quantities.parse`, remembered: all pods of a cluster use the same few texts, and exact parsing is slow."""
    return parse(resource, text)


def effective_requests(spec: Object) -> dict[str, int]:
    """What the scheduler counts for a pod of this spec, in base units.

    The greater of what runs together in the end (containers and sidecars) and of each init container with the sidecars
    started before it, plus overhead. Limits stand for missing requests: templates may not be defaulted yet.
    Requests of the pod as a whole (`spec.resources`) replace those of its containers. Raises ValueError.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(running, requests)
            _raise_to(peak, running)
        else:
            together = dict(running)
            _add(together, requests)
            _raise_to(peak, together)
    for container in spec.get("containers") or ():
        _add(running, container_requests(container))
    _raise_to(peak, running)
    peak.update(_declared(spec.get("resources") or {}))
    _add(peak, {name: amount(name, text) for name, text in (spec.get("overhead") or {}).items()})
    return peak


def container_requests(container: Object) -> dict[str, int]:
    """The requests of one container in base units, limits where there are none."""
    return _declared(container.get("resources") or {})


def host_ports(spec: Object) -> list[int]:
    """The host ports of all containers, sorted; with host network every container port is one."""
    on_host = bool(spec.get("hostNetwork"))
    found: set[int] = set()
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for port in container.get("ports") or ():
            if number := port.get("hostPort") or (port.get("containerPort") if on_host else 0):
                found.add(int(number))
    return sorted(found)


def project(pod: Object) -> Object:
    """The part of a pod that is kept in memory: identity, place, phase, gates, and the computed amounts.

    Amounts that can't be read count as nothing here: the API server doesn't store such pods.
    """
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owner = controller_of(pod)
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    if metadata.get("labels"):
        kept["labels"] = {k: intern(v) for k, v in metadata["labels"].items() if k not in _BULKY}
    if annotations := metadata.get("annotations"):
        # That there are others is kept as well: who adds one must know whether the map is there.
        kept["annotations"] = {k: v for k, v in annotations.items() if k.startswith(_PREFIXES)} or _NONE
    if owner is not None:
        kept["ownerReferences"] = [_shared_owner(*(owner.get(name) for name in _OWNER))]
    conditions = tuple(
        tuple(condition.get(name) for name in _CONDITION)
        for condition in status.get("conditions") or ()
        if condition.get("type") in ("Ready", "PodScheduled", DISRUPTION_TARGET)
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": kept,
        "spec": {name: spec[name] for name in (_SPEC if spec.get("nodeName") else _UNBOUND_SPEC) if spec.get(name)},
        "status": {
            "phase": intern(status.get("phase", "Pending")),
            "conditions": _shared_conditions(conditions),
            **({"nominatedNodeName": status["nominatedNodeName"]} if status.get("nominatedNodeName") else {}),
        },
        REQUESTS: _shared(tuple(sorted(_readable_requests(spec).items()))),
        HOST_PORTS: host_ports(spec),
    }


def usage(pod: Object) -> Mapping[str, int]:
    """What a (projected) pod takes of its node, the slot for the pod itself and its host ports included."""
    requests, ports = pod.get(REQUESTS), pod.get(HOST_PORTS)
    if requests is None:
        requests = _readable_requests(pod.get("spec") or {})
    if ports is None:
        ports = host_ports(pod.get("spec") or {})
    return {**requests, PODS: 1, **{port_resource(port): 1 for port in ports}}


def is_gone(pod: Object | None) -> bool:
    """Deleted (None), Succeeded or Failed. A terminating pod still runs, and counts."""
    return pod is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(obj: Object) -> bool:
    """Whether a pod, or any other object, is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_ready(pod: Object) -> bool:
    """Running, and its Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_gated(pod: Object) -> bool:
    """Whether a scheduling gate keeps the scheduler away from it."""
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def node_of(pod: Object) -> str:
    """The node it is bound to, or ""."""
    return (pod.get("spec") or {}).get("nodeName") or ""


class Disruption(NamedTuple):
    """Somebody takes the pod away: the condition DisruptionTarget of Kubernetes."""

    reason: str
    message: str = ""


def disruption_of(pod: Object) -> Disruption | None:
    """Who takes the pod away, None if nobody does."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == DISRUPTION_TARGET and condition.get("status") == "True":
            return Disruption(condition.get("reason") or "", condition.get("message") or "")
    return None


def is_unschedulable(pod: Object) -> bool:
    """Whether kube-scheduler has looked at it and found no node."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        c.get("type") == "PodScheduled" and c.get("status") == "False" and c.get("reason") == "Unschedulable"
        for c in conditions
    )


def nominated(pod: Object) -> str:
    """The node on which kube-scheduler makes room for it by preemption, or ""."""
    return (pod.get("status") or {}).get("nominatedNodeName") or ""


_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
)
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_CONDITION = ("type", "status", "reason", "message")
_PREFIXES = ("queue-manager.io/", "kueue.x-k8s.io/")
"""Annotations that say something to us; JobSet alone repeats all its labels as annotations."""
_BULKY = frozenset(
    f"jobset.sigs.k8s.io/{name}"
    for name in (
        *("coordinator", "global-replicas", "group-name", "group-replicas", "job-group-index", "job-key"),
        *("jobset-uid", "priority", "replicatedjob-replicas"),
    )
)
"""Labels that nobody here asks for."""
_SPEC = (
    *("nodeName", "schedulingGates", "schedulerName", "priority", "priorityClassName", "nodeSelector"),
    "schedulingGroup",
)
_UNBOUND_SPEC = (*_SPEC, "affinity")
"""Where a pod that is bound may go does not matter any more."""
_NONE: dict[str, str] = {}
"""Shared by all pods of which no annotation is kept; never changed, as no object is."""


def _readable_requests(spec: Object) -> Mapping[str, int]:
    try:
        return effective_requests(spec)
    except ValueError:
        return {}


@lru_cache(maxsize=4096)
def _shared(requests: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """One dict for all pods that ask for the same: there are many pods, and few shapes."""
    return dict(requests)


@lru_cache(maxsize=65_536)
def _shared_owner(*values: Any) -> Object:
    return {name: value for name, value in zip(_OWNER, values, strict=True) if value is not None}


@lru_cache(maxsize=4096)
def _shared_conditions(conditions: tuple[tuple[Any, ...], ...]) -> list[Object]:
    return [{n: v for n, v in zip(_CONDITION, values, strict=True) if v is not None} for values in conditions]


def _declared(resources: Mapping[str, Any]) -> dict[str, int]:
    texts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, text) for name, text in texts.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(peak: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        peak[name] = max(peak.get(name, 0), amount)


def total_usage(pods: Iterable[Object]) -> dict[str, int]:
    """What several pods take together; those that are gone take nothing."""
    total: dict[str, int] = {}
    for pod in pods:
        if not is_gone(pod):
            _add(total, usage(pod))
    return total
