"""What the leader sees of the cluster: watch caches of every collection it needs, and the kinds' lookup over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol

from queue_manager.cluster.cache import key_of
from queue_manager.cluster.clock import Clock
from queue_manager.cluster.nodes import project as project_node
from queue_manager.cluster.pods import project as project_pod
from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    CRDS,
    DEVICE_CLASSES,
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    POD_GROUPS_ALPHA,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RUNTIME_CLASSES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    WORKLOADS_ALPHA,
    ApiError,
    Cluster,
    EventType,
    Object,
    Query,
    Resource,
)
from queue_manager.cluster.reflector import Handler, Projection, Reflector
from queue_manager.controller.kueue_signs import KueueSigns
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.plain_shapes import shaped
from queue_manager.kinds.trainer_api import generation

EVERYTHING = Query()
WATCHED: Mapping[Resource, Query] = {
    # Owners before what they own: events that are already there then find their owners.
    CRDS: Query(field_selector="metadata.name=trainjobs.trainer.kubeflow.org"),
    NAMESPACES: EVERYTHING,
    PRIORITY_CLASSES: EVERYTHING,
    RUNTIME_CLASSES: EVERYTHING,
    LIMIT_RANGES: EVERYTHING,
    DEVICE_CLASSES: EVERYTHING,
    RESOURCE_CLAIM_TEMPLATES: EVERYTHING,
    RESOURCE_CLAIMS: EVERYTHING,
    CLUSTER_TRAINING_RUNTIMES: EVERYTHING,
    TRAINING_RUNTIMES: EVERYTHING,
    NODES: EVERYTHING,
    TRAIN_JOBS: EVERYTHING,
    JOB_SETS: EVERYTHING,
    JOBS: EVERYTHING,
    WORKLOADS: EVERYTHING,
    WORKLOADS_ALPHA: EVERYTHING,
    POD_GROUPS: EVERYTHING,
    POD_GROUPS_ALPHA: EVERYTHING,
    PODS: EVERYTHING,
}
"""Every collection the leader watches, and what of it."""

OPTIONAL = frozenset({WORKLOADS, WORKLOADS_ALPHA, POD_GROUPS, POD_GROUPS_ALPHA})
"""What may be missing, or forbidden by rights that were granted to an older version of us."""

PACKED = frozenset({NODES, JOBS, JOB_SETS, TRAIN_JOBS})
"""Of these there are many, and most are not looked at for hours."""

WATCHED_BY_WEBHOOK: Mapping[Resource, Query] = {CRDS: WATCHED[CRDS]}
"""What admission decisions look up: the API's generation. Owners of what is created are read when they are needed."""

SNAPSHOT_SUFFIX = "-runtime-snapshot"
"""Name of Trainer's snapshot ConfigMap after the TrainJob's; it has no label to watch it by: it is read on demand."""


