"""The HTTPS server of the webhooks: raw Starlette routes, msgspec for JSON, uvicorn."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from queue_manager.webhook import review
from queue_manager.webhook.review import Request, Verdict
from queue_manager.webhook.tls import Tls

MUTATE, VALIDATE = "/mutate", "/validate"
NAMESPACE = "/namespace"
"""Appended to a path: the call comes from the entry that selects managed namespaces (`Request.managed_namespace`)."""

BODY_LIMIT = 16 * 2**20
"""Bytes. An API server sends an object and its old self, each of at most 3 MiB."""

KEEP_ALIVE = 120
"""Seconds. API servers give up idle connections after 90: they end them, so no request meets a closed one."""

log = structlog.get_logger(__name__)


class Decisions(Protocol):
    """What the server asks; decide.Decider is it."""

    def mutate(self, request: Request) -> Verdict: ...
    def validate(self, request: Request) -> Verdict: ...


Refresh = Callable[[], Awaitable[bool]]
"""Reads what decisions rest on anew; whether there was something newer."""


async def nothing_newer() -> bool:
    """Decisions that rest on the request alone."""
    return False


def application(decisions: Decisions, ready: Callable[[], bool], refresh: Refresh = nothing_newer) -> Starlette:
    """The routes `/mutate`, `/validate` (each also with `/namespace`), `/healthz` and `/readyz`.

    Before a refusal stands it is decided again after a `refresh`: what the job names may have been made a moment ago.
    """

    def reviewed(decide: Callable[[Request], Verdict], managed: bool) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def endpoint(request: HttpRequest) -> Response:
            return await _answer(request, decide, managed, refresh)

        return endpoint

    async def health(request: HttpRequest) -> Response:
        return PlainTextResponse("ok")

    async def readiness(request: HttpRequest) -> Response:
        return PlainTextResponse("ok") if ready() else PlainTextResponse("not ready", status_code=503)

    routes = [Route("/healthz", health), Route("/readyz", readiness)]
    for path, decide in ((MUTATE, decisions.mutate), (VALIDATE, decisions.validate)):
        routes.append(Route(path, reviewed(decide, False), methods=["POST"]))
        routes.append(Route(path + NAMESPACE, reviewed(decide, True), methods=["POST"]))
    return Starlette(routes=routes)


async def _answer(http: HttpRequest, decide: Callable[[Request], Verdict], managed: bool, refresh: Refresh) -> Response:
    body = await _body(http)
    if body is None:
        return PlainTextResponse(f"more than {BODY_LIMIT} bytes", status_code=413)
    try:
        request = review.decode(body)
    except ValueError as error:
        return PlainTextResponse(str(error), status_code=400)
    if managed:
        request = msgspec.structs.replace(request, managed_namespace=True)
    try:
        verdict = decide(request)
        if verdict.refused and await refresh():
            verdict = decide(request)
    except Exception:
        # Not allowed: the API server takes an error as a refusal of what only we may let through.
        log.exception("admission failed", kind=request.kind.kind, namespace=request.namespace, name=request.name)
        return PlainTextResponse("the admission decision failed; see the log of the webhook", status_code=500)
    if verdict.refused:
        log.info("refused", kind=request.kind.kind, namespace=request.namespace, name=request.name, why=verdict.refused)
    return Response(review.encode(request.uid, verdict), media_type="application/json")


async def _body(http: HttpRequest) -> bytes | None:
    """The body, None when it is too long."""
    parts: list[bytes] = []
    size = 0
    async for part in http.stream():
        size += len(part)
        if size > BODY_LIMIT:
            return None
        parts.append(part)
    return b"".join(parts)


class _Server(uvicorn.Server):
    """Leaves the signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebhookServer:
    """Serves an application over TLS until it is told to stop."""

    def __init__(self, app: Starlette, tls: Tls, host: str, port: int) -> None:
        """Binds the address at once; port 0 takes a free one. Raises OSError when it is taken."""
        self._socket = socket.create_server((host, port), family=_family(host), backlog=1024)
        # Connections inherit it. asyncio sets it only on sockets that name their protocol, which these don't, and
        # without it every answer waits 40 ms for the API server's delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=10,
            ssl_context_factory=lambda config, default: tls.context,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Serves until `stop`, then finishes what it has begun."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Ends `serve` soon."""
        self._server.should_exit = True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
