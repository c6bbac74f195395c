"""The port on a real API server: aiohttp for HTTP, msgspec for JSON. Bodies and headers are never logged."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from queue_manager.cluster.clock import Clock, SystemClock, jittered
from queue_manager.cluster.credentials import Access, Credentials, CredentialsError
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

WATCH_SECONDS = 300
"""How long a watch lasts when the query doesn't say (`timeoutSeconds`)."""

CONNECTIONS = 72
"""For requests other than watches: the writes that a controller makes at once, and a few for lists and events."""

QUIET_MARGIN = 30.0
"""A watch that is silent this much longer than it may last is taken for dead."""

ACCESS_SECONDS = 10.0
"""How long an authorization header is used before the credentials are asked again."""

SERVED_SECONDS = 30.0
UNSERVED_SECONDS = 2.0
"""How long a yes and a no of discovery are believed."""

Observer = Callable[[str, str, int, float], None]
"""Called after each request with verb, plural, HTTP status (0: none) and seconds."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class ApiServer:
    """A Kubernetes API server over HTTP. Make it and use it on one event loop; `close()` it in the end."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        connections: int = CONNECTIONS,
        timeout: float = 30.0,
        tries_when_throttled: int = 3,
        user_agent: str = "queue-manager",
        observe: Observer | None = None,
    ) -> None:
        self._credentials = credentials
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._connections = connections
        self._timeout = timeout
        self._tries = tries_when_throttled
        self._user_agent = user_agent
        self._observe = observe
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._access: tuple[float, Access] | None = None
        self._access_lock = asyncio.Lock()
        self._served: dict[tuple[str, str], tuple[float, frozenset[str]]] = {}
        self._closed = False

    async def list(self, resource: Resource, query: Query = EVERYTHING, continue_token: str = "") -> Page:
        """One page of a collection."""
        parameters = _selection(query)
        if query.limit:
            parameters["limit"] = str(query.limit)
        if continue_token:
            parameters["continue"] = continue_token
        answer = await self._request("list", resource, "GET", _path(resource, query.namespace), parameters)
        metadata = answer.get("metadata") or {}
        items = answer.get("items") or []
        for item in items:  # built-in kinds come without these two in lists
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return Page(items, metadata.get("resourceVersion", ""), metadata.get("continue") or "")

    async def watch(
        self, resource: Resource, resource_version: str, query: Query = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version`; see the port."""
        parameters = {"allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS), **_selection(query)}
        parameters |= {"watch": "true", "resourceVersion": resource_version}
        silence = float(parameters["timeoutSeconds"]) + QUIET_MARGIN
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        path = _path(resource, query.namespace)
        try:
            async with await self._open_watch(resource, path, parameters, timeout) as response:
                async for line in _lines(response.content):
                    yield _event(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        return await self._object("get", resource, "GET", _path(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """The object as the server stored it."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        parameters = {"fieldManager": "queue-manager"}
        return await self._object("create", resource, "POST", _path(resource, namespace), parameters, whole)

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
        parameters = {"fieldManager": field_manager}
        if patch_type is PatchType.APPLY:
            parameters["force"] = "true" if force else "false"
            body = _applicable(resource, name, body)
        path = _path(resource, namespace, name, subresource)
        return await self._object("patch", resource, "PATCH", path, parameters, body, patch_type.value)

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", propagation: str = "Background"
    ) -> None:
        """Deletes it, only if it has `uid` when that is given."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._request("delete", resource, "DELETE", _path(resource, namespace, name), None, body)

    async def serves(self, resource: Resource) -> bool:
        """Whether discovery lists the collection; remembered for a short while."""
        key = (resource.group, resource.version)
        known = self._served.get(key)
        if known is not None:
            age = self._clock.monotonic() - known[0]
            if age < UNSERVED_SECONDS or (age < SERVED_SECONDS and resource.plural in known[1]):
                return resource.plural in known[1]
        plurals = await self._discover(resource)
        self._served[key] = (self._clock.monotonic(), plurals)
        return resource.plural in plurals

    async def close(self) -> None:
        """Ends all connections, running watches with them."""
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def _discover(self, resource: Resource) -> frozenset[str]:
        try:
            answer = await self._request("discover", resource, "GET", _group_path(resource))
        except ApiError as error:
            if error.not_found:
                return frozenset()
            raise
        return frozenset(entry["name"] for entry in answer.get("resources") or [])

    async def _object(self, *request: Any) -> Object:
        answer: Object = await self._request(*request)
        return answer

    async def _request(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        """One request. Tried again only where the server surely did nothing: throttled (429) or not known (401)."""
        data = None if body is None else _encode(body)
        throttled, renewed = 0, False
        while True:
            try:
                return await self._once(verb, resource, method, path, parameters, data, content_type)
            except ApiError as error:
                if error.status == 401 and not renewed:
                    renewed = True
                    await self._renew()
                elif error.status == 429 and throttled + 1 < self._tries:
                    throttled += 1
                    pause = error.retry_after if error.retry_after is not None else float(throttled)
                    await self._clock.sleep(pause + jittered(0.1, self._random))
                else:
                    raise

    async def _once(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        access = await self._current_access()
        headers = _headers(access, self._user_agent)
        if data is not None:
            headers["Content-Type"] = content_type
        if verb != "list":
            headers["Accept-Encoding"] = "identity"
        started, status = time.perf_counter(), 0
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=min(10.0, self._timeout))
        try:
            async with self._session("requests").request(
                method,
                access.host + path,
                params=parameters,
                data=data,
                headers=headers,
                timeout=timeout,
                **_connection(access),
            ) as response:
                content = await response.read()
                status = response.status
                if status >= 300:
                    raise _failure(response, content)
                return _decode(content)
        except msgspec.DecodeError as error:
            raise ApiError(0, "Undecodable", "the answer is not JSON; is this a Kubernetes API server?") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error
        finally:
            if self._observe is not None:
                self._observe(verb, resource.plural, status, time.perf_counter() - started)

    async def _open_watch(
        self, resource: Resource, path: str, parameters: Mapping[str, str], patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The open stream, or ApiError; a 401 is tried once more with fresh credentials."""
        for last in (False, True):
            access = await self._current_access()
            headers = {**_headers(access, self._user_agent), "Accept-Encoding": "identity"}
            response = await self._session("watches").get(
                access.host + path, params=parameters, headers=headers, timeout=patience, **_connection(access)
            )
            if self._observe is not None:
                self._observe("watch", resource.plural, response.status, 0.0)
            if response.status < 300:
                return response
            async with response:
                content = await response.read()
            if response.status != 401 or last:
                raise _failure(response, content)
            await self._renew()
        raise AssertionError("unreachable")

    def _session(self, purpose: str) -> aiohttp.ClientSession:
        """Watches have connections of their own: they would use up the limit of the others."""
        if self._closed:
            raise ApiError(0, "Closed", "the connection to the API server was closed")
        session = self._sessions.get(purpose)
        if session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections if purpose == "requests" else 0, socket_factory=_socket, ttl_dns_cache=30
            )
            session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            self._sessions[purpose] = session
        return session

    async def _current_access(self) -> Access:
        known = self._access
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        async with self._access_lock:
            known = self._access
            if known is None or known[0] <= self._clock.monotonic():
                known = self._access = await self._read_access(self._credentials.access)
            return known[1]

    async def _renew(self) -> None:
        async with self._access_lock:
            self._access = await self._read_access(self._credentials.reload)

    async def _read_access(self, read: Callable[[], Access]) -> tuple[float, Access]:
        try:
            # An exec plugin may run for seconds: not on the event loop.
            access = await asyncio.to_thread(read)
        except CredentialsError as error:
            raise ApiError(0, "Credentials", str(error)) from error
        return self._clock.monotonic() + ACCESS_SECONDS, access


def _group_path(resource: Resource) -> str:
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


def _path(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    parts = [_group_path(resource)]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _selection(query: Query) -> dict[str, str]:
    parameters = dict(query.options)
    if query.label_selector:
        parameters["labelSelector"] = query.label_selector
    if query.field_selector:
        parameters["fieldSelector"] = query.field_selector
    return parameters


def _headers(access: Access, user_agent: str) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": user_agent}
    if access.authorization:
        headers["Authorization"] = access.authorization
    return headers


def _connection(access: Access) -> dict[str, Any]:
    # A redirect could carry the token to another host: never followed.
    options: dict[str, Any] = {"allow_redirects": False}
    if access.tls is not None:
        options["ssl"] = access.tls
    if access.server_name:
        options["server_hostname"] = access.server_name
    if access.proxy:
        options["proxy"] = access.proxy
    return options


def _socket(address: Any) -> socket.socket:
    """A socket with keep-alive: a peer that vanished without a word is noticed within about a minute."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60_000),
        ("TCP_NODELAY", 1),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream of any chunking; a line cut off by the end is an error."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        searched = len(rest)
        rest += chunk
        start = 0
        while (end := rest.find(b"\n", max(start, searched))) >= 0:
            if line := bytes(rest[start:end]).strip():
                yield line
            start = end + 1
        del rest[:start]
    if bytes(rest).strip():
        raise ApiError(0, "Disconnected", "the watch ended in the middle of an event")


def _event(line: bytes) -> WatchEvent:
    try:
        event = _decode(line)
        kind, obj = event["type"], event["object"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ApiError(0, "Undecodable", "the watch sent something that is not an event") from error
    if kind == "ERROR":
        raise status_error(obj, 500)
    return WatchEvent(EventType(kind), obj)


def _failure(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    """The error of an unsuccessful answer, from its Status body where it has one."""
    try:
        body = _decode(content)
    except msgspec.DecodeError:
        body = {"message": content[:200].decode("utf-8", "replace")}
    wait = response.headers.get("Retry-After", "")
    return status_error(body, response.status, float(wait) if wait.isdigit() else None, response.reason or "")


def status_error(body: Any, status: int, retry_after: float | None = None, reason: str = "") -> ApiError:
    """An ApiError from a Status object; what the object doesn't say comes from the other arguments."""
    body = body if isinstance(body, dict) else {}
    details = body.get("details") or {}
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    code = body.get("code") or status
    return ApiError(int(code), body.get("reason") or reason or "Unknown", body.get("message") or "", retry_after)


def _unreachable(error: BaseException) -> ApiError:
    reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
    return ApiError(0, reason, str(error) or type(error).__name__)


def _applicable(resource: Resource, name: str, body: PatchBody) -> Object:
    """An apply body with the type and the name, which the server wants although the path has them."""
    if not isinstance(body, dict):
        raise TypeError("an apply patch is an object")
    metadata = {"name": name, **(body.get("metadata") or {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
