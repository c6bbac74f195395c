"""Kubernetes' priority of pods (issue 5, "Below us"): by it kube-scheduler preempts across all queues, whatever was
admitted. Who could do that to others is told, or (webhook) gets the priority of everybody else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from queue_manager.cluster.port import PRIORITY_CLASSES, Object
from queue_manager.config.compiled import Settings
from queue_manager.engine.workload import PodGroup
from queue_manager.kinds.kind import Lookup
from queue_manager.store.records import WorkloadRow

NEVER = "Never"


@dataclass(frozen=True, slots=True)
class PodPriority:
    """What pods of a priority class get. `name` is "" for pods without one where there is no default."""

    name: str
    value: int
    preempts: bool


def priority_of(name: str, lookup: Lookup) -> PodPriority:
    """The priority of pods whose template names a class; without one that of the global default, else 0. A class that
    is not there counts as 0: its pods would be refused."""
    found = lookup.get(PRIORITY_CLASSES, "", name) if name else _global_default(lookup)
    if found is None:
        return PodPriority(name, 0, preempts=True)
    value, policy = int(found.get("value") or 0), found.get("preemptionPolicy")
    return PodPriority(found["metadata"]["name"], value, preempts=policy != NEVER)


def _global_default(lookup: Lookup) -> Object | None:
    """Where there are several, the API server takes the lowest."""
    found = [item for item in lookup.list(PRIORITY_CLASSES, "") if item.get("globalDefault")]
    return min(found, key=lambda item: (int(item.get("value") or 0), item["metadata"]["name"]), default=None)


def with_priorities(
    groups: tuple[PodGroup, ...], classes: Mapping[str, str], lookup: Lookup
) -> tuple[tuple[PodGroup, ...], tuple[PodPriority, ...]]:
    """The pod groups with the priority of each pod set's pods (`classes`: pod set -> class), and those that preempt."""
    known: dict[str, PodPriority] = {}
    for group in groups:
        for pod_set in group.pod_sets:
            known[pod_set.name] = priority_of(classes.get(pod_set.name, ""), lookup)
    filled = tuple(
        replace(group, pod_sets=tuple(replace(p, pod_priority=known[p.name].value) for p in group.pod_sets))
        for group in groups
    )
    return filled, tuple(found for found in known.values() if found.preempts)


def warning(row: WorkloadRow, preempting: Iterable[PodPriority], lowest: int | None, settings: Settings) -> str:
    """What the user of a job is told whose pods kube-scheduler may let preempt those of others, of which `lowest` is
    the lowest priority; "" if it may not."""
    highest = max(preempting, key=lambda found: found.value, default=None)
    if highest is None or settings.pod_priority == "Ignore":
        return ""
    if lowest is None or highest.value <= lowest:
        return ""
    named = f"priority class {highest.name}" if highest.name else "no priority class"
    message = f"Its pods have {named} and so the priority {highest.value}, those of other jobs {lowest}: kube-scheduler"
    message += (
        " may stop their pods for its own, whatever the queues say. A class with preemptionPolicy: Never does not"
    )
    if settings.pod_priority != "Normalize":
        return message
    if row.kind == "TrainJob":
        return f"{message}. It was not normalised: a TrainJob has no field for it, its runtime's templates decide"
    return f"{message}. It was not normalised: it was created without the webhook, or before that was set"
