"""Nodes of the cluster as the engine sees them."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.cluster.pods import amount, is_leaving
from queue_manager.cluster.port import Object
from queue_manager.engine.configuration import Node
from queue_manager.engine.workload import Taint

_STATUS = ("allocatable", "conditions")


def project(node: Object) -> Object:
    """The part of a node that is kept in memory; its images alone may be most of it."""
    metadata, status = node["metadata"], node.get("status") or {}
    kept = {name: status[name] for name in _STATUS if name in status}
    kept["conditions"] = [
        {name: condition[name] for name in ("type", "status", "lastTransitionTime") if name in condition}
        for condition in kept.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    identity = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {name: metadata[name] for name in identity if name in metadata},
        "spec": {
            name: node["spec"][name] for name in ("taints", "unschedulable") if (node.get("spec") or {}).get(name)
        },
        "status": kept,
    }


def is_ready(node: Object) -> bool:
    """Whether its kubelet reports Ready; a node that was never heard of is not."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def engine_node(node: Object, foreign: Mapping[str, int] | None = None) -> Node:
    """The engine's view. `foreign` is what pods that we don't manage use on it. Raises ValueError for a bad amount."""
    spec, metadata = node.get("spec") or {}, node["metadata"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        allocatable={name: amount(name, text) for name, text in allocatable.items()},
        taints=taints(node),
        ready=is_ready(node) and not is_leaving(node),
        unschedulable=bool(spec.get("unschedulable")),
        foreign=dict(foreign or {}),
    )


def readable_node(node: Object, foreign: Mapping[str, int]) -> Node:
    """The engine's view of a node; one with an amount that can't be read offers nothing."""
    try:
        return engine_node(node, foreign)
    except ValueError:
        return Node(
            name=node["metadata"]["name"], labels=node["metadata"].get("labels") or {}, allocatable={}, ready=False
        )


def taints(node: Object) -> tuple[Taint, ...]:
    """Its taints."""
    found = (node.get("spec") or {}).get("taints") or ()
    return tuple(Taint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in found)
