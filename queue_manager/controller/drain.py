"""When is a workload's last pod gone, and can no new one come? (workloads.md D6)"""

from __future__ import annotations

from collections.abc import Iterator

from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.kinds.fields import condition
from queue_manager.kinds.kind import Lookup


def children(uid: str, lookup: Lookup) -> Iterator[Object]:
    """JobSets and Jobs below an object, at any depth."""
    for job_set in lookup.owned_by(JOB_SETS, uid):
        yield job_set
        yield from children(job_set["metadata"]["uid"], lookup)
    yield from lookup.owned_by(JOBS, uid)


def is_settled(obj: Object) -> bool:
    """Whether a child makes no more pods: suspended and its controller has acted on it, never started, or ended."""
    if any(condition(obj, name) for name in ("Complete", "Completed", "Failed")):
        return True
    if not (obj.get("spec") or {}).get("suspend"):
        return False
    if obj["metadata"].get("generation") == 1:
        # Made suspended, and no edit of its spec since: its controller has nothing to act on, and may never say so.
        return True
    if not condition(obj, "Suspended"):
        return False
    status = obj.get("status") or {}
    if obj.get("kind") == "JobSet":
        return not any(entry.get("active") for entry in status.get("replicatedJobsStatus") or [])
    return not status.get("active")


def unsettled(uid: str, obj: Object | None, lookup: Lookup) -> str:
    """What can still make pods for the workload, in words; "" when nothing can.

    A deleted job's children are collected some time after it: until then they may replace pods.
    """
    below = list(children(uid, lookup))
    if obj is None:
        return f"{below[0]['kind']} {below[0]['metadata']['name']} is not deleted yet" if below else ""
    candidates = [*below, obj] if obj.get("kind") in ("Job", "JobSet") else below
    for child in candidates:
        if not is_settled(child):
            return f"{child.get('kind', 'child')} {child['metadata']['name']} is not suspended yet"
    return ""