def trim_ended(obj: Object) -> Object:
    """Drops the spec of a job that has ended: thousands of them may lie about, and nothing of it is needed."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if not any(c.get("type") in ("Complete", "Completed", "Failed") and c.get("status") == "True" for c in conditions):
        return obj
    spec = obj.get("spec") or {}
    metadata = {k: v for k, v in obj["metadata"].items() if k != "annotations"}
    return {**obj, "metadata": metadata, "spec": {k: spec[k] for k in ("suspend",) if k in spec}}


def trim_claim(obj: Object) -> Object:
    """Drops what is allocated, and all of a claim that was made for one pod: it is counted by its template."""
    kept = ("apiVersion", "kind", "metadata") if is_of_a_pod(obj) else ("apiVersion", "kind", "metadata", "spec")
    return {name: obj[name] for name in kept if name in obj}


def is_of_a_pod(obj: Object) -> bool:
    """Whether a Pod owns the object."""
    return any(owner.get("kind") == "Pod" for owner in obj["metadata"].get("ownerReferences") or ())


PROJECTIONS: Mapping[Resource, Projection] = {
    RESOURCE_CLAIMS: trim_claim,
    NODES: project_node,
    PODS: lambda pod: shaped(project_pod(pod), pod),
    JOBS: trim_ended,
    JOB_SETS: trim_ended,
}


def version_of(obj: Object) -> int:
    """resourceVersion as a number (comparable by the API's contract since Kubernetes 1.35, in practice always)."""
    text = str(obj["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


class Made(Protocol):
    """A collection that no API server has: its objects are made from others."""

    def by_uid(self, uid: str) -> Object | None:
        """One object by uid; None when absent."""
        ...

    def all(self) -> Iterable[Object]:
        """Every object."""
        ...

    def uids(self) -> Iterable[str]:
        """The uids of all of them, without making them."""
        ...


class ClusterView:
    """Watch caches; implements `kinds.Lookup`. What we wrote is seen at once, not when the watch brings it.

    `kueue_labels` answers `Settings.kueueLabels`; as long as nobody has said it, Kueue's keys are left alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        random: Random,
        on_event: Handler,
        watched: Mapping[Resource, Query] = WATCHED,
    ) -> None:
        self._cluster = cluster
        self._on_event = on_event
        self._own: dict[tuple[Resource, str, str], Object] = {}
        self._snapshots: dict[tuple[str, str], Object] = {}
        self._without: dict[tuple[str, str], tuple[str, str]] = {}
        self._made: dict[Resource, Made] = {}
        self.kueue_labels: Callable[[], str] = lambda: "off"
        self._kueue = KueueSigns(cluster, clock, random, self._event)
        self.reflectors = {
            resource: Reflector(
                cluster,
                resource,
                clock=clock,
                random=random,
                query=query,
                project=PROJECTIONS.get(resource),
                on_event=self._event,
                optional=resource in OPTIONAL,
                packs=resource in PACKED,
            )
            for resource, query in watched.items()
        }

    def add(self, made: Mapping[Resource, Made]) -> None:
        """Collections to be shown beside those of the API server."""
        self._made.update(made)

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())
            group.create_task(self._kueue.run())

    async def synced(self) -> None:
        """Returns once every cache has equalled the server."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        await self._kueue.synced()

    @property
    def kueue_keys(self) -> bool:
        """As in `Lookup.kueue_keys`: asked for, or not forbidden and no Kueue is here whose they are."""
        wish = self.kueue_labels()
        return wish == "on" or (wish == "auto" and not self._kueue.installed)

    def lag(self) -> float:
        """Seconds since the API server last gave a sign of life on the stalest watch."""
        return max(reflector.lag for reflector in self.reflectors.values())

    def _event(self, resource: Resource, event: EventType, new: Object | None, old: Object | None) -> None:
        obj = new or old
        assert obj is not None
        key = (resource, *key_of(obj))
        own = self._own.get(key)
        if own is not None and (event is EventType.DELETED or version_of(obj) >= version_of(own)):
            del self._own[key]
        if event is EventType.DELETED and resource == TRAIN_JOBS:
            self._snapshots.pop(key_of(obj), None)
            self._without.pop(key_of(obj), None)
        self._on_event(resource, event, new, old)

    def observe(self, resource: Resource, obj: Object) -> None:
        """The API server's answer to a write of ours; seen from now on instead of older states."""
        key = (resource, *key_of(obj))
        cached = self.reflectors[resource].cache.get(key[1], key[2])
        if cached is not None and version_of(obj) > version_of(cached):
            self._own[key] = obj

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object; None when absent."""
        if resource == CONFIG_MAPS:
            return self._snapshots.get((namespace, name.removesuffix(SNAPSHOT_SUFFIX)))
        if resource not in self.reflectors:
            return None
        cached = self.reflectors[resource].cache.get(namespace, name)
        own = self._own.get((resource, namespace, name)) if cached is not None else None
        return own or cached

    def by_uid(self, resource: Resource, uid: str) -> Object | None:
        """One object by uid; None when absent."""
        if resource in self._made:
            return self._made[resource].by_uid(uid)
        cached = self.reflectors[resource].cache.by_uid(uid)
        if cached is None:
            return None
        own = self._own.get((resource, *key_of(cached)))
        return own if own is not None and own["metadata"].get("uid") == uid else cached

    def all(self, resource: Resource) -> Iterable[Object]:
        """Every cached object of the collection."""
        if resource in self._made:
            return self._made[resource].all()
        return iter(self.reflectors[resource].cache)

    def uids(self, resource: Resource) -> Iterable[str]:
        """The uids of all objects of the collection."""
        if resource in self._made:
            return self._made[resource].uids()
        return self.reflectors[resource].cache.uids()

    def count(self, resource: Resource) -> int:
        """How many objects the collection has."""
        return len(self.reflectors[resource].cache) if resource in self.reflectors else 0

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """All objects of the collection in the namespace."""
        return self.reflectors[resource].cache.in_namespace(namespace) if resource in self.reflectors else ()

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        """Objects whose controller owner reference has this uid."""
        return self.reflectors[resource].cache.owned_by(uid) if resource in self.reflectors else ()

    def schema(self, resource: Resource) -> Object | None:
        """openAPIV3Schema of the served version of a watched CRD; None when absent."""
        crd = self.reflectors[CRDS].cache.get("", f"{resource.plural}.{resource.group}")
        for version in ((crd or {}).get("spec") or {}).get("versions") or ():
            if version.get("name") == resource.version and version.get("served", True):
                found: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
                return found
        return None

    def lacks_snapshot(self, train_job: Object) -> bool:
        """Whether it is worth asking for Trainer's snapshot: not known, and not asked for in this state of the job."""
        key = key_of(train_job)
        asked = self._without.get(key) == _state_of(train_job)
        return key not in self._snapshots and not asked and self._are_made()

    def drop_snapshot(self, namespace: str, name: str) -> None:
        """The TrainJob is over or gone."""
        self._snapshots.pop((namespace, name), None)
        self._without.pop((namespace, name), None)

    def _are_made(self) -> bool:
        """Whether this Trainer makes snapshots at all."""
        try:
            return generation(self).snapshots
        except Unresolvable:
            return False

    async def read_snapshot(self, train_job: Object, *, ask_again: bool = False) -> bool:
        """Reads Trainer's snapshot of the runtime unless it is known; True when it became known now.

        Asked for once in each state of the job (Trainer writes its status after it made the snapshot), or `ask_again`.
        """
        key = key_of(train_job)
        if key in self._snapshots or not (ask_again or self.lacks_snapshot(train_job)) or not self._are_made():
            return False
        self._without.pop(key, None)
        try:
            found = await self._cluster.get(CONFIG_MAPS, key[0], key[1] + SNAPSHOT_SUFFIX)
        except ApiError as error:
            if not (error.not_found or error.status == 403):
                raise
            self._without[key] = _state_of(train_job)
            return False
        owners = found["metadata"].get("ownerReferences") or ()
        if not any(owner.get("uid") == train_job["metadata"]["uid"] for owner in owners):
            self._without[key] = _state_of(train_job)
            return False
        self._snapshots[key] = found
        return True


def _state_of(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("uid", ""), metadata.get("resourceVersion", "")
