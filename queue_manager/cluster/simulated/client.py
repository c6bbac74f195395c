"""The port on the simulated API server, as one user sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import (
    EVERYTHING,
    ApiError,
    EventType,
    Object,
    Page,
    PatchBody,
    PatchType,
    Query,
    Resource,
    WatchEvent,
)
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.faults import Faults
from queue_manager.cluster.simulated.selectors import matcher
from queue_manager.cluster.simulated.storage import Watcher

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0


class SimulatedClient:
    """Implements `port.Cluster`. Requests meet the injected faults, and other tasks run before each takes effect."""

    def __init__(
        self,
        state: ApiState,
        clock: Clock,
        *,
        faults: Faults | None = None,
        latency: float = 0.0,
        user: str = "system:serviceaccount:queue-manager:controller",
        groups: tuple[str, ...] = ("system:authenticated",),
        field_manager: str = "queue-manager",
    ) -> None:
        self._state = state
        self._clock = clock
        self._latency = latency
        self._groups = groups
        self._field_manager = field_manager
        self._watches: set[Watcher] = set()
        self._closed = False
        self._user = user
        self.faults = faults
        self.requests = 0

    @property
    def user(self) -> str:
        """Who asks."""
        return self._user

    async def list(self, resource: Resource, query: Query = EVERYTHING, continue_token: str = "") -> Page:
        """One page of a collection."""
        return await self._serve(
            "list", resource, query.namespace, "", lambda: self._state.list(resource, query, continue_token)
        )

    async def watch(
        self, resource: Resource, resource_version: str, query: Query = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version`."""
        watcher = await self._serve(
            "watch", resource, query.namespace, "", lambda: self._open(resource, resource_version, query)
        )
        seconds = float(query.options.get("timeoutSeconds", "300"))
        bookmarks = query.options.get("allowWatchBookmarks", "true") == "true"
        timer = asyncio.create_task(self._time(watcher, resource, seconds, bookmarks))
        self._watches.add(watcher)
        try:
            while True:
                while watcher.events:
                    if self.faults is not None and self.faults.drop_watch(resource):
                        raise ApiError(0, "Disconnected", "the watch broke (injected)")
                    yield watcher.events.popleft()
                if watcher.ended:
                    return
                watcher.wake.clear()
                await watcher.wake.wait()
        finally:
            timer.cancel()
            self._watches.discard(watcher)
            self._state.storage.close(resource, watcher)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        return await self._serve("get", resource, namespace, name, lambda: self._state.get(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """The object as stored."""
        name = (body.get("metadata") or {}).get("name", "")
        return await self._serve(
            "create",
            resource,
            namespace,
            name,
            lambda: self._state.create(
                resource, namespace, body, manager=self._field_manager, user=self._user, groups=self._groups
            ),
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: PatchBody,
        patch_type: PatchType,
        *,
        subresource: str = "",
        field_manager: str = "queue-manager",
        force: bool = False,
    ) -> Object:
        """The object after the patch."""
        return await self._serve(
            "patch",
            resource,
            namespace,
            name,
            lambda: self._state.patch(
                resource,
                namespace,
                name,
                body,
                patch_type,
                manager=field_manager,
                subresource=subresource,
                force=force,
                user=self._user,
                groups=self._groups,
            ),
        )

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", propagation: str = "Background"
    ) -> None:
        """Deletes it, only if it has `uid` when that is given."""
        await self._serve(
            "delete",
            resource,
            namespace,
            name,
            lambda: self._state.delete(resource, namespace, name, uid=uid, propagation=propagation),
        )

    async def serves(self, resource: Resource) -> bool:
        """Whether the collection is served now."""
        return await self._serve("discover", resource, "", "", lambda: self._state.serves(resource))

    async def close(self) -> None:
        """Ends this client's watches; later requests fail."""
        self._closed = True
        for watcher in self._watches:
            watcher.end()

    async def _serve(self, verb: str, resource: Resource, namespace: str, name: str, action: Callable[[], T]) -> T:
        if self._closed:
            raise ApiError(0, "Closed", "the connection to the API server was closed")
        self.requests += 1
        fault = self.faults.request(verb, resource, namespace, name) if self.faults is not None else None
        await self._clock.sleep(self._latency)
        if fault is not None and not fault.after:
            raise fault.error()
        result = action()
        if fault is not None:
            raise fault.error()
        return result

    def _open(self, resource: Resource, version: str, query: Query) -> Watcher:
        if not self._state.serves(resource):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return self._state.storage.open(resource, version, matcher(resource, query))

    async def _time(self, watcher: Watcher, resource: Resource, seconds: float, bookmarks: bool) -> None:
        """Sends bookmarks, and ends the watch in time."""
        left = seconds
        while left > 0:
            pause = min(left, BOOKMARK_SECONDS)
            await self._clock.sleep(pause)
            left -= pause
            if bookmarks:
                watcher.push(WatchEvent(EventType.BOOKMARK, self._bookmark(resource)))
        watcher.end()

    def _bookmark(self, resource: Resource) -> Object:
        version = str(self._state.storage.version)
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"resourceVersion": version}}
