"""Elastic workloads: what grows while it runs asks its queue for the pods it lacks, and runs on meanwhile.

The pods that are lacking wait as a workload of their own, the **growth**: in the same queue, with the same priority and
the time at which the larger size was first asked for. It takes the flavors that the running pods have, in the domain in
which they have to lie, and is admitted whole or not at all; then it becomes one with the workload. It may preempt as
any workload of its queue; it never evicts the workload that grows. (Kueue: workload slices, kueue.md 2.10.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.quantities import added
from queue_manager.engine.ranks import DomainValues, joined, kept
from queue_manager.engine.workload import PodSet, Workload

if TYPE_CHECKING:
    from queue_manager.engine.prepared import Need, Prepared

SUFFIX = "+resize"


def growth_uid(uid: str) -> str:
    """The uid under which what a workload lacks waits."""
    return uid + SUFFIX


def owner_uid(uid: str) -> str:
    """The workload that a uid speaks of: itself, or the one that grows."""
    return uid.removesuffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class Size:
    """Pods of one pod set: its whole `size`, those still `wanted` (not finished), those `admitted` with what was on
    loan then."""

    size: int
    wanted: int
    admitted: int

    @property
    def lacking(self) -> int:
        """Pods that are wanted and not admitted."""
        return max(0, self.wanted - self.admitted)


def sizes(pod_sets: Iterable[PodSet], admission: Admission) -> dict[str, Size]:
    """The size of each admitted pod set. Pods that have finished are part of it, and are never asked for again."""
    wanted = {pod_set.name: pod_set for pod_set in pod_sets}
    found = {}
    for assigned in admission.pod_sets:
        pod_set = wanted.get(assigned.name)
        admitted = assigned.count + assigned.reclaimed
        if pod_set is None:
            found[assigned.name] = Size(admitted, admitted, admitted)
        else:
            found[assigned.name] = Size(pod_set.count, pod_set.count - pod_set.reclaimed, admitted)
    return found


def running_pods(pod_set: PodSet | None, assigned: PodSetAssignment) -> int:
    """Pods of a pod set that count now: those admitted, less what was reclaimed since, more what came back since."""
    total = assigned.count + assigned.reclaimed
    lent = assigned.reclaimed if pod_set is None else pod_set.reclaimed
    if pod_set is not None and pod_set.elastic:
        # Finished pods are taken off the size that is wanted, which may be above the one admitted.
        lent = max(0, lent - max(0, pod_set.count - total))
    return max(0, total - lent)


def growth_of(workload: Workload, admission: Admission) -> Workload | None:
    """What a running elastic workload lacks, None when it lacks nothing."""
    elastic = {pod_set.name for pod_set in workload.pod_sets if pod_set.elastic}
    lacking = {
        n: size.lacking for n, size in sizes(workload.pod_sets, admission).items() if n in elastic and size.lacking
    }
    if not lacking:
        return None
    assigned = {pod_set.name: pod_set for pod_set in admission.pod_sets}
    groups = tuple(
        replace(group, minimum=None, pod_sets=found)
        for group in workload.pod_groups
        if (found := tuple(_lacking(p, lacking[p.name], assigned[p.name]) for p in group.pod_sets if p.name in lacking))
    )
    return replace(
        workload,
        uid=growth_uid(workload.uid),
        queue=admission.queue,
        created=admission.resize_asked or workload.created,
        pod_groups=groups,
        requeued=0,
        not_before=0,
        max_run_time=0,
        resizes=workload.uid,
    )


def _lacking(pod_set: PodSet, count: int, assigned: PodSetAssignment) -> PodSet:
    """Claims that pods share are charged already; the template says where the pods have to lie."""
    return replace(
        pod_set,
        count=count,
        reclaimed=0,
        min_count=None,
        elastic=False,
        node_selector={**pod_set.node_selector, **assigned.selector},
        devices=replace(pod_set.devices, shared=()) if pod_set.devices.shared else pod_set.devices,
    )


def pinned(prepared: Prepared, admission: Admission) -> Prepared:
    """What a growth asks of its queue: of each need only the flavor that the running pods have."""
    assigned = {pod_set.name: pod_set.flavors for pod_set in admission.pod_sets}
    names = [pod_set.name for pod_set in prepared.ask.pod_sets]
    return replace(prepared, needs=tuple(_pinned(need, names, assigned) for need in prepared.needs))


def _pinned(need: Need, names: list[str], assigned: Mapping[str, Mapping[str, str]]) -> Need:
    taken = {
        flavor
        for index in need.pod_sets
        for resource in need.resources
        if (flavor := assigned[names[index]].get(resource)) is not None
    }
    return replace(need, options=tuple(o for o in need.options if o.flavor in taken)) if taken else need


def grown(admission: Admission, growth: Admission) -> Admission:
    """The admission of a workload together with what it lacked."""
    more = {pod_set.name: pod_set for pod_set in growth.pod_sets}
    return replace(
        admission,
        pod_sets=tuple(_grown(p, more[p.name]) if p.name in more else p for p in admission.pod_sets),
        charge=added(admission.charge, growth.charge),
        resize_asked=0,
    )


def _grown(assigned: PodSetAssignment, more: PodSetAssignment) -> PodSetAssignment:
    """The pods that are added have the ranks after those that are there."""
    domains = assigned.domains
    if domains is not None and more.domains is not None:
        domains = joined([*domains, *more.domains])
    flavors = {**more.flavors, **assigned.flavors}
    return replace(assigned, count=assigned.count + more.count, flavors=flavors, domains=domains)


def shrunk(
    admission: Admission, counts: Mapping[str, int], bound: Mapping[str, Mapping[DomainValues, int]]
) -> Admission:
    """The admission with fewer pods (pod set -> pods, those on loan at admission included); its charge is not set anew.

    Places are kept where pods are `bound` (pod set -> domain -> pods), then those of the lowest ranks.
    """
    pod_sets = []
    for assigned in admission.pod_sets:
        total = min(counts.get(assigned.name, assigned.count + assigned.reclaimed), assigned.count + assigned.reclaimed)
        count = min(assigned.count, total)
        domains = assigned.domains
        if domains is not None:
            domains = kept(domains, count, bound.get(assigned.name, {}))
        pod_sets.append(replace(assigned, count=count, reclaimed=total - count, domains=domains))
    return replace(admission, pod_sets=tuple(pod_sets))
