"""A stub HTTP server that answers as a test tells it, for what a healthy API server never does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stub:
    """Answers requests with `answers` in turn; the last one stays. `seen` are the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


@asynccontextmanager
async def stub_server() -> AsyncIterator[Stub]:
    stub = Stub()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", stub.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stub
    finally:
        await runner.cleanup()


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """A JSON body, or text as it is."""

    async def answer(request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(text=text, status=status, headers=headers, content_type="application/json")

    return answer


def status(code: int, reason: str, message: str = "", **details: Any) -> dict[str, Any]:
    """A Status object."""
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def streams(*parts: bytes | float, cut: bool = False) -> Answer:
    """A watch: bytes are sent as one chunk, numbers are pauses in seconds; `cut` breaks the connection in the end."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            if isinstance(part, bytes):
                await response.write(part)
            else:
                await asyncio.sleep(part)
        if cut and request.transport is not None:
            request.transport.close()
        return response

    return answer


def event(kind: str, name: str = "a", version: str = "1", uid: str = "u", **fields: Any) -> bytes:
    """One line of a watch."""
    metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": metadata, **fields}}).encode() + b"\n"
