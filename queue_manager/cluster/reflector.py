"""Keeps a cache equal to a collection of the API server: list, then watch, for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Protocol, cast

import structlog

from queue_manager.cluster.cache import Cache, Key, key_of
from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import EVERYTHING, ApiError, Cluster, EventType, Object, Query, Resource, WatchEvent

Handler = Callable[[Resource, EventType, Object | None, Object | None], None]
"""Called with resource, event, new object, old object (new is the last state known for DELETED). Must not block."""

Projection = Callable[[Object], Object]
"""Makes a smaller object to keep, without changing the given one; identity fields of `metadata` must stay."""

_log = structlog.get_logger(__name__)


def without_managed_fields(obj: Object) -> Object:
    """The object without `metadata.managedFields`, often half of its size and nothing we need."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


class _Closable(Protocol):
    def __aiter__(self) -> AsyncIterator[WatchEvent]: ...
    async def aclose(self) -> None: ...


class Reflector:
    """One collection. `run()` never ends by itself: cancel its task.

    `synced` is set once the cache has equalled the server for the first time; a collection that the server doesn't
    serve counts as an empty one (`available` tells them apart).
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        *,
        clock: Clock,
        random: Random,
        query: Query = EVERYTHING,
        project: Projection | None = None,
        on_event: Handler | None = None,
        watch_seconds: int = 300,
        optional: bool = False,
        packs: bool = False,
    ) -> None:
        """`optional`: a collection that we may not read is as one that is not served. `packs`: as in `Cache`."""
        self.resource = resource
        self.cache = Cache(packs=packs)
        self.synced = asyncio.Event()
        self.available = False
        self.relists = 0
        self.last_error = ""
        self._cluster = cluster
        self._clock = clock
        self._random = random
        self._query = query
        self._project = project
        self._handlers: list[Handler] = [on_event] if on_event else []
        self._watch_seconds = watch_seconds
        self._optional = optional
        self._backoff = Backoff(random)
        self._alive_at = clock.monotonic()

    def subscribe(self, handler: Handler) -> None:
        """Adds a handler; before `run()`, or it misses what is cached already."""
        self._handlers.append(handler)

    @property
    def lag(self) -> float:
        """Seconds since the API server last proved that it still talks to us (list, event, bookmark)."""
        return self._clock.monotonic() - self._alive_at

    async def run(self) -> None:
        """Lists and watches until cancelled; every failure is followed by a growing pause."""
        while True:
            try:
                if await self._cluster.serves(self.resource):
                    await self._list_and_watch()
                else:
                    self._unavailable()
                    await self._clock.sleep(self._backoff.next())
            except ApiError as error:
                self._failed(error)
                if self._optional and error.forbidden:
                    self._unavailable()
                await self._clock.sleep(self._backoff.next(error.retry_after))

    async def _list_and_watch(self) -> None:
        version = await self._list()
        self._backoff.reset()
        while version:
            version = await self._watch(version)

    async def _list(self) -> str:
        """Fills the cache page by page and answers the list's resourceVersion."""
        seen: set[Key] = set()
        token, query = "", self._query
        while True:
            try:
                page = await self._cluster.list(self.resource, query, token)
            except ApiError as error:
                if not (error.gone and token):
                    raise
                # The snapshot behind the token is gone: the whole list at once can't lose it.
                token, query = "", replace(self._query, limit=0)
                continue
            self._alive()
            for item in page.items:
                seen.add(key_of(item))
                self._put(item)
            token = page.continue_token
            if not token:
                break
        self._vanished(seen)
        self.available = True
        self.relists += 1
        self.last_error = ""
        self.synced.set()
        return page.resource_version

    async def _watch(self, version: str) -> str:
        """One watch from `version`; answers where to go on, "" for a new list."""
        seconds = self._watch_seconds + self._random.randrange(self._watch_seconds)
        options = {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), **self._query.options}
        query = replace(self._query, options=options)
        started, got = self._clock.monotonic(), False
        try:
            stream = cast(_Closable, self._cluster.watch(self.resource, version, query))
            async with aclosing(stream):
                async for event in stream:
                    self._alive()
                    got = True
                    version = event.object["metadata"]["resourceVersion"]
                    self._apply(event)
        except ApiError as error:
            if error.not_found:
                raise  # the collection itself went away
            self._failed(error)
            if error.gone:
                # A server that compacts at once must not make us list in a hot loop.
                await self._clock.sleep(self._backoff.next())
                return ""
            if got:
                self._backoff.reset()
            await self._clock.sleep(self._backoff.next(error.retry_after))
            return version
        if got or self._clock.monotonic() - started >= 1:
            self._backoff.reset()
        else:
            await self._clock.sleep(self._backoff.next())  # ended at once, without an event
        return version

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.BOOKMARK:
            return
        if event.type is EventType.DELETED:
            self._remove(key_of(event.object), event.object)
        else:
            self._put(event.object)

    def _put(self, obj: Object) -> None:
        """Stores a state and tells the handlers, unless it is the one already known."""
        known = self.cache.get(*key_of(obj))
        identity = obj["metadata"].get("uid"), obj["metadata"].get("resourceVersion")
        if known is not None:
            if identity == (known["metadata"].get("uid"), known["metadata"].get("resourceVersion")):
                return
            if identity[0] != known["metadata"].get("uid"):
                # Deleted and made again under the same name while we looked away.
                self._remove(key_of(obj), known)
        kept = self._kept(obj)
        old = self.cache.put(kept)
        self._tell(EventType.MODIFIED if old is not None else EventType.ADDED, kept, old)

    def _remove(self, key: Key, last: Object) -> None:
        old = self.cache.remove(key)
        if old is not None:
            self._tell(EventType.DELETED, old if last is old else self._kept(last), old)

    def _vanished(self, seen: set[Key]) -> None:
        """Deletions that happened while no watch was running."""
        for key in self.cache.keys():  # noqa: SIM118 - not a dict
            if key not in seen and (last := self.cache.get(*key)) is not None:
                self._remove(key, last)

    def _kept(self, obj: Object) -> Object:
        trimmed = without_managed_fields(obj)
        return self._project(trimmed) if self._project is not None else trimmed

    def _tell(self, event: EventType, new: Object | None, old: Object | None) -> None:
        for handler in self._handlers:
            handler(self.resource, event, new, old)

    def _alive(self) -> None:
        self._alive_at = self._clock.monotonic()

    def _unavailable(self) -> None:
        self._alive()
        if self.available:
            _log.warning("collection is no longer served", resource=self.resource.plural, group=self.resource.group)
        self.available = False
        self.last_error = "not served"
        self._vanished(set())
        self.synced.set()

    def _failed(self, error: ApiError) -> None:
        self.last_error = f"{error.status} {error.reason}"
        _log.info("watch interrupted", resource=self.resource.plural, status=error.status, reason=error.reason)
