"""The HTTPS server of the webhooks: an ASGI application of its own, msgspec for JSON, uvicorn."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from queue_manager.webhook import review
from queue_manager.webhook.owners import NotRead, Read, nothing_to_read
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


Decide = Callable[[Request], Verdict]

Answer = tuple[int, bytes, bytes]
"""HTTP status, content type, content."""


class Decisions(Protocol):
    """What the server asks; decide.Decider is it."""

    def mutate(self, request: Request) -> Verdict: ...
    def validate(self, request: Request) -> Verdict: ...


Refresh = Callable[[], Awaitable[bool]]
"""Reads what decisions rest on anew; whether there was something newer."""


async def nothing_newer() -> bool:
    """Decisions that rest on the request alone."""
    return False


class Application:
    """ASGI: `/mutate`, `/validate` (each also with `/namespace`), `/healthz` and `/readyz`.

    Plain, since it is asked twice for each new job: a framework's routes and request objects took as long as the
    decision. Before a refusal stands it is decided again after a `refresh`: what the job names may have been made a
    moment ago. `read` answers what decisions ask for by raising NotRead.
    """

    def __init__(self, decisions: Decisions, ready: Callable[[], bool], refresh: Refresh, read: Read) -> None:
        self._ready = ready
        self._refresh = refresh
        self._read = read
        self._reviews = {
            path + below: (decide, managed)
            for path, decide in ((MUTATE, decisions.mutate), (VALIDATE, decisions.validate))
            for below, managed in (("", False), (NAMESPACE, True))
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http"
        found, method = self._reviews.get(scope["path"]), scope["method"]
        if found is None:
            answer = self._probe(scope["path"], method)
        elif method != "POST":
            answer = _text(405, "Method Not Allowed")
        else:
            try:
                body = await _body(receive)
            except ConnectionError:
                return
            answer = await self._review(body, *found)
        status, kind, content = answer
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _probe(self, path: str, method: str) -> Answer:
        if path not in ("/healthz", "/readyz"):
            return _text(404, "Not Found")
        if method not in ("GET", "HEAD"):
            return _text(405, "Method Not Allowed")
        return _text(200, "ok") if path == "/healthz" or self._ready() else _text(503, "not ready")

    async def _review(self, body: bytes | None, decide: Decide, managed: bool) -> Answer:
        if body is None:
            return _text(413, f"more than {BODY_LIMIT} bytes")
        try:
            request = review.decode(body, managed_namespace=managed)
        except ValueError as error:
            return _text(400, str(error))
        try:
            verdict = await self._decided(request, decide)
            if verdict.refused and await self._refresh():
                verdict = await self._decided(request, decide)
        except Exception:
            # Not allowed: the API server takes an error as a refusal of what only we may let through.
            log.exception("admission failed", kind=request.kind.kind, namespace=request.namespace, name=request.name)
            return _text(500, "the admission decision failed; see the log of the webhook")
        if verdict.refused:
            what = {"kind": request.kind.kind, "namespace": request.namespace, "name": request.name}
            log.info("refused", **what, why=verdict.refused)
        return 200, b"application/json", review.encode(request.uid, verdict)

    async def _decided(self, request: Request, decide: Decide) -> Verdict:
        """The verdict, with everything read that it asks for: an object more each time."""
        while True:
            try:
                return decide(request)
            except NotRead as missing:
                if missing.key in request.read:
                    raise
                read = {**request.read, missing.key: await self._read(missing.key)}
                request = msgspec.structs.replace(request, read=read)


def application(
    decisions: Decisions, ready: Callable[[], bool], refresh: Refresh = nothing_newer, read: Read = nothing_to_read
) -> Application:
    """The application with these decisions; `ready` is what `/readyz` tells."""
    return Application(decisions, ready, refresh, read)


def _text(status: int, content: str) -> Answer:
    return status, b"text/plain; charset=utf-8", content.encode()


async def _body(receive: Receive) -> bytes | None:
    """The body, None when it is too long. Raises ConnectionError when the client is gone before its end."""
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise ConnectionError("the client is gone")
        parts.append(event["body"])
        size += len(parts[-1])
        if size > BODY_LIMIT:
            return None
        if not event["more_body"]:
            return parts[0] if len(parts) == 1 else b"".join(parts)


class _Server(uvicorn.Server):
    """Leaves the signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebhookServer:
    """Serves an application over TLS until it is told to stop."""

    def __init__(self, app: ASGIApp, tls: Tls, host: str, port: int) -> None:
        """Binds the address at once; port 0 takes a free one. Raises OSError when it is taken."""
        self._socket = socket.create_server((host, port), family=_family(host), backlog=1024)
        # Connections inherit it. asyncio sets it only on sockets that name their protocol, which these don't, and
        # without it every answer waits 40 ms for the API server's delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app,
            http="httptools",
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
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
