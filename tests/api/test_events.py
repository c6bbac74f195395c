"""The stream of events: in order, nothing lost over processes and restarts, resets, filters, slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from api.events import hub as hubs
from api.events import stream as streams
from api.events.hub import Hub
from api.events.stream import EventStream, Wanted
from queue_manager.store import events
from queue_manager.store.records import Change, State, Wish
from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store
from tests.api.world import commit, configure, job
from tests.store.builders import NOW

Told = tuple[str, int, dict[str, Any]]
EVERYTHING = Wanted(frozenset(), lambda: None, {})


class Reader:
    """A client: what it was sent, as (event, id, data); comments are kept apart."""

    def __init__(self, response: EventStream) -> None:
        self.told: list[Told] = []
        self.places: list[int] = []
        self.comments = 0
        self.status = 0
        self.left_alone = asyncio.Event()
        self.over = asyncio.Event()
        self.leave = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self._grown = asyncio.Event()
        self._task = asyncio.create_task(self._run(response))

    async def _run(self, response: EventStream) -> None:
        await response({"type": "http"}, self._receive, self._send)
        self.over.set()

    async def _receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        try:
            await self.reads.wait()
        except asyncio.CancelledError:
            self.left_alone.set()
            raise
        self.status = message.get("status", self.status)
        for text in filter(None, message.get("body", b"").decode().split("\n\n")):
            lines = dict(line.split(": ", 1) for line in text.split("\n"))
            self.comments += "" in lines
            if "id" in lines:
                self.places.append(int(lines["id"]))
            if "event" in lines:
                self.told.append((lines["event"], int(lines["id"]), msgspec.json.decode(lines["data"])))
        self._grown.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._grown.clear()
                await self._grown.wait()

    async def names(self, count: int) -> list[str]:
        """Names of the first so many workloads that were told."""
        await self.until(lambda: len([each for each in self.told if each[0] == "workload"]) >= count)
        return [data["name"] for name, _, data in self.told if name == "workload"]

    async def close(self) -> None:
        self.leave.set()
        await self._task


@contextlib.asynccontextmanager
async def reading(
    hub: Hub, after: int | None = None, wanted: Wanted = EVERYTHING, **options: Any
) -> AsyncIterator[Reader]:
    reader = Reader(EventStream(hub, wanted, after, **options))
    try:
        yield reader
    finally:
        await reader.close()


def add(store: Store, *names: str, queue: str = "nlp", **values: Any) -> None:
    for name in names:
        commit(store, Change(row=job(name, queue, 1, **values)))


@pytest.fixture
def requests(store: Store) -> RequestStore:
    return RequestStore(store.engine)


async def test_what_happens_is_told_in_order_with_what_it_was_before(store: Store, requests: RequestStore):
    async with reading(Hub(requests)) as reader:
        await reader.until(lambda: bool(reader.told))
        assert reader.told[0][0] == "ready"
        configure(store)
        add(store, "a")
        row = store.find_workloads("team-nlp", "a")[0]
        store.instruct(row.uid, Wish.HOLD, {}, who="eve", reason="because", source="test", now=NOW)
        commit(store, Change(row=replace(row, message="only words"), explanation={}))
        row = store.find_workloads("team-nlp", "a")[0]
        commit(store, Change(row=replace(row, state=State.HELD), explanation={}))
        await reader.until(lambda: len(reader.told) >= 5)
    kinds = [name for name, _, _ in reader.told]
    assert kinds == ["ready", "configuration", "workload", "action", "workload"]
    assert reader.places == sorted(reader.places)
    _, revision, new, action, held = (data for _, _, data in reader.told)
    assert (revision["revision"], revision["author"]) == (1, "ada")
    assert (new["name"], new["before"], new["state"], new["queue"]) == ("a", None, "waiting", "nlp")
    assert (action["action"], action["who"], action["reason"]) == ("hold", "eve", "because")
    assert (held["before"], held["state"]) == ("waiting", "held")


async def test_who_comes_back_to_another_process_misses_nothing(store: Store, requests: RequestStore):
    async with reading(Hub(requests)) as reader:
        await reader.until(lambda: bool(reader.told))
        add(store, "a", "b")
        assert await reader.names(2) == ["a", "b"]
        place = reader.told[1][1]
    add(store, "c")
    async with reading(Hub(RequestStore(store.engine)), place) as reader:
        assert await reader.names(2) == ["b", "c"]
        add(store, "d")
        assert await reader.names(3) == ["b", "c", "d"]
        assert all(name != "reset" for name, _, _ in reader.told)


async def test_who_is_far_behind_reads_from_the_table(
    store: Store, requests: RequestStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hubs, "RING", 2)
    monkeypatch.setattr(hubs, "BATCH", 3)
    hub = Hub(requests)
    async with reading(hub) as first, reading(hub) as slow:
        await slow.until(lambda: bool(slow.told))
        slow.reads.clear()
        names = [f"n{number:02}" for number in range(12)]
        add(store, *names)
        assert await first.names(12) == names
        slow.reads.set()
        assert await slow.names(12) == names
        assert len(hub._ring) <= 5


async def test_what_is_not_kept_any_more_is_told_by_a_reset(store: Store, requests: RequestStore):
    add(store, "a", "b")
    requests.purge(NOW + timedelta(hours=1), NOW)
    add(store, "c")
    last = requests.known_events().last
    for after in (0, last - 2, last + 100):
        async with reading(Hub(requests), after) as reader:
            await reader.until(lambda: bool(reader.told))
            add(store, f"after-{after}")
            await reader.names(1)
            assert [name for name, _, _ in reader.told] == ["reset", "workload"]
            assert reader.told[0][1] == requests.known_events().last - 1
    async with reading(Hub(requests), last - 1) as reader:
        assert (await reader.names(1))[0] == "c"


async def test_filters_choose_and_places_go_on(store: Store, requests: RequestStore):
    hub = Hub(requests)
    configure(store)
    nlp = Wanted(frozenset({"workload"}), lambda: frozenset({"nlp"}), {"user": frozenset({"eve"})})
    async with reading(hub, wanted=nlp) as reader:
        await reader.until(lambda: bool(reader.told))
        add(store, "a", user="eve")
        add(store, "b", user="ada")
        add(store, "c", queue="vision", user="eve")
        configure(store, [])
        add(store, "d", user="eve")
        assert await reader.names(2) == ["a", "d"]
        assert {name for name, _, _ in reader.told} == {"ready", "workload"}
        add(store, "e", user="ada")
        last = requests.known_events().last
        await reader.until(lambda: reader.places[-1] == last)


async def test_a_quiet_stream_shows_that_it_is_alive(requests: RequestStore):
    async with reading(Hub(requests), heartbeat=0.01) as reader:
        await reader.until(lambda: reader.comments >= 2)


async def test_a_client_that_does_not_read_is_left(
    store: Store, requests: RequestStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "PATIENCE", 0.05)
    hub = Hub(requests)
    reader = Reader(EventStream(hub, EVERYTHING, None))
    await reader.until(lambda: bool(reader.told))
    assert hub.streams == 1
    reader.reads.clear()
    add(store, "a")
    async with asyncio.timeout(30):
        await reader.left_alone.wait()
    reader.reads.set()
    async with asyncio.timeout(30):
        await reader.over.wait()
    assert (hub.streams, reader.leave.is_set()) == (0, False)


async def test_more_streams_than_a_process_can_serve_are_refused(
    requests: RequestStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "STREAMS", 1)
    hub = Hub(requests)
    async with reading(hub) as reader:
        await reader.until(lambda: bool(reader.told))
        refused: list[Any] = []

        async def send(message: Any) -> None:
            refused.append(message)

        await EventStream(hub, EVERYTHING, None)({"type": "http"}, reader._receive, send)
        assert refused[0]["status"] == 503


def test_ids_grow_in_the_order_of_commits(engine: Engine):
    """A reader would miss an event whose id is smaller than one that it has seen already."""
    order: list[str] = []

    def second() -> None:
        with engine.begin() as connection:
            events.write(connection, NOW, [("workload", "", {"name": "second"})])
            order.append("second has an id")

    with engine.begin() as connection:
        events.write(connection, NOW, [("workload", "", {"name": "first"})])
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first commits")
    thread.join()
    assert order == ["first commits", "second has an id"]
    assert [event.body["name"] for event in RequestStore(engine).events_after(0, 9)] == ["first", "second"]


def test_a_change_that_is_taken_back_was_never_told(engine: Engine, store: Store):
    with contextlib.suppress(ZeroDivisionError), engine.begin() as connection:
        events.write(connection, NOW, [("workload", "", {})])
        raise ZeroDivisionError
    assert RequestStore(engine).events_after(0, 9) == []


def test_no_more_than_so_many_events_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "MOST", 3)
    requests = RequestStore(engine)
    with engine.begin() as connection:
        events.write(connection, NOW, [("workload", "", {"n": n}) for n in range(8)])
    requests.purge(NOW - timedelta(days=1), NOW)
    assert [event.body["n"] for event in requests.events_after(0, 9)] == [5, 6, 7]


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?cohort=nowhere", {}, 404),
        ("?type=news", {}, 422),
        ("?state=lost", {}, 422),
        ("", {"Last-Event-ID": "latest"}, 400),
        ("", {"Last-Event-ID": "9" * 30}, 400),
    ],
)
def test_what_can_not_be_followed_is_refused(client: TestClient, query: str, headers: dict[str, str], status: int):
    answer = client.get(f"/api/v1/events{query}", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
