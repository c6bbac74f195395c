"""Pods that must not run before they are admitted: those of elastic jobs are made with a gate, which we take away.

The gate is put into the pod template when the job starts, for the template of a running job can't be changed. From then
on its controller may make pods as it likes: as many as are admitted are let through to the scheduler, at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_manager.cluster.pods import is_gone
from queue_manager.cluster.port import PODS, Object
from queue_manager.kinds.kind import PREFIX, Write
from queue_manager.kinds.patches import remove, test, write

GATE = PREFIX + "elastic"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


def is_held_back(pod: Object) -> bool:
    """Whether our gate keeps a pod from the scheduler."""
    return _place_of_gate(pod) is not None


def let_through(pods: Iterable[Object], known: Iterable[str] = ()) -> list[Object]:
    """Pods that have not ended and that nothing of ours holds back any more; `known` are uids of pods that we have let
    through, whatever the caches say."""
    seen = set(known)
    return [pod for pod in pods if not is_gone(pod) and (pod["metadata"]["uid"] in seen or not is_held_back(pod))]


def releases(pods: Sequence[Object], admitted: int, known: Iterable[str] = ()) -> list[Write]:
    """The writes that let pods through until `admitted` of them are: the lowest index, then the oldest, first."""
    passed = {pod["metadata"]["uid"] for pod in let_through(pods, known)}
    waiting = [
        pod
        for pod in pods
        if not is_gone(pod) and pod["metadata"]["uid"] not in passed and not pod["metadata"].get("deletionTimestamp")
    ]
    waiting.sort(key=_order)
    return [_release(pod) for pod in waiting[: max(0, admitted - len(passed))]]


def _order(pod: Object) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    index = (metadata.get("labels") or {}).get(INDEX_LABEL, "")
    number = int(index) if index.isdecimal() else 0
    return (number, str(metadata.get("creationTimestamp", "")), str(metadata.get("name", "")))


def _release(pod: Object) -> Write:
    place = _place_of_gate(pod)
    assert place is not None
    path = ("spec", "schedulingGates", place)
    operations = [test(pod["metadata"]["uid"], "metadata", "uid"), test(GATE, *path, "name"), remove(*path)]
    return write(pod, PODS, operations, "lets an admitted pod through")


def _place_of_gate(pod: Object) -> int | None:
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return next((index for index, gate in enumerate(gates) if gate.get("name") == GATE), None)
