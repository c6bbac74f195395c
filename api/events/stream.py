"""Server-sent events over a hub: places, filters, heartbeats, and clients that don't read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from queue_manager.store.events import ACTION, CONFIGURATION, Event

from ..problems import problem_response
from .hub import Hub

HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent, which keeps proxies from closing the connection."""
PATIENCE = 30.0
"""Seconds that a client may take for what it was sent; it can come back and read on."""
LONGEST = 3600.0
"""Seconds after which a stream ends: whoever reads on begins anew."""
PROOF = 5.0
"""Seconds after which who reads is asked again who they are, and what they may see: so long a stream outlives a token
that is revoked, or the last role, at most."""
STREAMS = 500
STREAMS_EACH = 50
"""Streams of one process; and those of one caller who gave a proof, in all processes of the server: nobody takes the
places of all others."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a stream has. `queues` are asked for anew when the configuration, or what the reader may see, has
    changed; None: all."""

    types: frozenset[str]
    queues: Callable[[], frozenset[str] | None]
    fields: Mapping[str, frozenset[str]]
    veiled: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """What people asked, and why, without what the reader may not see; None: as it is."""

    def chooses(self, event: Event, queues: frozenset[str] | None) -> bool:
        """Whether an event is wanted."""
        if self.types and event.type not in self.types:
            return False
        if event.type == CONFIGURATION:
            return not self.fields
        if queues is not None and event.queue not in queues:
            return False
        return all(event.body.get(name) in values for name, values in self.fields.items())


async def _always() -> bool:
    return True


class EventStream(Response):
    """A response that goes on until the client leaves, does not read, or may not any more, the process ends, or an hour
    is over. `may_go_on` says every few seconds whether it may still."""

    def __init__(
        self,
        hub: Hub,
        wanted: Wanted,
        after: int | None,
        heartbeat: float = HEARTBEAT,
        may_go_on: Callable[[], Awaitable[bool]] = _always,
        who: str = "",
    ) -> None:
        super().__init__()
        self._who = who
        self._hub, self._wanted, self._after, self._heartbeat = hub, wanted, after, heartbeat
        self._may_go_on = may_go_on
        self._proofs = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._refusal():
            await _refuse(*refusal)(scope, receive, send)
            return
        if not self._who:
            await self._stream(receive, send)
            return
        seat = self._hub.seats.take(self._who, STREAMS_EACH)
        if seat is None:
            detail = f"{STREAMS_EACH} streams of yours are open already"
            await _refuse(429, "Too many streams", detail)(scope, receive, send)
            return
        try:
            await self._stream(receive, send)
        finally:
            self._hub.seats.give_back(self._who, seat)

    async def _stream(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        try:
            known = await self._hub.begin()
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            ways = (
                self._push(self._texts(known.purged, known.last), send),
                _until_gone(receive),
                self._until_refused(),
                self._hub.closing.wait(),
            )
            tasks = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(tasks, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._hub.end()

    def _refusal(self) -> tuple[int, str, str] | None:
        if self._hub.closing.is_set():
            return 503, "Server is ending", "try again in a moment"
        if self._hub.streams >= STREAMS:
            return 503, "Too many streams", f"{STREAMS} streams are open already"
        return None

    async def _until_refused(self) -> None:
        await asyncio.sleep(PROOF)
        while await self._may_go_on():
            self._proofs += 1
            await asyncio.sleep(PROOF)

    async def _push(self, texts: AsyncIterator[bytes], send: Send) -> None:
        async for text in texts:
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": text, "more_body": True})

    async def _texts(self, purged: int, last: int) -> AsyncIterator[bytes]:
        after = self._after
        yield b"retry: 2000\n\n"
        if after is not None and not purged <= after <= last:
            yield _text("reset", last, {"reason": f"events after {after} are not there any more; read everything anew"})
            after = last
        elif after is None:
            after = last
            yield _text("ready", last, {})
        seen, queues = self._seen(), await run_in_threadpool(self._wanted.queues)
        async for batch in self._hub.follow(after, self._heartbeat):
            if not batch:
                yield b": still here\n\n"
                continue
            # What is told is what may be seen now, however old it is.
            if seen != self._seen():
                seen, queues = self._seen(), await run_in_threadpool(self._wanted.queues)
            found = [
                _text(event.type, event.id, {"at": event.at, **await self._told(event, queues)})
                for event in batch
                if self._wanted.chooses(event, queues)
            ]
            # The place of what was left out is told, too: who comes back does not go through it again.
            yield b"".join(found) or f"id: {batch[-1].id}\n\n".encode()

    def _seen(self) -> tuple[int, int]:
        """Another pair when what the reader may see may be another, too."""
        return self._hub.revisions, self._proofs

    async def _told(self, event: Event, queues: frozenset[str] | None) -> Mapping[str, Any]:
        """What is told of an event; what a revision changed is not for who follows, or may see, some queues."""
        if event.type == CONFIGURATION and queues is not None:
            return {"revision": event.body["revision"]}
        if event.type == ACTION and self._wanted.veiled is not None:
            return await run_in_threadpool(self._wanted.veiled, event.body)
        return event.body


def _refuse(status: int, title: str, detail: str) -> ASGIApp:
    return problem_response(status, title, detail, headers={"Retry-After": "10"})


def _text(name: str, id: int, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\nid: {id}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
