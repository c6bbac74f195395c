"""The garbage collector and the namespace controller."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.cluster.cache import key_of
from queue_manager.cluster.port import NAMESPACES, EventType, Object, Resource
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.deletion import FOREGROUND, ORPHAN
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import unversioned, without_finalizer
from queue_manager.cluster.simulated.storage import Change

_MANAGER = "kube-controller-manager"


class GarbageCollector:
    """Deletes what lost all its owners, foreground and background, and the contents of deleted namespaces."""

    def __init__(self, api: ApiState) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterable[Key]:
        """Owners that go, dependents without an owner, and owners that wait for a dependent."""
        metadata = change.new["metadata"]
        if change.type is EventType.DELETED:
            yield ("owner", metadata["uid"])
            for reference in metadata.get("ownerReferences") or ():
                yield ("owner", reference["uid"])
        elif metadata.get("deletionTimestamp"):
            yield ("namespace", metadata["name"]) if change.resource == NAMESPACES else ("owner", metadata["uid"])
        elif change.type is EventType.ADDED and metadata.get("ownerReferences"):
            for reference in metadata["ownerReferences"]:
                if self._api.storage.by_uid(reference["uid"]) is None:
                    yield ("owner", reference["uid"])

    def reconcile(self, key: Key) -> float | None:
        """Follows one owner or empties one namespace."""
        if key[0] == "namespace":
            self._empty(key[1])
            return None
        found = self._api.storage.by_uid(key[1])
        dependents = self._api.storage.dependents(key[1])
        if found is None:
            for resource, dependent in dependents:
                self._orphaned(resource, dependent)
            return None
        resource, owner = found
        finalizers = owner["metadata"].get("finalizers") or ()
        if not owner["metadata"].get("deletionTimestamp"):
            return None
        if ORPHAN in finalizers:
            for kind, dependent in dependents:
                self._disown(kind, dependent, key[1])
            self._api.update(resource, owner, without_finalizer(owner, ORPHAN), manager=_MANAGER)
        elif FOREGROUND in finalizers:
            for kind, dependent in dependents:
                self._delete(kind, dependent, "Foreground")
            if not self._api.storage.dependents(key[1]):
                latest = self._api.storage.by_uid(key[1])
                if latest is not None:
                    self._api.update(resource, latest[1], without_finalizer(latest[1], FOREGROUND), manager=_MANAGER)
        return None

    def _orphaned(self, resource: Resource, dependent: Object) -> None:
        references = dependent["metadata"].get("ownerReferences") or ()
        if not any(self._api.storage.by_uid(reference["uid"]) for reference in references):
            self._delete(resource, dependent, "Background")

    def _disown(self, resource: Resource, dependent: Object, uid: str) -> None:
        metadata = dict(unversioned(dependent)["metadata"])
        metadata["ownerReferences"] = [r for r in metadata["ownerReferences"] if r["uid"] != uid]
        self._api.update(resource, dependent, {**dependent, "metadata": metadata}, manager=_MANAGER)

    def _delete(self, resource: Resource, obj: Object, propagation: str) -> None:
        if not obj["metadata"].get("deletionTimestamp"):
            self._api.delete(resource, *key_of(obj), propagation=propagation)

    def _empty(self, namespace: str) -> None:
        for resource in self._api.storage.resources():
            if resource.namespaced:
                for obj in self._api.storage.all(resource):
                    if obj["metadata"]["namespace"] == namespace:
                        self._delete(resource, obj, "Background")
