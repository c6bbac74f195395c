"""The OpenAPI document as it is served: with an example of every body, by the name of its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from .configuration import examples
from .problems import MEDIA_TYPE, SCHEMA

_AT = "2026-11-29T12:00:00Z"
_WORKLOAD: dict[str, Any] = {
    "namespace": "team-nlp",
    "name": "pretrain",
    "kind": "TrainJob",
    "uid": "9f3c1b7e-5a0d-4c55-9d0b-2f6f1f6b7a10",
    "queue": "nlp",
    "path": "company/research/nlp",
    "cohort": "research",
    "localQueue": "default",
    "user": "ada",
    "priority": 100,
    "priorityClass": "high",
    "state": "waiting",
    "reason": "WaitingForQuota",
    "message": "12 nvidia.com/gpu of h100 short in nlp",
    "created": _AT,
    "admitted": None,
    "finished": None,
    "attempt": 0,
    "afterDrain": None,
    "requeue": {"count": 0, "since": None, "at": None},
    "ready": None,
    "runTime": {"limit": 129600.0, "used": 0.0, "until": None},
    "checks": [],
    "topology": {"mode": "Required", "level": "rack"},
    "podGroups": [
        {
            "name": "main",
            "policy": "gang",
            "minimum": None,
            "topology": None,
            "podSets": [
                {
                    "name": "node",
                    "count": 2,
                    "requests": {"nvidia.com/gpu": 8, "cpu": 128000, "memory": 1099511627776},
                    "stages": [0, 0],
                    "reclaimed": 0,
                    "minCount": None,
                    "nodeSelector": {},
                    "topology": None,
                    "flavors": {},
                    "domains": None,
                }
            ],
        }
    ],
}
_CELL = {
    "flavor": "h100",
    "resource": "nvidia.com/gpu",
    "nominal": 64,
    "own": 64,
    "used": 72,
    "borrowed": 8,
    "lent": 0,
    "draining": 8,
    "waiting": 24,
    "borrowingLimit": None,
    "lendingLimit": None,
}
_NODE = {
    "kind": "Queue",
    "name": "nlp",
    "path": "company/research/nlp",
    "parent": "research",
    "weight": 1.0,
    "stopPolicy": "None",
    "inactive": "",
    "configured": True,
    "workloads": {"running": 9, "waiting": 3},
    "cells": [_CELL],
}
_USED = {
    "start": "2026-11-01T00:00:00Z",
    "end": "2026-12-01T00:00:00Z",
    "queue": None,
    "cohort": "research",
    "namespace": None,
    "user": None,
    "flavor": None,
    "resource": "nvidia.com/gpu",
    "kind": None,
    "priorityClass": None,
    "usedSeconds": 186624000,
    "average": 72.0,
    "nominalSeconds": 165888000,
}
_CHECK = {
    "name": "dataset-cached",
    "state": "Ready",
    "message": "copied to rack r7",
    "at": _AT,
    "by": "cache-controller",
    "needed": True,
    "requeueAfter": None,
}
_REASON = {"reason": "the demo for the board comes first"}
_REVISION = {
    "number": 8,
    "author": "ada",
    "at": _AT,
    "reason": "nlp gives 32 GPUs back",
    "diff": [],
    "changes": examples.DIFFERENCE["changes"],
}
_STOP = {
    "kind": "Queue",
    "namespace": "",
    "name": "nlp",
    "policy": "Hold",
    "effective": "Hold",
    "by": "ada",
    "at": _AT,
    "reason": "storage is being moved",
    "authority": "Cohort/research",
    "message": "",
}
_SCOPES = [{"role": "operator", "node": "company/research"}]
_TOKEN = {
    "id": 7,
    "name": "nightly",
    "scopes": _SCOPES,
    "created": _AT,
    "createdBy": "ada",
    "expires": "2027-02-27T12:00:00Z",
    "used": None,
    "revoked": None,
    "revokedBy": "",
}
_AUDIT_LINE = {
    "id": 4711,
    "at": _AT,
    "who": "ada",
    "action": "hold",
    "object": "workload/team-nlp/pretrain",
    "before": {"state": "running"},
    "after": None,
    "source": "token",
    "address": "10.0.0.7",
    "reason": "the demo for the board comes first",
}
EXAMPLES: Mapping[str, Any] = {
    "Token": _TOKEN,
    "Page_Token_": {"items": [_TOKEN], "next": None},
    "TokenRequest": {"name": "nightly", "scopes": _SCOPES, "expiresIn": "90d", "reason": "nightly evaluations"},
    "NewToken": {**_TOKEN, "token": "qm_..."},
    "Page_AuditLine_": {"items": [_AUDIT_LINE], "next": "2026-11-29T12:00:00+00:00~4711"},
    "Workload": _WORKLOAD,
    "Page_Workload_": {"items": [_WORKLOAD], "next": "WyItY3JlYXRlZCIsIjIwMjYtMTEtMjlUMTI6MDA6MDBaIiwiOWYzYyJd"},
    "Explanation": {
        "state": "waiting",
        "reason": "WaitingForQuota",
        "message": "12 nvidia.com/gpu of h100 short in nlp",
        "position": 3,
        "since": _AT,
        "asOf": _AT,
        "estimatedStart": None,
        "blockers": [
            {
                "type": "Quota",
                "message": "12 of 16 missing",
                "node": "nlp",
                "flavor": "h100",
                "resource": "nvidia.com/gpu",
                "requested": 16,
                "available": 4,
                "missing": 12,
                "holders": ["team-nlp/finetune"],
            }
        ],
    },
    "History": {
        "admissions": [],
        "actions": [{"at": _AT, "who": "ada", "action": "hold", **_REASON, "arguments": {}}],
        "evictions": {},
    },
    "Check": _CHECK,
    "Page_Check_": {"items": [_CHECK], "next": None},
    "CheckAnswer": {"state": "Retry", "message": "the cache is full", "requeueAfter": "5m"},
    "ActionRequest": _REASON,
    "MoveRequest": {**_REASON, "queue": "vision"},
    "ReprioritiseRequest": {**_REASON, "priorityClass": "high"},
    "EvictRequest": {**_REASON, "requeueAfter": "10m"},
    "NodeUsage": _NODE,
    "TreeUsage": {"revision": 8, "items": [{**_NODE, "children": []}]},
    "UsageOverTime": {
        "from": "2026-11-01T00:00:00Z",
        "to": "2026-12-01T00:00:00Z",
        "step": "",
        "by": ["cohort", "resource"],
        "keptSince": "2023-08-01T00:00:00Z",
        "items": [_USED],
        "next": None,
    },
    "RevisionEntry": _REVISION,
    "Page_RevisionEntry_": {"items": [_REVISION], "next": "8"},
    "Document": examples.OBJECTS["Queue"],
    "StopRequest": {"policy": "Hold", "reason": "storage is being moved"},
    "StopQuestion": {"policy": "HoldAndDrain"},
    "Plan": examples.PLAN,
    "Stop": _STOP,
    "Page_Stop_": {"items": [_STOP], "next": None},
}
"""By the name of a schema in the document."""
BY_MEDIA_TYPE = {
    "application/x-ndjson": json.dumps(_AUDIT_LINE) + "\n",
    "text/csv": ",".join(_AUDIT_LINE) + "\n",
}
BY_PATH: Mapping[str, Any] = {
    "/healthz": {"status": "ok"},
    "/readyz": {"status": "ok"},
    "/api/v1/schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": []},
}


PROBLEM: Mapping[str, Any] = {MEDIA_TYPE: {"schema": SCHEMA}}


def install(app: FastAPI) -> None:
    """Serves the document with examples; those that a route brings itself stay."""
    make = app.openapi

    def document() -> dict[str, Any]:
        made = app.openapi_schema is None
        found: dict[str, Any] = make()
        if made:
            for path, methods in found["paths"].items():
                for operation in methods.values():
                    _complete(path, operation)
        return found

    app.openapi = document  # type: ignore[method-assign]


def _complete(path: str, operation: dict[str, Any]) -> None:
    for code, answer in operation["responses"].items():
        if code.startswith(("4", "5")) and "content" not in answer:
            answer["content"] = PROBLEM
    bodies = [operation.get("requestBody", {})]
    bodies += [answer for code, answer in operation["responses"].items() if code.startswith("2")]
    for body in bodies:
        for media_type, content in body.get("content", {}).items():
            if "example" in content or "examples" in content:
                continue
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if media_type == "application/yaml":
                content["example"] = examples.TEXT
            elif name in EXAMPLES:
                content["example"] = EXAMPLES[name]
            elif media_type in BY_MEDIA_TYPE:
                content["example"] = BY_MEDIA_TYPE[media_type]
            elif path in BY_PATH:
                content["example"] = BY_PATH[path]
