"""The exact required node affinity of a pinned pod, and reading it back.

Where the narrowest level is the host, the pod names its node in a field term (`metadata.name`): kube-scheduler then
looks at that node alone, while labels make it filter all of them. Otherwise each level's label is required. On a pod
that waits at a gate the API allows only to add requirements to the terms that are there (workloads.md 4.4).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queue_manager.cluster.pods import node_of
from queue_manager.cluster.port import Object
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.selectors import NODE_NAME_FIELD
from queue_manager.kinds.names import REQUIRED
from queue_manager.kinds.slots import Place

NodeNamed = Callable[[str], str]
"""The name of the node with that value of the host label."""
LabelsOf = Callable[[str], Mapping[str, str] | None]
"""The labels of a node by name, None when it is not there."""


def pinned_affinity(affinity: Any, levels: Sequence[str], place: Place, node_named: NodeNamed) -> dict[str, Any]:
    """A pod's affinity with the requirements of a place in each of its terms. An empty term matches no node, and the
    API lets nobody add to it: it stays as it is."""
    pinned: dict[str, Any] = copy.deepcopy(affinity or {})
    node_affinity = pinned.setdefault("nodeAffinity", {})
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    alone = terms == [{}] and not node_affinity.get(REQUIRED)
    node_affinity[REQUIRED] = {
        "nodeSelectorTerms": [_with(term, levels, place, node_named) if term or alone else term for term in terms]
    }
    return pinned


def _with(term: dict[str, Any], levels: Sequence[str], place: Place, node_named: NodeNamed) -> dict[str, Any]:
    if levels[-1] == HOSTNAME:
        field, more = "matchFields", [_in(NODE_NAME_FIELD, node_named(place[-1]))]
    else:
        field, more = "matchExpressions", [_in(key, value) for key, value in zip(levels, place, strict=True)]
    present = term.get(field) or []
    return {**term, field: [*present, *(entry for entry in more if entry not in present)]}


def place_of(pod: Object, levels: Sequence[str], labels_of: LabelsOf) -> Place | None:
    """Where a pod is bound, else where its affinity sends it; None where that can't be told."""
    found = _pinned_labels(pod)
    name = node_of(pod) or found.get(NODE_NAME_FIELD, "")
    if name:
        labels = labels_of(name)
        if labels is None:
            # The node is gone; what it was called is all that is left of its place.
            return (*("" for _ in levels[1:]), name)
        return tuple(labels.get(key, "") for key in levels)
    return tuple(found[key] for key in levels) if levels and all(key in found for key in levels) else None


def _pinned_labels(pod: Object) -> Mapping[str, str]:
    """What the first term of its required node affinity says with a single value."""
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    terms = ((affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    entries = [*(terms[0].get("matchExpressions") or ()), *(terms[0].get("matchFields") or ())]
    return {e["key"]: e["values"][0] for e in entries if e.get("operator") == "In" and len(e.get("values") or ()) == 1}


def _in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
