"""Kueue's workload slices: a pending workload that stands for a running one at a larger size (kueue.md 2.10).

For the engine that is the running workload itself, which grows: only what is added is asked for, on the same flavors.
Once it is admitted the newer slice is the one that runs, and the older one has finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from queue_manager.engine.decision import Admission
from queue_manager.engine.resize import growth_of
from queue_manager.engine.workload import PodSet, Workload
from queue_manager.simulate.scenario import Job
from queue_manager.simulate.states import Stage


@dataclass(frozen=True, slots=True)
class Slice:
    """`older` runs and grows to the size of `newer`; `workload` and `admission` are what the engine is told of it."""

    older: Job
    newer: Job
    workload: Workload
    admission: Admission


def slices_of(jobs: Iterable[Job]) -> dict[str, Slice]:
    """Slices that wait to replace one that runs in the same queue, by the uid of the older one."""
    by_key = {job.key: job for job in jobs}
    found: dict[str, Slice] = {}
    for _, newer in sorted(by_key.items(), key=lambda item: (item[1].workload.queued, item[0])):
        older = by_key.get(newer.replaces)
        if older is None or older.admission is None or newer.standing.why is not None:
            continue
        if newer.standing.stage is Stage.WAITING and older.workload.namespace == newer.workload.namespace:
            paired = _paired(older, older.admission, newer)
            if paired is not None:
                found.setdefault(older.workload.uid, paired)
    return found


def _paired(older: Job, admission: Admission, newer: Job) -> Slice | None:
    if newer.workload.queue != admission.queue:
        return None
    wanted = {pod_set.name: pod_set for pod_set in newer.workload.pod_sets}
    groups = tuple(
        replace(group, pod_sets=tuple(_resized(p, wanted) for p in group.pod_sets))
        for group in older.workload.pod_groups
    )
    workload = replace(older.workload, pod_groups=groups, priority=newer.workload.priority)
    asked = replace(admission, resize_asked=max(1, newer.workload.queued))
    return Slice(older, newer, workload, asked) if growth_of(workload, asked) is not None else None


def _resized(pod_set: PodSet, wanted: Mapping[str, PodSet]) -> PodSet:
    new = wanted.get(pod_set.name, pod_set)
    return replace(pod_set, count=new.count, reclaimed=new.reclaimed, min_count=None, elastic=True)
