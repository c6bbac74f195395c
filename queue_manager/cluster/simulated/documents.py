"""JSON documents: copying, and which lists are maps in disguise."""

from __future__ import annotations

from typing import Any

LIST_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "jobsStatus": "name",
    "ownerReferences": "uid",
    "replicatedJobs": "name",
    "replicatedJobsStatus": "name",
    "runtimePatches": "manager",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Field name -> the key of its items, for the lists that merge by key. All others are atomic (tolerations too)."""


def copied(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def list_key(name: object, *lists: Any) -> str:
    """The key by which the lists under field `name` merge; "" when they are atomic."""
    key = LIST_KEYS.get(name, "") if isinstance(name, str) else ""
    if key and all(isinstance(item, dict) and key in item for items in lists for item in items or ()):
        return key
    return ""


def read(value: Any, *path: Any, default: Any = None) -> Any:
    """The value at a path of field names; `default` where something on the way is missing or null."""
    for step in path:
        if not isinstance(value, dict) or value.get(step) is None:
            return default
        value = value[step]
    return value
