"""The simulated etcd with its watch cache: versions, history, watchers. Stored objects are never changed in place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from queue_manager.cluster.cache import Key, key_of
from queue_manager.cluster.port import ApiError, EventType, Object, Resource, WatchEvent
from queue_manager.cluster.simulated.selectors import Matcher


class Change(NamedTuple):
    """One committed write. `new` is the last state for DELETED."""

    version: int
    resource: Resource
    type: EventType
    new: Object
    old: Object | None


Listener = Callable[[Change], None]


class Watcher:
    """One open watch: events wait in `events` until the stream takes them; `ended` closes it."""

    def __init__(self, matches: Matcher) -> None:
        self.events: deque[WatchEvent] = deque()
        self.wake = asyncio.Event()
        self.ended = False
        self._matches = matches

    def offer(self, change: Change) -> None:
        """Takes the change as this watch sees it: entering the selection is an addition, leaving it a deletion."""
        is_in = self._matches(change.new)
        was_in = change.old is not None and self._matches(change.old)
        if change.type is EventType.DELETED:
            kind = EventType.DELETED if was_in or is_in else None
        elif is_in:
            kind = EventType.MODIFIED if was_in else EventType.ADDED
        else:
            kind = EventType.DELETED if was_in else None
        if kind is not None:
            self.push(WatchEvent(kind, change.new))

    def push(self, event: WatchEvent) -> None:
        """Queues an event for the stream."""
        self.events.append(event)
        self.wake.set()

    def end(self) -> None:
        """The server ends the watch after what is queued."""
        self.ended = True
        self.wake.set()


class Storage:
    """All collections. `version` is the resourceVersion of the newest write."""

    def __init__(self, history: int = 10_000) -> None:
        self.version = 1
        self._history_limit = history
        self._collections: dict[Resource, dict[Key, Object]] = {}
        self._history: dict[Resource, deque[Change]] = {}
        self._forgotten: dict[Resource, int] = {}
        self._watchers: dict[Resource, list[Watcher]] = {}
        self._listeners: list[Listener] = []
        self._by_uid: dict[str, tuple[Resource, Key]] = {}
        self._dependents: dict[str, dict[tuple[Resource, Key], None]] = {}

    def listen(self, listener: Listener) -> None:
        """Calls `listener` after every write, in order."""
        self._listeners.append(listener)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The stored object."""
        return self._collections.get(resource, {}).get((namespace, name))

    def all(self, resource: Resource) -> list[Object]:
        """The collection, oldest objects first."""
        return list(self._collections.get(resource, {}).values())

    def resources(self) -> list[Resource]:
        """Collections that ever held something."""
        return list(self._collections)

    def by_uid(self, uid: str) -> tuple[Resource, Object] | None:
        """The object with this uid."""
        place = self._by_uid.get(uid)
        return (place[0], self._collections[place[0]][place[1]]) if place else None

    def dependents(self, uid: str) -> list[tuple[Resource, Object]]:
        """Objects with an owner reference to this uid."""
        return [(place[0], self._collections[place[0]][place[1]]) for place in self._dependents.get(uid, ())]

    def put(self, resource: Resource, obj: Object) -> Object:
        """Stores a new state; answers it with its new resourceVersion."""
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        key = key_of(stored)
        collection = self._collections.setdefault(resource, {})
        old = collection.get(key)
        collection[key] = stored
        if old is None or old["metadata"].get("ownerReferences") != stored["metadata"].get("ownerReferences"):
            self._reindex(resource, key, old, stored)
        kind = EventType.MODIFIED if old is not None else EventType.ADDED
        self._commit(Change(self.version, resource, kind, stored, old))
        return stored

    def remove(self, resource: Resource, namespace: str, name: str) -> Object:
        """Removes the object for good; answers its last state with the version of the removal."""
        self.version += 1
        old = self._collections[resource].pop((namespace, name))
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._reindex(resource, (namespace, name), old, None)
        self._commit(Change(self.version, resource, EventType.DELETED, last, old))
        return last

    def open(self, resource: Resource, version: str, matches: Matcher) -> Watcher:
        """A watch of what comes after `version`; "" and "0" begin with the present objects as additions."""
        watcher = Watcher(matches)
        if version in ("", "0"):
            for obj in self.all(resource):
                if matches(obj):
                    watcher.push(WatchEvent(EventType.ADDED, obj))
        else:
            since = int(version)
            if since < self._forgotten.get(resource, 0):
                raise ApiError(410, "Expired", f"too old resource version: {version} ({self._forgotten[resource]})")
            for change in self._history.get(resource, ()):
                if change.version > since:
                    watcher.offer(change)
        self._watchers.setdefault(resource, []).append(watcher)
        return watcher

    def close(self, resource: Resource, watcher: Watcher) -> None:
        """Forgets a watch."""
        watchers = self._watchers.get(resource, [])
        if watcher in watchers:
            watchers.remove(watcher)

    def end_watches(self, resource: Resource) -> None:
        """Ends every watch of the collection (its definition went away, the server restarts)."""
        for watcher in self._watchers.get(resource, []):
            watcher.end()

    def compact(self) -> None:
        """Forgets the history: a watch from before now gets 410."""
        for resource in self._collections:
            self._history.pop(resource, None)
            self._forgotten[resource] = self.version

    def _commit(self, change: Change) -> None:
        history = self._history.setdefault(change.resource, deque())
        history.append(change)
        if len(history) > self._history_limit:
            self._forgotten[change.resource] = history.popleft().version
        for watcher in self._watchers.get(change.resource, ()):
            watcher.offer(change)
        for listener in self._listeners:
            listener(change)

    def _reindex(self, resource: Resource, key: Key, old: Object | None, new: Object | None) -> None:
        place = (resource, key)
        if old is not None:
            self._by_uid.pop(old["metadata"]["uid"], None)
            for reference in old["metadata"].get("ownerReferences") or ():
                dependents = self._dependents.get(reference["uid"], {})
                dependents.pop(place, None)
                if not dependents:
                    self._dependents.pop(reference["uid"], None)
        if new is not None:
            self._by_uid[new["metadata"]["uid"]] = place
            for reference in new["metadata"].get("ownerReferences") or ():
                self._dependents.setdefault(reference["uid"], {})[place] = None
