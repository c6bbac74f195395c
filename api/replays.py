"""`Idempotency-Key`: a request that is sent again is answered as the first time, and done once.

A dependency of every route, behind who may use it, looks at the key; a middleware keeps the answer before it is sent.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

from fastapi import Header, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queue_manager.store.requests import RequestStore

from .context import Ctx
from .problems import ProblemError

REPLAYED = "Idempotency-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_SECRET = ("/api/v1/tokens",)
"""Answers that nobody may be able to read again."""

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=255,
        description="Of a POST: sent again within a day with the same key and body it is answered as the first time",
    ),
]


class ReplayedError(Exception):
    """The request was answered before."""

    def __init__(self, status: int, media_type: str, body: bytes) -> None:
        super().__init__(status)
        self.response = Response(body, status, {REPLAYED: "true"}, media_type or None)


async def once(request: Request, context: Ctx, key: Key = "") -> None:
    """Lets the first request with a key through; 409 while that is worked on, 422 where it asked for something else."""
    if request.method != "POST" or not key or request.url.path.startswith(_SECRET):
        return
    if not _KEY.fullmatch(key):
        raise ProblemError(400, "Bad Idempotency-Key", "it may have 1 to 255 visible ASCII characters")
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    asked_hash = hashlib.sha256(asked).digest()
    store, who = RequestStore(context.store.engine), context.caller.key
    found = await run_in_threadpool(store.begin_replay, who, key, asked_hash, context.now())
    if found is None:
        request.scope.setdefault("state", {})["replay"] = (store, who, key)
    elif found.hash != asked_hash:
        raise ProblemError(422, "Idempotency-Key used before", "the first request with this key was another one")
    elif found.status is None:
        detail = "the first request with this key is not answered yet"
        raise ProblemError(409, "Still working on it", detail, headers={"Retry-After": "1"})
    else:
        raise ReplayedError(found.status, found.media_type, found.body)


class Replays:
    """ASGI middleware: keeps the answer to a first request with a key. Of a server's error nothing is kept, so that it
    can be tried again."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            replay: tuple[RequestStore, str, str] | None = scope.get("state", {}).get("replay")
            if replay is None:
                await send(message)
                return
            messages.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self._finish(replay, messages)
                for each in messages:
                    await send(each)

        try:
            await self.app(scope, receive, keep)
        except BaseException:
            replay: Any = scope.get("state", {}).pop("replay", None)
            if replay is not None:
                await run_in_threadpool(replay[0].drop_replay, *replay[1:])
            raise

    async def _finish(self, replay: tuple[RequestStore, str, str], messages: list[Message]) -> None:
        store, who, key = replay
        status = messages[0]["status"]
        if status >= 500:
            await run_in_threadpool(store.drop_replay, who, key)
            return
        media_type = Headers(raw=messages[0]["headers"]).get("content-type", "")
        body = b"".join(message.get("body", b"") for message in messages[1:])
        await run_in_threadpool(store.finish_replay, who, key, status, media_type, body)
