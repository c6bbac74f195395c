"""Plain pods that ask for a queue: their labels and annotations, and what makes two of them alike (issue 5).

What a pod asks for is read off it before it is admitted: afterwards it carries what we wrote as well. From then on an
annotation of ours says which pod set it is of, so that a replacement, made as the first ones were, finds its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from queue_manager.cluster.pods import is_gone, is_leaving
from queue_manager.cluster.port import Object
from queue_manager.kinds.fields import View
from queue_manager.kinds.gates import awaits_admission
from queue_manager.kinds.kind import PREFIX, QUEUE_LABEL, Unresolvable
from queue_manager.kinds.patches import digest
from queue_manager.kinds.pod_rules import asked_labels

POD_GROUP_LABEL = PREFIX + "pod-group"
POD_GROUP_SIZE = PREFIX + "pod-group-size"
WORKLOAD = PREFIX + "workload"
"""Ours, on a plain pod that was let through: `uid/attempt` of the admission it runs by."""
POD_SET = PREFIX + "pod-set"
"""Ours, beside it: the pod set it is of."""

SHAPE = "shape"
TEMPLATE = "template"
"""Top-level keys that `shaped` adds: the name of the pod set that the pod would be of, and what of its spec decides
that (as a pod template), until it is let through."""

_SPEC = (
    *("affinity", "hostNetwork", "nodeSelector", "overhead", "priority", "priorityClassName", "resourceClaims"),
    *("resources", "schedulerName", "tolerations", "topologySpreadConstraints"),
)
_LABELS = "labels"
_CONTAINER = ("resources", "ports", "restartPolicy")


def is_candidate(pod: Object) -> bool:
    """Whether a pod asks for a queue itself, or was let through when it did; who owns it may still answer for it."""
    return QUEUE_LABEL in (pod["metadata"].get("labels") or {}) or bool(admission_of(pod)[0])


def group_of(pod: Object) -> str:
    """The name of its group, "" where it is alone."""
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP_LABEL) or "")


def admission_of(pod: Object) -> tuple[str, int]:
    """(uid of the workload, attempt) that a pod was let through by; ("", 0) where it was not."""
    uid, _, attempt = str((pod["metadata"].get("annotations") or {}).get(WORKLOAD) or "").partition("/")
    return (uid, int(attempt)) if uid and attempt.isdecimal() and not awaits_admission(pod) else ("", 0)


def has_succeeded(pod: Object) -> bool:
    """Whether it has done its work. One that ended because it was deleted has not."""
    return (pod.get("status") or {}).get("phase") == "Succeeded" and not is_leaving(pod)


def has_failed(pod: Object) -> bool:
    """Whether it ended otherwise by itself."""
    return (pod.get("status") or {}).get("phase") == "Failed" and not is_leaving(pod)


def runs(pod: Object) -> bool:
    """Whether it has not ended and nothing of ours keeps it from running, a terminating one included."""
    return not is_gone(pod) and not awaits_admission(pod)


def age(pod: Object) -> tuple[str, str]:
    """The order of pods: the oldest first."""
    return str(pod["metadata"].get("creationTimestamp", "")), pod["metadata"]["name"]


def shaped(projected: Object, pod: Object) -> Object:
    """The projected pod with `SHAPE` and `TEMPLATE` where it asks for a queue itself."""
    if not is_candidate(pod):
        return projected
    if admission_of(pod)[0] and (noted := (pod["metadata"].get("annotations") or {}).get(POD_SET)):
        return {**projected, SHAPE: noted}
    text = json.dumps(_decisive(pod), sort_keys=True)
    return {**projected, SHAPE: shape_name(text), TEMPLATE: _shared_template(text)}


@lru_cache(maxsize=4096)
def shape_name(text: str) -> str:
    """The name of the pod set of all pods of which this is what decides."""
    return f"pods-{digest(text)[:8]}"


@lru_cache(maxsize=4096)
def _shared_template(text: str) -> Mapping[str, Any]:
    """One template for all pods that are alike."""
    spec = json.loads(text)
    return {"metadata": {"labels": spec.pop(_LABELS, {})}, "spec": spec}


def _decisive(pod: Object) -> Object:
    """What makes pods alike: what decides of their spec, and those labels that the rules for their places ask for."""
    spec = _template_spec(pod.get("spec") or {})
    labels = pod["metadata"].get("labels") or {}
    own = {key: labels[key] for key in _asked_labels(spec) & labels.keys()}
    return {**spec, _LABELS: own} if own else spec


def _asked_labels(spec: Object) -> frozenset[str]:
    if not spec.get("affinity") and not spec.get("topologySpreadConstraints"):
        return frozenset()  # nearly all pods
    try:
        return asked_labels(View(spec))
    except Unresolvable:
        return frozenset()  # who reads the template says what is wrong with it


def _template_spec(spec: Object) -> Object:
    """What decides where a pod may run and what it takes. The RuntimeClass is in it already: admission of the API
    server has added its overhead, selector and tolerations."""
    found: Object = {name: spec[name] for name in _SPEC if spec.get(name)}
    for name in ("initContainers", "containers"):
        if containers := spec.get(name):
            found[name] = [{key: c[key] for key in _CONTAINER if c.get(key)} for c in containers]
    return found
