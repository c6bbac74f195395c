"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import httpx2

from queue_manager.client import operations
from queue_manager.client.call import Answer, Call, Page, Query, following, get
from queue_manager.client.connection import Attempts, Connection
from queue_manager.client.events import Event, EventReader
from queue_manager.client.problem import ApiError, ClientError
from queue_manager.client.types import Document

T = TypeVar("T")


class AsyncClient(operations.Operations):
    """One server. Failures are `ClientError`s. `aclose` it, or use it in `async with`."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **more: Any,
    ) -> None:
        """`more` are the fields of `Connection`: timeout, retry, tls, headers."""
        self.connection = Connection(server, token, **more)
        self._http = httpx2.AsyncClient(transport=transport, **self.connection.options())
        self._sleep = sleep

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """The value that a call answers with; sends it again as `Retry` says."""
        attempts = Attempts(self.connection, call)
        while True:
            try:
                value: T = self.connection.read(call, await self._once(call))
                return value
            except ClientError as error:
                pause = attempts.pause(error)
            await self._sleep(pause)

    async def items(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """Items of all pages, read as they are needed."""
        following_call: Call[Page[T]] | None = call
        while following_call is not None:
            page = await self.send(following_call)
            for item in page["items"]:
                yield item
            following_call = following(call, page)

    async def parts(self, call: Call[str]) -> AsyncIterator[str]:
        """The text of an answer, part by part; what fails before the first is sent again as `Retry` says."""
        attempts, begun = Attempts(self.connection, call), False
        while True:
            try:
                async for part in self._parts(call):
                    begun = True
                    yield part
                return
            except ClientError as error:
                pause = attempts.pause(error, begun=begun)
            await self._sleep(pause)

    async def get(self, path: str, query: Query = operations.NO_QUERY) -> Any:
        """JSON of any path, for what has no method of its own."""
        return await self.send(get(path, query))

    async def events(
        self, query: Query = operations.NO_QUERY, *, after: str = "", opened: Callable[[], None] | None = None
    ) -> AsyncIterator[Event]:
        """What happens, for ever: after a break it goes on where it was. `after` is the id of the last event known,
        `opened` is called whenever the server has begun to tell."""
        call, reader = get(operations.EVENTS, query), EventReader(after)
        attempts = Attempts(self.connection, call)
        while True:
            ended: ClientError | None = None
            try:
                async for event in self._stream(call, reader, opened):
                    attempts.went_well()
                    yield event
            except ClientError as error:
                ended = error
            await self._sleep(attempts.reconnects(ended, reader.pause))

    async def change(
        self,
        kind: str,
        name: str,
        change: Callable[[Document], Document],
        *,
        namespace: str = "",
        reason: str = "",
        attempts: int = 5,
    ) -> Document:
        """Reads an object, changes it and writes it back; begins anew where somebody else was faster."""
        for attempt in range(1, attempts + 1):
            found = await self.object(kind, name, namespace=namespace)
            try:
                return (await self.put_object(change(found.value), if_match=found.etag, reason=reason)).value
            except ApiError as error:
                if error.status != operations.STALE or attempt == attempts:
                    raise
        raise ValueError("attempts must be at least 1")

    async def _once(self, call: Call[Any]) -> Answer:
        try:
            return self.connection.answered(await self._http.request(**self.connection.arguments(call)))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)

    async def _parts(self, call: Call[str]) -> AsyncIterator[str]:
        try:
            async with self._http.stream(**self.connection.arguments(call)) as response:
                if not response.is_success:
                    await response.aread()
                    self.connection.answered(response)
                async for part in response.aiter_text():
                    yield part
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)

    async def _stream(
        self, call: Call[Any], reader: EventReader, opened: Callable[[], None] | None
    ) -> AsyncIterator[Event]:
        reader.begin()
        arguments = self.connection.stream_arguments(call, reader.last_id)
        try:
            async with self._http.stream(**arguments) as response:
                if not response.is_success:
                    await response.aread()
                self.connection.streams(response)
                if opened is not None:
                    opened()
                async for chunk in response.aiter_bytes():
                    for event in reader.feed(chunk):
                        yield event
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)
