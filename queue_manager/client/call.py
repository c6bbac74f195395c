"""One request as a value: both clients send the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, cast, overload
from uuid import uuid4

if TYPE_CHECKING:
    from queue_manager.client.asynchronous import AsyncClient
    from queue_manager.client.sync import Client

P = ParamSpec("P")
T = TypeVar("T")
Query = Mapping[str, Any]
NOTHING: Mapping[str, Any] = {}
YAML = "application/yaml"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers by lower-case name, content."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value with the ETag of the state that was read: give it back as `if_match` to change nothing newer."""

    value: T
    etag: str


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None


def _json(answer: Answer) -> Any:
    return json.loads(answer.content)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `repeatable` is whether sending it twice does no more than sending it once."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    read: Callable[[Answer], T] = _json

    def pairs(self) -> list[tuple[str, str]]:
        """The query: what is empty is left out, of a list each value is one pair."""
        return [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, values in self.query.items()
            for value in (values if isinstance(values, list | tuple) else [values])
            if value not in ("", None)
        ]


def get(path: str, query: Query = NOTHING) -> Call[Any]:
    """Reads JSON."""
    return Call("GET", path, query)


def get_text(path: str, query: Query = NOTHING) -> Call[str]:
    """Reads text."""
    return Call("GET", path, query, read=lambda answer: answer.content.decode())


def send(
    method: str,
    path: str,
    body: Any = None,
    query: Query = NOTHING,
    *,
    media: str = JSON,
    headers: Mapping[str, str] = NOTHING,
    repeatable: bool = False,
) -> Call[Any]:
    """Sends text as it is and everything else as JSON; the answer is JSON, None where there is none."""
    content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    named = {name: value for name, value in headers.items() if value}
    if content is not None:
        named["Content-Type"] = media
    return Call(
        method, path, query, content, named, repeatable, lambda answer: _json(answer) if answer.content else None
    )


def act(path: str, body: Any, query: Query = NOTHING) -> Call[Any]:
    """An action: its Idempotency-Key lets it be sent again when nobody knows whether it arrived."""
    return send("POST", path, body, query, headers={"Idempotency-Key": str(uuid4())}, repeatable=True)


def versioned(call: Call[T]) -> Call[Versioned[T]]:
    """The same call, answered with the ETag."""
    return Call(
        call.method,
        call.path,
        call.query,
        call.body,
        call.headers,
        call.repeatable,
        lambda answer: Versioned(call.read(answer), answer.headers.get("etag", "")),
    )


class Operation(Generic[P, T]):
    """A method of both clients: `Client` answers with the value, `AsyncClient` with something to await."""

    def __init__(self, describe: Callable[P, Call[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._describe

        def run(*arguments: P.args, **named: P.kwargs) -> Any:
            return client.send(self._describe(*arguments, **named))

        run.__doc__ = self.__doc__
        return run


class Listing(Generic[P, T]):
    """A method of both clients that yields the items of a list, page after page."""

    def __init__(self, describe: Callable[P, Call[Page[T]]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[Page[T]]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._describe

        def run(*arguments: P.args, **named: P.kwargs) -> Any:
            return client.items(self._describe(*arguments, **named))

        run.__doc__ = self.__doc__
        return run


class Download(Generic[P]):
    """A method of both clients that yields a text in parts, as they come: it may be larger than memory."""

    def __init__(self, describe: Callable[P, Call[str]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[str]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[str]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[str]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._describe

        def run(*arguments: P.args, **named: P.kwargs) -> Any:
            return client.parts(self._describe(*arguments, **named))

        run.__doc__ = self.__doc__
        return run


def following(call: Call[Page[T]], page: Page[T]) -> Call[Page[T]] | None:
    """The call of the next page; None after the last."""
    if not page["next"]:
        return None
    query = {**call.query, "cursor": page["next"]}
    return cast(Call[Page[T]], Call(call.method, call.path, query, read=call.read))
