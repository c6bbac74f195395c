"""Objects of one collection by name, uid, owner and namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern
from typing import Any

import msgspec

from queue_manager.cluster.port import Object

MOST_UNPACKED = 5000
"""Objects of a collection that are kept as they are used."""

_pack = msgspec.json.Encoder().encode
_unpack = msgspec.json.Decoder(dict[str, Any]).decode

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
    """What a reflector knows. Lists come in the order in which the objects were first seen.

    With `packs` all but the objects looked at last are kept as JSON, a sixth of the memory: they must consist of what
    JSON has, and nobody may change what is given out.
    """

    def __init__(self, *, packs: bool = False) -> None:
        self._packs = packs
        self._objects: dict[Key, Object | bytes] = {}
        self._by_uid: dict[str, Key] = {}
        # Dicts as ordered sets: the order of answers must not depend on hashing.
        self._unpacked: dict[Key, None] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._by_namespace: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return (_unpack(kept) if isinstance(kept, bytes) else kept for kept in list(self._objects.values()))

    def keys(self) -> list[Key]:
        """All keys."""
        return list(self._objects)

    def uids(self) -> list[str]:
        """The uids of all objects."""
        return list(self._by_uid)

    def get(self, namespace: str, name: str) -> Object | None:
        """One object by name."""
        return self._look((namespace, name))

    def by_uid(self, uid: str) -> Object | None:
        """One object by uid."""
        key = self._by_uid.get(uid)
        return self._look(key) if key is not None else None

    def owned_by(self, uid: str) -> list[Object]:
        """Objects whose controller owner reference has this uid."""
        return self._look_at(self._by_owner.get(uid, ()))

    def in_namespace(self, namespace: str) -> list[Object]:
        """Objects of one namespace."""
        return self._look_at(self._by_namespace.get(namespace, ()))

    def put(self, obj: Object) -> Object | None:
        """Stores the object and answers what it replaces."""
        namespace, name = key_of(obj)
        key = (intern(namespace), name)
        old = self._look(key)
        if old is not None:
            self._unindex(key, old)
        self._keep(key, obj)
        self._by_uid[obj["metadata"].get("uid", "")] = key
        self._by_namespace.setdefault(key[0], {})[key] = None
        if (owner := controller_of(obj)) is not None:
            self._by_owner.setdefault(owner["uid"], {})[key] = None
        return old

    def remove(self, key: Key) -> Object | None:
        """Forgets the object and answers it."""
        old = self._look(key)
        if old is not None:
            del self._objects[key]
            self._unpacked.pop(key, None)
            self._unindex(key, old)
            _discard(self._by_namespace, key[0], key)
        return old

    def _look(self, key: Key) -> Object | None:
        kept = self._objects.get(key)
        if not isinstance(kept, bytes):
            return kept
        found = _unpack(kept)
        self._keep(key, found)
        return found

    def _look_at(self, keys: Iterable[Key]) -> list[Object]:
        return [found for key in list(keys) if (found := self._look(key)) is not None]

    def _keep(self, key: Key, obj: Object) -> None:
        self._objects[key] = obj
        if not self._packs:
            return
        self._unpacked[key] = None
        if len(self._unpacked) > MOST_UNPACKED:
            oldest = next(iter(self._unpacked))
            del self._unpacked[oldest]
            self._objects[oldest] = _pack(self._objects[oldest])

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
