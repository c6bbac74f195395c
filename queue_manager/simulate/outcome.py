"""The outcome of a scenario as JSON (design, section 7)."""

from __future__ import annotations

from typing import Any

from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import Admission, PodSetAssignment, Reason
from queue_manager.engine.ranks import totals
from queue_manager.simulate.run import Result

Outcome = dict[str, Any]


def outcome(result: Result) -> Outcome:
    """Who is admitted, who waits and why, who was evicted by whom; workloads by `namespace/name`, in order."""
    keys = {uid: job.key for uid, job in result.jobs.items()}
    return {
        "admitted": {keys[uid]: _admission(result.admitted[uid]) for uid in keys if uid in result.admitted},
        "pending": {keys[uid]: _pending(result, uid) for uid in keys if uid not in result.admitted},
        "evictions": [[keys[ended.uid], ended.reason, keys.get(ended.by)] for ended in result.evictions],
    }


def _pending(result: Result, uid: str) -> Outcome:
    why = why_pending(result, uid)
    return {"reason": why[0], "message": why[1]}


def why_pending(result: Result, uid: str) -> tuple[str, str]:
    """Reason and message of a workload that waits, or that has finished."""
    job = result.jobs[uid]
    if job.standing.why is not None:
        return job.standing.why
    waiting = result.waiting.get(uid)
    if waiting is None:
        return (Reason.PENDING_EVALUATION.value, "was not tried")
    return (waiting.reason.value, waiting.message)


def _admission(found: Admission) -> Outcome:
    return {"clusterQueue": found.queue, "podSets": {p.name: _pod_set(p) for p in found.pod_sets}}


def _pod_set(assigned: PodSetAssignment) -> Outcome:
    return {"count": assigned.count, "flavors": dict(assigned.flavors), "topology": topology(assigned)}


def topology(assigned: PodSetAssignment) -> list[Any] | None:
    """Domains with their pods; the host name alone where hosts are the lowest level. None without topology."""
    if assigned.domains is None:
        return None
    host = assigned.levels[-1:] == (HOSTNAME,)
    counts = sorted(totals(assigned.domains).items())
    return [[[values[-1]] if host else list(values), count] for values, count in counts]
