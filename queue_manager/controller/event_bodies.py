"""Events of Kubernetes as we write them."""

from __future__ import annotations

from datetime import datetime

from queue_manager.cluster.clock import rfc3339
from queue_manager.cluster.port import Object, Resource

LONGEST_MESSAGE = 1024
"""Characters that the API server takes."""


def event_name(about: Object, suffix: str) -> str:
    """The name of an event on an object: the suffix makes that it is created once only."""
    return f"{about['metadata']['name'][:200]}.{suffix}"


def event_body(
    name: str, resource: Resource, about: Object, reason: str, message: str, kind: str, component: str, now: datetime
) -> Object:
    """An event on an object of that resource. `kind` is Normal or Warning, `component` who says it."""
    metadata = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **{key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion") if key in metadata},
        },
        "reason": reason,
        "message": message[:LONGEST_MESSAGE],
        "type": kind,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "count": 1,
    }
