"""What a webhook process of its own watches: owners of children, and the CRD that tells the API of TrainJobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import CRDS, JOB_SETS, JOBS, TRAIN_JOBS, Cluster, Object, Query, Resource
from queue_manager.cluster.reflector import Projection, Reflector

KEPT = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")


def identity_only(obj: Object) -> Object:
    """Who an object is; nothing of what it wants."""
    return {"metadata": {key: value for key, value in obj["metadata"].items() if key in KEPT}}


WATCHED: Mapping[Resource, tuple[Query, Projection | None]] = {
    CRDS: (Query(field_selector=f"metadata.name={TRAIN_JOBS.plural}.{TRAIN_JOBS.group}"), None),
    TRAIN_JOBS: (Query(), identity_only),
    JOB_SETS: (Query(), identity_only),
    JOBS: (Query(), identity_only),
}


class WatchedLookup:
    """`kinds.Lookup` over watch caches; everything that is not watched is absent."""

    def __init__(self, cluster: Cluster, clock: Clock, random: Random) -> None:
        self._reflectors = {
            resource: Reflector(cluster, resource, clock=clock, random=random, query=query, project=project)
            for resource, (query, project) in WATCHED.items()
        }

    @property
    def synced(self) -> bool:
        """Whether every cache has equalled the server once."""
        return all(reflector.synced.is_set() for reflector in self._reflectors.values())

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """See Lookup."""
        reflector = self._reflectors.get(resource)
        return reflector.cache.get(namespace, name) if reflector else None

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """See Lookup."""
        reflector = self._reflectors.get(resource)
        return reflector.cache.in_namespace(namespace) if reflector else []

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        """See Lookup."""
        reflector = self._reflectors.get(resource)
        return reflector.cache.owned_by(uid) if reflector else []

    def schema(self, resource: Resource) -> Object | None:
        """See Lookup."""
        crd = self._reflectors[CRDS].cache.get("", f"{resource.plural}.{resource.group}") or {}
        for version in (crd.get("spec") or {}).get("versions") or ():
            if version.get("name") == resource.version and version.get("served", True):
                found: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
                return found
        return None
