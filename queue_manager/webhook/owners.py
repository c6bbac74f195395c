"""Owners of jobs, read from the API server when a decision asks for one.

Hardly any does: children that their controller makes are not sent to us. To watch all jobs for them, with some ten
events in the life of each, cost more than all decisions together, here and in the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from queue_manager.cluster.port import ApiError, Cluster, Object, Resource
from queue_manager.kinds.kind import Lookup

PATIENCE = 5.0
"""Seconds that reading an owner may take; API servers wait ten for the whole answer."""

Key = tuple[Resource, str, str]
"""Collection, namespace, name."""

Read = Callable[[Key], Awaitable[Object | None]]
"""One object as it is now, None when there is none."""


class NotRead(Exception):
    """The decision needs this object: read it and decide again."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key[0].plural} {key[1]}/{key[2]} was not read")
        self.key = key


class _Beside:
    """A lookup that answers `get` in another way than the one it stands before."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._lookup.get(resource, namespace, name)

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        return self._lookup.list(resource, namespace)

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        return self._lookup.owned_by(resource, uid)

    def schema(self, resource: Resource) -> Object | None:
        return self._lookup.schema(resource)


class Unwatched(_Beside):
    """Raises NotRead for objects of some collections, which nobody watches."""

    def __init__(self, lookup: Lookup, resources: frozenset[Resource]) -> None:
        super().__init__(lookup)
        self._resources = resources

    @property
    def kueue_keys(self) -> bool:
        return self._lookup.kueue_keys

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if resource in self._resources:
            raise NotRead((resource, namespace, name))
        return super().get(resource, namespace, name)


class OfRequest(_Beside):
    """What the decision on one request sees: `read` was read for it, and whether Kueue's keys count is asked once.

    Where none is named anywhere they don't count, so that nothing has to be read as if it were written with ours.
    """

    def __init__(self, lookup: Lookup, read: Mapping[Key, Object | None], *, names_kueue: bool) -> None:
        super().__init__(lookup)
        self._read = read
        self.kueue_keys = (names_kueue or bool(read)) and lookup.kueue_keys

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        key = (resource, namespace, name)
        return self._read[key] if key in self._read else super().get(*key)


def reader(cluster: Cluster) -> Read:
    """Reads from the API server. Raises ApiError when it can't, TimeoutError when that takes too long."""

    async def read(key: Key) -> Object | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return await cluster.get(*key)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    return read


async def nothing_to_read(key: Key) -> Object | None:
    """For decisions that know all they ask for."""
    return None
