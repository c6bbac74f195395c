"""Examples for the OpenAPI document: one object of each kind, an answer of a plan."""

from __future__ import annotations

from typing import Any

from queue_manager.config.models import API_VERSION


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


OBJECTS: dict[str, dict[str, Any]] = {
    "Topology": _object("Topology", "racks", {"levels": [{"nodeLabel": "rack"}]}),
    "Flavor": _object("Flavor", "h100", {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}),
    "Cohort": _object("Cohort", "research", {"parent": "company"}),
    "Queue": _object(
        "Queue",
        "nlp",
        {
            "cohort": "research",
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [
                        {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "64"}]},
                    ],
                }
            ],
        },
    ),
    "LocalQueue": _object("LocalQueue", "default", {"queue": "nlp"}, "team-nlp"),
    "PriorityClass": _object("PriorityClass", "high", {"value": 100}),
    "RoleBinding": _object(
        "RoleBinding", "nlp-leads", {"role": "queue-admin", "subjects": [{"kind": "Group", "name": "nlp-leads"}]}
    ),
    "Settings": _object("Settings", "default", {"drainTimeout": "5m"}),
}
PATCHES: dict[str, dict[str, Any]] = {
    "Topology": {"spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]}},
    "Flavor": {"spec": {"nodeLabels": {"gpu": "h100", "zone": "a"}}},
    "Cohort": {"spec": {"fairSharing": {"weight": "2"}}},
    "Queue": {"spec": {"stopPolicy": "Hold"}},
    "LocalQueue": {"spec": {"stopPolicy": "Hold"}},
    "PriorityClass": {"spec": {"preemptible": False}},
    "RoleBinding": {"spec": {"node": "research"}},
    "Settings": {"spec": {"drainTimeout": None}},
}
_QUEUE_CHANGE = {
    "action": "changed",
    "kind": "Queue",
    "namespace": "",
    "name": "nlp",
    "fields": [
        {
            "field": "spec.resourceGroups[0].flavors[h100].resources[nvidia.com/gpu].nominalQuota",
            "before": "64",
            "after": "32",
        }
    ],
}
DIFFERENCE: dict[str, Any] = {"revision": 7, "changes": [_QUEUE_CHANGE], "warnings": []}
PLAN: dict[str, Any] = {
    **DIFFERENCE,
    "hash": "5b7e0f1c2d3a49586776859403a2b1c0",
    "overQuota": ["team-nlp/pretrain"],
    "preemptible": ["team-nlp/pretrain"],
    "wouldStop": [],
    "wouldStart": [],
    "neverStart": ["team-nlp/huge"],
    "limits": [],
}
APPLIED: dict[str, Any] = {
    "revision": 8,
    "changes": [{name: _QUEUE_CHANGE[name] for name in ("action", "kind", "namespace", "name")}],
    "warnings": [],
}
PROBLEM: dict[str, Any] = {
    "type": "about:blank",
    "title": "Configuration is not valid",
    "status": 422,
    "detail": "1 problem(s) found; nothing was changed",
    "errors": [
        {
            "file": "teams.yaml",
            "line": 5,
            "kind": "Queue",
            "name": "nlp",
            "field": "spec.cohrt",
            "message": "unknown field 'cohrt'",
            "hint": "did you mean 'cohort'?",
        }
    ],
    "errorCount": 1,
}
TEXT = """\
apiVersion: queue-manager.io/v1
kind: Cohort
metadata: {name: research}
spec: {parent: company}
"""
