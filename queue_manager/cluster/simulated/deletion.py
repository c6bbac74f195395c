"""What a DELETE request does to an object: grace, finalizers, propagation."""

from __future__ import annotations

from datetime import datetime, timedelta

from queue_manager.cluster.clock import rfc3339
from queue_manager.cluster.port import PODS, ApiError, Object, Resource
from queue_manager.cluster.simulated.documents import read

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_FINALIZER_OF = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def deletion_refused(resource: Resource, obj: Object, uid: str) -> ApiError | None:
    """The conflict when another object of the name was meant."""
    actual = obj["metadata"]["uid"]
    if not uid or uid == actual:
        return None
    name = obj["metadata"]["name"]
    message = f'Operation cannot be fulfilled on {resource.plural} "{name}": Precondition failed: UID in precondition: '
    return ApiError(409, "Conflict", f"{message}{uid}, UID in object meta: {actual}")


def graceful_seconds(resource: Resource, obj: Object, grace: int | None) -> int:
    """How long a kubelet may take; 0 where none has to act."""
    ended = read(obj, "status", "phase") in ("Succeeded", "Failed")
    if resource != PODS or not obj["spec"].get("nodeName") or ended or grace == 0:
        return 0
    seconds = grace if grace is not None else int(obj["spec"].get("terminationGracePeriodSeconds", 30))
    return max(seconds, 1)


def deletion_marked(obj: Object, propagation: str, seconds: int, now: datetime) -> Object:
    """The object with its deletion timestamp and the finalizer of the propagation policy."""
    metadata = dict(obj["metadata"])
    finalizers = [name for name in metadata.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
    if propagation in _FINALIZER_OF:
        finalizers.append(_FINALIZER_OF[propagation])
    metadata["finalizers"] = finalizers
    if not finalizers:
        del metadata["finalizers"]
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=seconds))
        metadata["generation"] = metadata.get("generation", 0) + 1
        metadata["deletionGracePeriodSeconds"] = seconds
    metadata["deletionGracePeriodSeconds"] = min(seconds, metadata["deletionGracePeriodSeconds"])
    return {**obj, "metadata": metadata}
