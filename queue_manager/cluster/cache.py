"""Objects of one collection by name, uid, owner and namespace."""

from __future__ import annotations

from collections.abc import Iterator

from queue_manager.cluster.port import Object

Key = tuple[str, str]
"""(namespace, name); namespace is "" for cluster scope."""


def key_of(obj: Object) -> Key:
    """Namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def controller_of(obj: Object) -> Object | None:
    """The owner reference with `controller: true`, if any."""
    reference: Object
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference
    return None


class Cache:
    """What a reflector knows. Lists come in the order in which the objects were first seen."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._by_uid: dict[str, Key] = {}
        # Dicts as ordered sets: the order of answers must not depend on hashing.
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._by_namespace: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def keys(self) -> list[Key]:
        """All keys."""
        return list(self._objects)

    def get(self, namespace: str, name: str) -> Object | None:
        """One object by name."""
        return self._objects.get((namespace, name))

    def by_uid(self, uid: str) -> Object | None:
        """One object by uid."""
        key = self._by_uid.get(uid)
        return self._objects[key] if key is not None else None

    def owned_by(self, uid: str) -> list[Object]:
        """Objects whose controller owner reference has this uid."""
        return [self._objects[key] for key in self._by_owner.get(uid, ())]

    def in_namespace(self, namespace: str) -> list[Object]:
        """Objects of one namespace."""
        return [self._objects[key] for key in self._by_namespace.get(namespace, ())]

    def put(self, obj: Object) -> Object | None:
        """Stores the object and answers what it replaces."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = obj
        self._by_uid[obj["metadata"].get("uid", "")] = key
        self._by_namespace.setdefault(key[0], {})[key] = None
        if (owner := controller_of(obj)) is not None:
            self._by_owner.setdefault(owner["uid"], {})[key] = None
        return old

    def remove(self, key: Key) -> Object | None:
        """Forgets the object and answers it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            _discard(self._by_namespace, key[0], key)
        return old

    def _unindex(self, key: Key, old: Object) -> None:
        self._by_uid.pop(old["metadata"].get("uid", ""), None)
        if (owner := controller_of(old)) is not None:
            _discard(self._by_owner, owner["uid"], key)


def _discard(index: dict[str, dict[Key, None]], value: str, key: Key) -> None:
    keys = index.get(value)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[value]
