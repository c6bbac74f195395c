"""What holds for every request: its id, how large it may be, how many there may be a second, and a line in the log."""

from __future__ import annotations

import hashlib
import math
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queue_manager.config.source import MAX_BYTES

from .buckets import BUCKETS, Buckets
from .problems import problem_response, request_id
from .shared import Shared

log = structlog.get_logger(__name__)

HEADER = "X-Request-Id"
SMALL = 2**20
"""Bytes of a body that is no configuration."""
_GIVEN = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_FREE = ("/healthz", "/readyz", "/metrics", "/static/")
_CONFIGURATION = re.compile(r"/api/v1/config(/.*)?")
_OBJECT = re.compile(
    r"/api/v1/(topologies|flavors|cohorts|queues|priority-classes|local-queues|role-bindings|settings)/.*"
)


class RequestIds:
    """ASGI middleware: each request has an id, its client's (`X-Request-Id`) or a new one. The answer has it, problem
    documents too, and every line of the log that is written meanwhile."""

    def __init__(self, app: ASGIApp, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        number = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = number
            await send(message)

        token = request_id.set(number)
        begun = self._monotonic()
        with structlog.contextvars.bound_contextvars(request_id=number):
            try:
                await self.app(scope, receive, send_with_id)
            except Exception as error:
                log.error("request failed", path=scope["path"], exc_info=error)
                if status:
                    raise
                answer = problem_response(500, "Internal error", "the server's log has the details")
                await answer(scope, receive, send_with_id)
            finally:
                request_id.reset(token)
                self._tell(scope, status, self._monotonic() - begun)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        """Reads that went well are told only where debugging is asked for: pages send one every two seconds."""
        well = 0 < status < 400
        tell = log.debug if well and scope["method"] in ("GET", "HEAD", "OPTIONS") else log.info
        client = scope.get("client")
        tell(
            "request",
            method=scope["method"],
            path=scope["path"][:500],
            status=status,
            ms=round(seconds * 1000, 1),
            client=client[0] if client else "",
        )


class BodyLimit:
    """ASGI middleware: 413 for bodies that are larger than what they could be; nothing is read of those that say so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = MAX_BYTES if _may_be_large(scope) else SMALL
        title, detail = "Body too large", f"at most {most // 2**20} MiB are read here"
        detail += "; apply it in parts" if most == MAX_BYTES else ""
        said = Headers(scope=scope).get("content-length", "")
        if said.isdigit() and int(said[:19]) > most:
            await problem_response(413, title, detail)(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413, detail)
            return message

        await self.app(scope, counted, send)


def _may_be_large(scope: Scope) -> bool:
    """Whether the body is a configuration; what is posted to an object is an action on it."""
    path = scope["path"]
    return bool(_CONFIGURATION.fullmatch(path) or (scope["method"] != "POST" and _OBJECT.fullmatch(path)))


class RateLimit:
    """ASGI middleware: 429 with Retry-After for who sends more requests than the settings allow, counted by token and,
    for who has none, by client address. A token is counted by its address until a request with it was not refused
    as unknown, so making up tokens helps nobody. Processes of a server that share `buckets` count together."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Callable[[], tuple[int, int]],
        monotonic: Callable[[], float] = time.monotonic,
        buckets: Buckets | Shared | None = None,
    ) -> None:
        """`limits` are requests a second and the burst."""
        self.app = app
        self._limits = limits
        self._monotonic = monotonic
        self._buckets = buckets or Buckets()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_FREE):
            await self.app(scope, receive, send)
            return
        token = _token(Headers(scope=scope))
        client = scope.get("client")
        who = token if token in self._known else f"client {client[0] if client else ''}".encode()
        if wait := self._wait(who):
            seconds = max(1, math.ceil(wait))
            rate, _ = self._limits()
            detail = f"at most {rate} requests a second for each token or client; try again in {seconds} s"
            answer = problem_response(429, "Too many requests", detail, headers={"Retry-After": str(seconds)})
            await answer(scope, receive, send)
            return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start" and token and message["status"] != 401:
                self._known[token] = None
                self._known.move_to_end(token)
                if len(self._known) > BUCKETS:
                    self._known.popitem(last=False)
            await send(message)

        await self.app(scope, receive, noted)

    def _wait(self, who: bytes) -> float:
        return self._buckets.take(who, *self._limits(), self._monotonic())


def _token(headers: Headers) -> bytes:
    """What stands for the caller's proof, b"" without one; the proof itself is not kept."""
    proof = headers.get("authorization", "")
    return hashlib.sha256(proof.encode("utf-8", "replace")).digest() if proof else b""
