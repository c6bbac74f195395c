"""Finds the PodGroups that belong to a workload: by the owner chain, by controllerRef and workloadRef, by the name that
pods carry; never by how a controller may form names (reference/workloads.md, 1.8 and 5).

Nothing is remembered of an object that is gone: a controller may delete its groups when it suspends, and make others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.clock import parse_rfc3339
from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import (
    JOB_SETS,
    JOBS,
    POD_GROUPS,
    POD_GROUPS_ALPHA,
    PODS,
    WORKLOADS,
    WORKLOADS_ALPHA,
    EventType,
    Object,
    Resource,
)
from queue_manager.controller.drain import children
from queue_manager.controller.owners import Owners
from queue_manager.controller.view import ClusterView
from queue_manager.engine.workload import DisruptionMode
from queue_manager.kinds.batch_job import POD_SET
from queue_manager.kinds.kind import Kind
from queue_manager.kinds.kubernetes_groups import (
    Covering,
    controller_reference,
    group_name,
    read_group,
    workload_of,
)
from queue_manager.kinds.names import REPLICATED_JOB_NAME

VERSIONS = ((POD_GROUPS, WORKLOADS), (POD_GROUPS_ALPHA, WORKLOADS_ALPHA))
"""The newest first: an API server serves one of them, or none."""
GROUPS = tuple(groups for groups, _ in VERSIONS)
OBJECTS = frozenset(resource for pair in VERSIONS for resource in pair)

Reference = tuple[str, str, str, str]
"""Namespace, API group, kind and name."""


@dataclass(frozen=True, slots=True)
class Disrupted:
    """A PodGroup of which kube-scheduler takes pods away for others: its pod sets, what it is to become, and why."""

    name: str
    pod_sets: tuple[str, ...]
    mode: DisruptionMode
    message: str


class KubernetesGroups:
    """Looks PodGroups up in the caches; keeps an index of what refers to what by name."""

    def __init__(self, view: ClusterView, owners: Owners) -> None:
        self._view = view
        self._owners = owners
        self._workloads: dict[Reference, dict[tuple[Resource, str], None]] = {}
        self._of_workload: dict[tuple[Resource, str, str], dict[str, None]] = {}

    def note(self, resource: Resource, kind: EventType, obj: Object, old: Object | None) -> str:
        """A watch event about a Workload or a PodGroup; answers the uid of the job at the top, "" if nobody knows."""
        if old is not None:
            self._index(resource, old, there=False)
        if kind is not EventType.DELETED:
            self._index(resource, obj, there=True)
        return self._root(resource, obj)

    def of(self, uid: str, obj: Object, kind: Kind) -> tuple[Covering, ...]:
        """The PodGroups of a job, with the pod sets that their pods are of (none while nothing names them)."""
        resource = next((groups for groups in GROUPS if self._view.count(groups)), None)
        if resource is None:
            return ()
        chain = {uid: (kind.resource, obj)}
        for child in children(uid, self._view):
            chain[child["metadata"]["uid"]] = (JOB_SETS if child["kind"] == JOB_SETS.kind else JOBS, child)
        namespace = obj["metadata"].get("namespace", "")
        users = self._users(chain, kind)
        found = {group["metadata"]["uid"]: group for group in self._owned(resource, chain)}
        for name in users:
            group = self._view.get(resource, namespace, name)
            if group is not None and controller_of(group) is None:
                found[group["metadata"]["uid"]] = group
        named = {pod_set for pod_sets in users.values() for pod_set in pod_sets}
        for group in found.values():
            owner = controller_of(group)
            resource_of, job = chain.get(owner["uid"] if owner else "", (kind.resource, None))
            # A Job's own group, as long as no pod says which one it is in.
            if job is not None and resource_of == JOBS and _pod_set(job, kind) not in named:
                users.setdefault(group["metadata"]["name"], {})[_pod_set(job, kind)] = None
        alive = [group for group in found.values() if not is_leaving(group)]
        priorities = self._priorities(chain)
        coverings = [
            Covering(
                tuple(users.get(g["metadata"]["name"], ())),
                read_group(g),
                False,
                priorities.get(g["metadata"]["name"], ()),
            )
            for g in alive
        ]
        return _told_apart(sorted(coverings, key=lambda covering: covering.group.name))

    # --- which objects

    def _owned(self, resource: Resource, chain: dict[str, tuple[Resource, Object]]) -> Iterator[Object]:
        """PodGroups that objects of the chain control, and those of Workloads that stand for one of them."""
        workloads = dict(VERSIONS)[resource]
        for uid, (owner, obj) in chain.items():
            yield from self._view.owned_by(resource, uid)
            meta = obj["metadata"]
            reference = (meta.get("namespace", ""), owner.group, owner.kind, meta["name"])
            for version, name in self._workloads.get(reference, ()):
                workload = self._view.get(workloads, reference[0], name)
                if version != workloads or workload is None or _is_others(workload, owner.kind, meta["name"], uid):
                    continue
                for group_key in self._of_workload.get((resource, reference[0], name), ()):
                    group = self._view.get(resource, reference[0], group_key)
                    if group is not None and self._is_of(group, workload, chain):
                        yield group

    @staticmethod
    def _is_of(group: Object, workload: Object, chain: dict[str, tuple[Resource, Object]]) -> bool:
        """Whether it is of this very Workload, and nobody else's: both may be left from an earlier start."""
        owner = controller_of(group)
        meta = workload["metadata"]
        return (owner is None or owner["uid"] in chain) and not _is_others(group, "Workload", meta["name"], meta["uid"])

    def _users(self, chain: dict[str, tuple[Resource, Object]], kind: Kind) -> dict[str, dict[str, None]]:
        """Name of a PodGroup -> the pod sets whose templates, or pods, name it."""
        users: dict[str, dict[str, None]] = {}

        def use(name: str, pod_set: str) -> None:
            if name and pod_set:
                users.setdefault(name, {})[pod_set] = None

        for uid, (resource, obj) in chain.items():
            spec = obj.get("spec") or {}
            if resource == JOB_SETS:
                for job in spec.get("replicatedJobs") or ():
                    template = ((job.get("template") or {}).get("spec") or {}).get("template")
                    use(group_name(template), str(job.get("name") or ""))
            elif resource == JOBS:
                use(group_name(spec.get("template")), _pod_set(obj, kind))
                # All pods of a Job are made from one template, whatever is put into it on the way.
                pod = next(iter(self._view.owned_by(PODS, uid)), None)
                use(group_name(pod), _pod_set(obj, kind))
        return users

    def _priorities(self, chain: dict[str, tuple[Resource, Object]]) -> dict[str, tuple[int, ...]]:
        """Name of a PodGroup -> the priorities of pods that name it; those of one Job are equal."""
        found: dict[str, set[int]] = {}
        for uid, (resource, _) in chain.items():
            pod = next(iter(self._view.owned_by(PODS, uid)), None) if resource == JOBS else None
            if pod is not None and (name := group_name(pod)):
                found.setdefault(name, set()).add(int((pod.get("spec") or {}).get("priority") or 0))
        return {name: tuple(sorted(values)) for name, values in found.items()}

    # --- whose they are

    def _root(self, resource: Resource, obj: Object) -> str:
        owner = controller_of(obj)
        if owner is not None:
            return self._owners.root(owner["uid"])
        namespace = obj["metadata"].get("namespace", "")
        if resource in GROUPS:
            workload = self._view.get(dict(VERSIONS)[resource], namespace, workload_of(obj))
            if workload is None:
                return ""
            obj = workload
            if (owner := controller_of(obj)) is not None:
                return self._owners.root(owner["uid"])
        group, name_of_kind, name = controller_reference(obj)
        for watched in self._view.reflectors:
            if (watched.group, watched.kind) == (group, name_of_kind):
                found = self._view.get(watched, namespace, name)
                return self._owners.root(found["metadata"]["uid"]) if found is not None else ""
        return ""

    def _index(self, resource: Resource, obj: Object, *, there: bool) -> None:
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        if resource in GROUPS:
            if workload := workload_of(obj):
                _mark(self._of_workload, (resource, namespace, workload), name, there)
        else:
            _mark(self._workloads, (namespace, *controller_reference(obj)), (resource, name), there)


