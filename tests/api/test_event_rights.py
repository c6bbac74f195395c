"""The stream of events follows what its reader may see: it ends with the token and the last role, and names nothing
that is hidden."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from api.app import create_app
from api.auth.authentication import Authentication, Proof, UnavailableError
from api.auth.identity import Identity, Source
from api.auth.roles import Grant, Role
from api.auth.token_verifier import TokenVerifier
from api.context import Context
from api.events import reader as readers
from api.events import stream as streams
from api.events.reader import Reader
from api.seats import Seats
from api.shared import Shared
from queue_manager.store.records import Change, Wish
from queue_manager.store.store import Store
from queue_manager.store.tokens import Scope, new_secret
from tests.api.callers import MAKER, TREE, document, settle, token
from tests.api.world import commit, configure, job
from tests.store.builders import NOW

OWN = "research/nlp"
OPERATOR = {"role": "operator", "node": OWN, "subjects": [{"kind": "Token", "name": "bot"}]}


class Following:
    """A client of the application that follows the events."""

    def __init__(self, app: ASGIApp, secret: str, after: str = "") -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.raw = ""
        self.status = 0
        self._leave, self._grown = asyncio.Event(), asyncio.Event()
        headers = [(b"authorization", f"Bearer {secret}".encode()), (b"host", b"localhost")]
        headers += [(b"last-event-id", after.encode())] if after else []
        scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "raw_path": b"/api/v1/events"}
        scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http"}
        scope |= {"http_version": "1.1", "root_path": "", "server": ("localhost", 80), "asgi": {"version": "3.0"}}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self._leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        text = message.get("body", b"").decode()
        self.raw += text
        for block in filter(None, text.split("\n\n")):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in lines:
                self.told.append((lines["event"], msgspec.json.decode(lines["data"])))
        self._grown.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._grown.clear()
                await self._grown.wait()

    async def over(self) -> None:
        """Waits until the server has ended it."""
        async with asyncio.timeout(30):
            await asyncio.shield(self.task)

    async def close(self) -> None:
        self._leave.set()
        await self.task


@contextlib.asynccontextmanager
async def following(app: ASGIApp, secret: str, after: str = "") -> AsyncIterator[Following]:
    client = Following(app, secret, after)
    try:
        await client.until(lambda: bool(client.raw))
        yield client
    finally:
        await client.close()


def server(store: Store, now: Callable[[], datetime] = lambda: NOW) -> Any:
    authentication = Authentication(required=True, verifiers=[TokenVerifier(store, now)])
    return create_app(store, now=now, registry=CollectorRegistry(), authentication=authentication)


def unbind(store: Store) -> None:
    """Takes the roles of the binding `bots` away."""
    gone = [("RoleBinding", "", "bots")]
    store.apply_configuration([], delete=gone, author="root", reason="", now=NOW, source="test")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PROOF", 0.01)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_stream_ends_with_its_token(store: Store, how: str):
    settle(store)
    now = [NOW]
    secret = new_secret()
    end = NOW + timedelta(minutes=1)
    made = store.access.create_token(secret, "ci", (Scope("viewer"),), end, MAKER, NOW)
    async with following(server(store, lambda: now[0]), secret) as client:
        await client.until(lambda: bool(client.told))
        if how == "revoked":
            store.access.revoke_token(made.id, MAKER, NOW)
        else:
            now[0] = end
        await client.over()
        assert client.status == 200


@pytest.mark.usefixtures("quick")
async def test_a_stream_ends_with_the_last_role_of_its_reader(store: Store):
    settle(store, document("RoleBinding", "bots", OPERATOR))
    secret = token(store, "viewer", "gone", name="bot")
    async with following(server(store), secret) as client:
        await client.until(lambda: bool(client.told))
        configure(store, TREE)
        store.apply_configuration(
            [], delete=[("RoleBinding", "", "bots")], author="root", reason="", now=NOW, source=""
        )
        await client.over()


async def test_a_role_that_is_lost_is_lost_for_events_of_before_too(store: Store):
    """Whoever reads on from an old place is told what they may see now."""
    at_vision = {"role": "viewer", "node": "vision", "subjects": [{"kind": "Token", "name": "bot"}]}
    settle(store, document("RoleBinding", "bots", at_vision), hidden=True)
    secret = token(store, "viewer", OWN, name="bot")
    app = server(store)
    async with following(app, secret) as client:
        await client.until(lambda: bool(client.told))
        commit(store, Change(row=job("seen", "resnet", 1)))
        await client.until(lambda: len(client.told) == 2)
        store.apply_configuration(
            [], delete=[("RoleBinding", "", "bots")], author="root", reason="", now=NOW, source=""
        )
        await client.until(lambda: client.told[-1][0] == "configuration")
        commit(store, Change(row=job("hidden", "resnet", 1)))
        commit(store, Change(row=job("own", "bert", 1)))
        await client.until(lambda: client.told[-1][0] == "workload" and client.told[-1][1]["name"] == "own")
        assert "hidden" not in client.raw
    async with following(app, secret, after="0") as client:
        commit(store, Change(row=job("end", "bert", 1)))
        await client.until(lambda: "end" in client.raw)
        assert "seen" not in client.raw
        assert "own" in client.raw


class Provider:
    """Somebody who says whose a token is, or is away."""

    away = False

    def takes(self, credential: str) -> bool:
        return True

    async def verify(self, credential: str, address: str = "") -> Identity:
        if self.away:
            raise UnavailableError("nobody answers")
        return Identity("ada", source=Source.OIDC, scopes=(Grant(Role.VIEWER),))

    async def close(self) -> None:
        pass


async def test_while_nobody_can_say_whose_a_proof_is_a_stream_goes_on_for_a_while(store: Store):
    provider, now = Provider(), [0.0]
    caller = Identity("ada", source=Source.OIDC, address="10.0.0.1")
    proof = Proof(Authentication(required=True, verifiers=[provider]), caller, "x")
    reader = Reader(Context(store, lambda: NOW).asked_by(caller), proof, monotonic=lambda: now[0])
    assert await reader.may_go_on()
    provider.away = True
    now[0] = readers.UNPROVEN - 1
    assert await reader.may_go_on()
    now[0] += 1
    assert not await reader.may_go_on()
    provider.away = False
    assert await reader.may_go_on()


async def test_events_name_nothing_that_is_hidden(store: Store):
    settle(store, document("RoleBinding", "leads", {**OPERATOR, "node": "vision"}), hidden=True)
    secret = token(store, "queue-admin", OWN)
    async with following(server(store), secret) as client:
        await client.until(lambda: bool(client.told))
        training = store.find_workloads("team-resnet", "training")[0]
        blocked = store.find_workloads("team-bert", "blocked")[0]
        deeds: list[tuple[str, Wish, dict[str, Any], str]] = [
            (training.uid, Wish.EVICT, {}, "for us"),
            (blocked.uid, Wish.MOVE, {"queue": "resnet"}, "vision has room beside team-resnet/training"),
            (blocked.uid, Wish.HOLD, {}, "let it be"),
        ]
        for uid, wish, arguments, reason in deeds:
            store.instruct(uid, wish, arguments, who="root", reason=reason, source="test", now=NOW)
        commit(store, Change(row=job("secret", "resnet", 1)), Change(row=job("lost", "", 1, state=blocked.state)))
        moved = replace(blocked, queue="resnet")
        commit(store, Change(row=replace(moved, version=store.find_workloads("team-bert", "blocked")[0].version)))
        gone = [("RoleBinding", "", "leads")]
        store.apply_configuration([], delete=gone, author="vera", reason="vision's", now=NOW, source="test")
        commit(store, Change(row=job("last", "bert", 1)))
        await client.until(lambda: "last" in client.raw)
    assert [name for name, _ in client.told] == ["ready", "action", "action", "configuration", "workload"]
    for hidden in ("resnet", "vision", "training", "secret", "lost", "vera", "leads"):
        assert not re.search(rf"\b{hidden}\b", client.raw), client.raw
    assert [data["reason"] for name, data in client.told if name == "action"][1] == "let it be"


async def test_one_reader_does_not_take_the_places_of_all(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "STREAMS_EACH", 1)
    settle(store)
    app = server(store)
    mine, others = token(store, "viewer", name="mine"), token(store, "viewer", name="others")
    async with following(app, mine) as first:
        async with following(app, mine) as second:
            await second.over()
            assert (first.status, second.status) == (200, 429)
        async with following(app, others) as third:
            assert third.status == 200
    async with following(app, mine) as again:
        assert again.status == 200
    assert app.state.hub.streams == 0


def _sit(shared: Shared, who: str, answers: Connection) -> None:
    answers.send(Seats(shared).take(who, 1))
    signal.pause()


async def test_streams_of_a_caller_count_in_all_processes(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "STREAMS_EACH", 1)
    settle(store)
    shared = Shared()
    verifier = TokenVerifier(store, lambda: NOW)
    authentication = Authentication(required=True, verifiers=[verifier])
    app = create_app(store, registry=CollectorRegistry(), authentication=authentication, shared=shared)
    secret = token(store, "viewer", name="mine")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=_sit, args=(shared, (await verifier.verify(secret)).key, theirs))
    other.start()
    try:
        assert await asyncio.to_thread(ours.recv) == 0
        async with following(app, secret) as client:
            await client.over()
            assert client.status == 429
    finally:
        other.kill()
        other.join()
    async with following(app, secret) as client:
        assert client.status == 200
