"""Pods that a third party takes away (issue 5, "Below us"): kube-scheduler for pods of higher priority, the eviction
API.

A pod group says what that means: `all`, the whole workload goes back to its queue; `single`, its controller makes the
pod again, and if others have its place by then it gets another one (node_failures.py). What comes from its node goes
that way in any case, and what the job's own controllers do is no business of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.cluster.pods import Disruption
from queue_manager.controller.kubernetes_groups import disrupted
from queue_manager.controller.picture import Picture
from queue_manager.controller.pod_table import Pod
from queue_manager.controller.transitions import Facts, drain
from queue_manager.engine.workload import DisruptionMode
from queue_manager.kinds.kubernetes_groups import Covering
from queue_manager.store.records import Change, State, WorkloadRow

DISRUPTED = "Disrupted"
PREEMPTED = "PreemptionByScheduler"
BY_NODE = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Reasons that come from the node of the pod."""
BY_OWNER = frozenset({"ExclusivePlacementViolation"})
"""Reasons of JobSet, which makes the pod again."""
WHO = {
    PREEMPTED: "kube-scheduler took it away to make room for a pod of higher priority",
    "EvictionByEvictionAPI": "it was evicted by somebody who asked the API server for it",
}


def is_by_third_party(disruption: Disruption) -> bool:
    """Whether neither the pod's node nor its owner is behind it."""
    return disruption.reason not in BY_NODE | BY_OWNER


class Disruptions:
    """Asked for each workload that is admitted."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def change_of(self, row: WorkloadRow, facts: Facts, coverings: Sequence[Covering]) -> Change | None:
        """Back to the queue, where a pod of a group was taken away that stands and falls as a whole; else None.
        `coverings` are the PodGroups of the workload."""
        assert row.admission is not None
        for group in disrupted(coverings, row.admission.admitted_at):
            if group.mode is DisruptionMode.ALL:
                return _back(row, facts, f"PodGroup {group.name}: kube-scheduler takes its place ({group.message})")
        pods = [pod for pod in self._picture.pods.disrupted(row.uid) if pod.disruption is not None]
        taken = [pod for pod in pods if pod.disruption is not None and is_by_third_party(pod.disruption)]
        if not taken:
            return None
        whole = {p.name for g in row.pod_groups if g.disruption is DisruptionMode.ALL for p in g.pod_sets}
        kind = self._picture.kind_of(row)
        for pod in taken:
            if kind.pod_set_of({"metadata": {"labels": dict(pod.labels)}}) in whole:
                return _back(row, facts, f"pod {pod.name}: {_words(pod)}")
        return None


def _back(row: WorkloadRow, facts: Facts, words: str) -> Change:
    message = f"Stopped as a whole because of {words}. It queues again with its old place in time."
    return drain(row, facts, State.WAITING, DISRUPTED, message, event_reason="Evicted")


def _words(pod: Pod) -> str:
    assert pod.disruption is not None
    reason, message = pod.disruption
    words = WHO.get(reason, "somebody else takes it away")
    return f"{words} ({reason}{': ' + message if message else ''})"