def disrupted(coverings: Sequence[Covering], since: datetime) -> tuple[Disrupted, ...]:
    """Those PodGroups that became a DisruptionTarget since then (to the second)."""
    return tuple(
        Disrupted(covering.group.name, covering.pod_sets, covering.group.disruption, covering.group.disrupted)
        for covering in coverings
        if covering.group.disrupted_at and parse_rfc3339(covering.group.disrupted_at) >= since.replace(microsecond=0)
    )


K = TypeVar("K")
V = TypeVar("V")


def _mark(index: dict[K, dict[V, None]], key: K, value: V, there: bool) -> None:
    if there:
        index.setdefault(key, {})[value] = None
        return
    values = index.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del index[key]


def _is_others(obj: Object, kind: str, name: str, uid: str) -> bool:
    """Whether it belongs to another object of that kind and name, one that was there before."""
    owners = obj["metadata"].get("ownerReferences") or ()
    same = [owner for owner in owners if owner.get("kind") == kind and owner.get("name") == name]
    return bool(same) and all(owner.get("uid") != uid for owner in same)


def _pod_set(job: Object, kind: Kind) -> str:
    if kind.resource == JOBS:
        return POD_SET
    return str((job["metadata"].get("labels") or {}).get(REPLICATED_JOB_NAME) or "")


def _told_apart(coverings: list[Covering]) -> tuple[Covering, ...]:
    """Several groups of one pod set are those of its child Jobs."""
    count: dict[str, int] = {}
    for covering in coverings:
        for name in covering.pod_sets:
            count[name] = count.get(name, 0) + 1
    return tuple(replace(c, each=any(count[name] > 1 for name in c.pod_sets)) for c in coverings)
