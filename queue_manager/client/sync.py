"""The client that waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx2

from queue_manager.client import operations
from queue_manager.client.call import Answer, Call, Page, Query, following, get
from queue_manager.client.connection import Attempts, Connection
from queue_manager.client.events import Event, EventReader
from queue_manager.client.problem import ApiError, ClientError
from queue_manager.client.types import Document

T = TypeVar("T")


class Client(operations.Operations):
    """One server. Failures are `ClientError`s. Safe to use from several threads; `close` it, or use it in `with`."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **more: Any,
    ) -> None:
        """`more` are the fields of `Connection`: timeout, retry, tls, headers."""
        self.connection = Connection(server, token, **more)
        self._http = httpx2.Client(transport=transport, **self.connection.options())
        self._sleep = sleep

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """The value that a call answers with; sends it again as `Retry` says."""
        attempts = Attempts(self.connection, call)
        while True:
            try:
                value: T = self.connection.read(call, self._once(call))
                return value
            except ClientError as error:
                pause = attempts.pause(error)
            self._sleep(pause)

    def items(self, call: Call[Page[T]]) -> Iterator[T]:
        """Items of all pages, read as they are needed."""
        following_call: Call[Page[T]] | None = call
        while following_call is not None:
            page = self.send(following_call)
            yield from page["items"]
            following_call = following(call, page)

    def parts(self, call: Call[str]) -> Iterator[str]:
        """The text of an answer, part by part; what fails before the first is sent again as `Retry` says."""
        attempts, begun = Attempts(self.connection, call), False
        while True:
            try:
                for part in self._parts(call):
                    begun = True
                    yield part
                return
            except ClientError as error:
                pause = attempts.pause(error, begun=begun)
            self._sleep(pause)

    def get(self, path: str, query: Query = operations.NO_QUERY) -> Any:
        """JSON of any path, for what has no method of its own."""
        return self.send(get(path, query))

    def events(
        self, query: Query = operations.NO_QUERY, *, after: str = "", opened: Callable[[], None] | None = None
    ) -> Iterator[Event]:
        """What happens, for ever: after a break it goes on where it was. `after` is the id of the last event known,
        `opened` is called whenever the server has begun to tell."""
        call, reader = get(operations.EVENTS, query), EventReader(after)
        attempts = Attempts(self.connection, call)
        while True:
            ended: ClientError | None = None
            try:
                for event in self._stream(call, reader, opened):
                    attempts.went_well()
                    yield event
            except ClientError as error:
                ended = error
            self._sleep(attempts.reconnects(ended, reader.pause))

    def change(
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
            found = self.object(kind, name, namespace=namespace)
            try:
                return self.put_object(change(found.value), if_match=found.etag, reason=reason).value
            except ApiError as error:
                if error.status != operations.STALE or attempt == attempts:
                    raise
        raise ValueError("attempts must be at least 1")

    def _once(self, call: Call[Any]) -> Answer:
        try:
            return self.connection.answered(self._http.request(**self.connection.arguments(call)))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)

    def _parts(self, call: Call[str]) -> Iterator[str]:
        try:
            with self._http.stream(**self.connection.arguments(call)) as response:
                if not response.is_success:
                    response.read()
                    self.connection.answered(response)
                yield from response.iter_text()
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)

    def _stream(self, call: Call[Any], reader: EventReader, opened: Callable[[], None] | None) -> Iterator[Event]:
        reader.begin()
        arguments = self.connection.stream_arguments(call, reader.last_id)
        try:
            with self._http.stream(**arguments) as response:
                if not response.is_success:
                    response.read()
                self.connection.streams(response)
                if opened is not None:
                    opened()
                for chunk in response.iter_bytes():
                    yield from reader.feed(chunk)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            self.connection.failed(error)
