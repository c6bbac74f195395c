"""Pods that must not run before they are told where, or at all: they are made with a gate, which we take away.

The gate is put into the pod template when the job starts, for the template of a running job can't be changed. From then
on its controller may make pods as it likes, at any time: each is let through to the scheduler when its turn has come.
Two gates: pods of an elastic job run as many as are admitted, pods of a pinned pod set go to the place of their rank.

A third one stands in plain pods themselves, from whoever makes them: there is no job that could be suspended, so each
waits there until its group is admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from queue_manager.cluster.pods import is_gone, is_leaving
from queue_manager.cluster.port import PODS, Object
from queue_manager.kinds.kind import NOTHING, PREFIX, Additions, Write
from queue_manager.kinds.patches import Operation, put, remove, test, unchanged, write

GATE = PREFIX + "elastic"
TOPOLOGY_GATE = PREFIX + "topology"
ADMISSION_GATE = PREFIX + "admission"
GATES = (GATE, TOPOLOGY_GATE, ADMISSION_GATE)
SLOT = PREFIX + "slot"
"""Annotation of a pod that was let through to the place of a slot: its number."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


def is_held_back(pod: Object) -> bool:
    """Whether a gate of ours keeps a pod from the scheduler."""
    return any(gate.get("name") in GATES for gate in _gates(pod))


def awaits_admission(pod: Object) -> bool:
    """Whether a plain pod waits for the admission of its group."""
    return any(gate.get("name") == ADMISSION_GATE for gate in _gates(pod))


def let_through(pods: Iterable[Object], known: Iterable[str] = ()) -> list[Object]:
    """Pods that have not ended and that nothing of ours holds back any more; `known` are uids of pods that we have let
    through, whatever the caches say."""
    seen = set(known)
    return [pod for pod in pods if not is_gone(pod) and (pod["metadata"]["uid"] in seen or not is_held_back(pod))]


def next_ones(pods: Sequence[Object], admitted: int, known: Iterable[str] = ()) -> list[Object]:
    """The pods to be let through until `admitted` of them are: the lowest index, then the oldest, first."""
    passed = {pod["metadata"]["uid"] for pod in let_through(pods, known)}
    waiting = [pod for pod in pods if not is_gone(pod) and pod["metadata"]["uid"] not in passed and not is_leaving(pod)]
    waiting.sort(key=_order)
    return waiting[: max(0, admitted - len(passed))]


def release(pod: Object, more: Additions = NOTHING) -> Write:
    """The write that gives a pod what it lacks and takes our gates off it."""
    operations = [test(pod["metadata"]["uid"], "metadata", "uid"), *(unchanged(pod) if more != NOTHING else ())]
    operations += [*_annotate(pod, more.annotations), *more.operations, *_without_gates(pod)]
    return write(pod, PODS, operations, "lets an admitted pod through")


def release_to(pod: Object, slot: int, affinity: Any, more: Additions = NOTHING) -> Write:
    """The one write that tells a pod where it has to go and takes our gates off it. `affinity` is its whole affinity
    then; what else happened to the pod since we saw it must not be lost, so the write holds for this version only."""
    operations = [test(pod["metadata"]["uid"], "metadata", "uid"), *unchanged(pod)]
    operations += _annotate(pod, {SLOT: str(slot), **more.annotations})
    operations += [*more.operations, put(affinity, "spec", "affinity"), *_without_gates(pod)]
    return write(pod, PODS, operations, f"lets an admitted pod through to the place of slot {slot}")


def _annotate(pod: Object, values: Mapping[str, str]) -> list[Operation]:
    if "annotations" in pod["metadata"]:
        return [put(value, "metadata", "annotations", key) for key, value in values.items()]
    return [put(dict(values), "metadata", "annotations")] if values else []


def _gates(pod: Object) -> Sequence[Object]:
    return (pod.get("spec") or {}).get("schedulingGates") or ()


def _without_gates(pod: Object) -> list[Operation]:
    operations: list[Operation] = []
    ours = [(place, gate["name"]) for place, gate in enumerate(_gates(pod)) if gate.get("name") in GATES]
    for place, name in reversed(ours):
        operations += [test(name, "spec", "schedulingGates", place, "name"), remove("spec", "schedulingGates", place)]
    return operations


def _order(pod: Object) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    index = (metadata.get("labels") or {}).get(INDEX_LABEL, "")
    number = int(index) if index.isdecimal() else 0
    return (number, str(metadata.get("creationTimestamp", "")), str(metadata.get("name", "")))
