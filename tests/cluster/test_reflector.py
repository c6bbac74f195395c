"""The reflector keeps its cache equal to the server, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.cluster import pods
from queue_manager.cluster.cache import key_of
from queue_manager.cluster.clock import Backoff, SystemClock, jittered, parse_rfc3339, rfc3339
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    CRDS,
    PODS,
    TRAIN_JOBS,
    ApiError,
    EventType,
    Object,
    PatchType,
    Query,
    Resource,
)
from queue_manager.cluster.reflector import Reflector
from queue_manager.cluster.simulated import (
    Fault,
    Planned,
    PlannedFaults,
    SeededFaults,
    SimulatedCluster,
    VirtualClock,
)
from queue_manager.cluster.simulated.crds import definitions
from queue_manager.cluster.transport import ApiServer
from tests.cluster import stub as stubs
from tests.cluster.stub import event, says, streams


class Seen:
    """Plays the events of a reflector into a dict of its own, and checks that each makes sense."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[str, str]] = []

    def __call__(self, resource: Resource, kind: EventType, new: Object | None, old: Object | None) -> None:
        assert new is not None
        key = key_of(new)
        self.events.append((kind.value, key[1]))
        if kind is EventType.ADDED:
            assert key not in self.objects
            assert old is None
            self.objects[key] = new
        elif kind is EventType.MODIFIED:
            assert self.objects[key] is old
            assert old["metadata"]["uid"] == new["metadata"]["uid"]
            self.objects[key] = new
        else:
            assert self.objects.pop(key) is old


@asynccontextmanager
async def reflecting(reflector: Reflector) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def names(reflector: Reflector) -> list[str]:
    return [obj["metadata"]["name"] for obj in reflector.cache]


async def test_lists_in_pages_then_follows(clock: VirtualClock) -> None:
    cluster, seen = SimulatedCluster(clock), Seen()
    for number in range(7):
        await cluster.create(CONFIG_MAPS, "default", config_map(f"m{number}"))
    reflector = Reflector(cluster, CONFIG_MAPS, clock=clock, random=Random(1), query=Query(limit=3), on_event=seen)
    assert not reflector.synced.is_set()
    async with reflecting(reflector):
        await clock.advance(0)
        assert reflector.synced.is_set()
        assert reflector.available
        assert len(reflector.cache) == 7
        await cluster.create(CONFIG_MAPS, "default", config_map("new"))
        await cluster.patch(CONFIG_MAPS, "default", "new", {"data": {"x": "1"}}, PatchType.MERGE)
        await cluster.delete(CONFIG_MAPS, "default", "m0")
        await clock.advance(0)
        assert seen.events[-3:] == [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "m0")]
        assert reflector.cache.get("default", "new") == await cluster.get(CONFIG_MAPS, "default", "new")
        # Watches end and begin again for an hour: no new list, and a small lag thanks to the bookmarks.
        await clock.advance(3600)
        assert reflector.relists == 1
        assert reflector.lag <= 60
        await cluster.delete(CONFIG_MAPS, "default", "m1")
        await clock.advance(0)
        assert seen.objects.keys() == {("default", name) for name in names(reflector)}


async def test_deletions_during_a_gap_are_told_after_the_new_list(clock: VirtualClock) -> None:
    faults, seen = PlannedFaults(), Seen()
    cluster = SimulatedCluster(clock, faults=faults)
    for name in ("kept", "lost", "again"):
        await cluster.create(CONFIG_MAPS, "default", config_map(name))
    reflector = Reflector(cluster, CONFIG_MAPS, clock=clock, random=Random(1), on_event=seen)
    async with reflecting(reflector):
        await clock.advance(0)
        faults.break_watch(CONFIG_MAPS)
        await cluster.delete(CONFIG_MAPS, "default", "lost")
        await cluster.delete(CONFIG_MAPS, "default", "again")
        await cluster.create(CONFIG_MAPS, "default", config_map("again"))
        await cluster.create(CONFIG_MAPS, "default", config_map("new"))
        cluster.state.compact()
        before = len(seen.events)
        await clock.advance(60)
        assert reflector.relists == 2
        assert sorted(seen.events[before:]) == [
            ("ADDED", "again"),
            ("ADDED", "new"),
            ("DELETED", "again"),
            ("DELETED", "lost"),
        ]
        assert sorted(names(reflector)) == ["again", "kept", "new"]


async def test_failures_back_off_and_lag_grows(clock: VirtualClock) -> None:
    class Dead:
        active = True

        def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
            return Fault.ERROR_BEFORE if self.active else None

        def drop_watch(self, resource: Resource) -> bool:
            return False

    faults = Dead()
    cluster = SimulatedCluster(clock, faults=faults)
    reflector = Reflector(cluster, PODS, clock=clock, random=Random(1))
    async with reflecting(reflector):
        await clock.advance(600)
        # 0.5 s doubling up to 30 s with jitter: some thirty tries in ten minutes, not thousands.
        assert 15 <= cluster.requests <= 50
        assert reflector.lag >= 600
        assert not reflector.synced.is_set()
        assert reflector.last_error == "500 InternalError"
        faults.active = False
        await clock.advance(60)
        assert reflector.synced.is_set()
        assert reflector.lag <= 60
        assert reflector.last_error == ""


async def test_a_page_token_that_expires_leads_to_one_whole_list(clock: VirtualClock) -> None:
    cluster = SimulatedCluster(clock)
    for number in range(5):
        await cluster.create(CONFIG_MAPS, "default", config_map(f"m{number}"))

    class Compacting:
        """Compacts after the first page."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        async def list(self, resource: Resource, query: Query, token: str = "") -> Any:
            page = await cluster.list(resource, query, token)
            if page.continue_token:
                cluster.state.compact()
            return page

    compacting: Any = Compacting()
    reflector = Reflector(compacting, CONFIG_MAPS, clock=clock, random=Random(1), query=Query(limit=2))
    async with reflecting(reflector):
        await clock.advance(0)
        assert len(reflector.cache) == 5


async def test_a_collection_that_comes_late_and_goes_again(clock: VirtualClock) -> None:
    cluster, seen = SimulatedCluster(clock, crds=[]), Seen()
    reflector = Reflector(cluster, TRAIN_JOBS, clock=clock, random=Random(1), on_event=seen)
    async with reflecting(reflector):
        await clock.advance(0)
        assert reflector.synced.is_set()
        assert not reflector.available
        await clock.advance(300)
        assert cluster.requests < 40
        for crd in definitions():
            await cluster.create(CRDS, "", crd)
        await clock.advance(60)
        assert reflector.available
        job = {"metadata": {"name": "a"}, "spec": {"runtimeRef": {"name": "r"}}}
        runtime = {"metadata": {"name": "r"}, "spec": {"template": {"spec": {}}}}
        await cluster.create(CLUSTER_TRAINING_RUNTIMES, "", runtime)
        await cluster.create(TRAIN_JOBS, "default", job)
        await clock.advance(0)
        assert seen.events == [("ADDED", "a")]
        await cluster.delete(CRDS, "", "trainjobs.trainer.kubeflow.org")
        await clock.advance(60)
        assert seen.events[-1] == ("DELETED", "a")
        assert not reflector.available


async def test_what_we_may_not_read_counts_as_absent_where_it_is_optional(clock: VirtualClock) -> None:
    cluster = SimulatedCluster(clock)
    await cluster.create(CONFIG_MAPS, "default", config_map("a"))

    class Guarded:
        """Grants the right to read later."""

        granted = False

        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        async def list(self, resource: Resource, query: Query, token: str = "") -> Any:
            if not self.granted:
                raise ApiError(403, "Forbidden", "configmaps is forbidden")
            return await cluster.list(resource, query, token)

    guarded: Any = Guarded()
    optional = Reflector(guarded, CONFIG_MAPS, clock=clock, random=Random(1), optional=True)
    needed = Reflector(guarded, CONFIG_MAPS, clock=clock, random=Random(1))
    async with reflecting(optional), reflecting(needed):
        await clock.advance(300)
        assert optional.synced.is_set()
        assert (names(optional), optional.lag <= 60) == ([], True)
        assert not needed.synced.is_set()
        guarded.granted = True
        await clock.advance(60)
        assert names(optional) == names(needed) == ["a"]


async def test_projection_and_indexes(clock: VirtualClock) -> None:
    cluster = SimulatedCluster(clock)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "owner-uid", "controller": True}
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    pod = {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"containers": [container]}}
    made = await cluster.create(PODS, "default", pod)
    reflector = Reflector(cluster, PODS, clock=clock, random=Random(1), project=pods.project)
    async with reflecting(reflector):
        await clock.advance(0)
        kept = reflector.cache.get("default", "p")
        assert kept is not None
        assert "containers" not in kept["spec"]
        assert pods.usage(kept) == {"cpu": 2000, "pods": 1}
        assert reflector.cache.owned_by("owner-uid") == [kept]
        assert reflector.cache.by_uid(made["metadata"]["uid"]) is kept
        assert reflector.cache.in_namespace("default") == [kept]
        await cluster.delete(PODS, "default", "p")
        await clock.advance(0)
        assert reflector.cache.owned_by("owner-uid") == []
        assert reflector.cache.by_uid(made["metadata"]["uid"]) is None
        assert reflector.cache.in_namespace("default") == []
        assert len(reflector.cache) == 0


async def test_an_expired_watch_in_the_middle_of_the_stream_leads_to_a_new_list() -> None:
    item = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "managedFields": [1]}}
    expired = b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}\n'
    lists = [
        says({"metadata": {"resourceVersion": "5"}, "items": [item]}),
        says({"metadata": {"resourceVersion": "9"}}),
    ]
    watches = [streams(event("MODIFIED", "a", "6", uid="u"), expired), streams(30.0)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1":
            return await says({"resources": [{"name": "pods"}]})(request)
        answers = watches if "watch" in request.query else lists
        return await answers.pop(0)(request)

    async with stubs.stub_server() as stub:
        stub.answers = [answer]
        server, seen, gone = ApiServer(Credentials.token(stub.url)), Seen(), asyncio.Event()
        reflector = Reflector(server, PODS, clock=SystemClock(), random=Random(1), on_event=seen)
        reflector.subscribe(lambda resource, kind, new, old: gone.set() if kind is EventType.DELETED else None)
        async with reflecting(reflector):
            await asyncio.wait_for(reflector.synced.wait(), 5)
            kept = reflector.cache.get("n", "a")
            assert kept is not None
            assert "managedFields" not in kept["metadata"]
            await asyncio.wait_for(gone.wait(), 5)
        assert seen.events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        await server.close()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_cache_converges_under_faults(seed: int) -> None:
    asyncio.run(_converges(seed))


async def _converges(seed: int) -> None:
    random, clock = Random(seed), VirtualClock()
    faults = SeededFaults(Random(seed + 1), requests=0.2, watches=0.3)
    cluster = SimulatedCluster(clock, Random(seed), faults=faults)
    writer = cluster.as_user("somebody")
    seen = Seen()
    reflector = Reflector(cluster, CONFIG_MAPS, clock=clock, random=Random(seed), query=Query(limit=2), on_event=seen)
    async with reflecting(reflector):
        for _ in range(60):
            name = f"m{random.randrange(6)}"
            there = cluster.state.peek(CONFIG_MAPS, "default", name) is not None
            action = random.choice(("write", "write", "delete", "wait", "compact"))
            if action == "write" and there:
                body = {"data": {"x": str(random.random())}}
                await writer.patch(CONFIG_MAPS, "default", name, body, PatchType.MERGE)
            elif action == "write":
                await writer.create(CONFIG_MAPS, "default", config_map(name))
            elif action == "delete" and there:
                await writer.delete(CONFIG_MAPS, "default", name)
            elif action == "compact" and random.random() < 0.3:
                cluster.state.compact()
            else:
                await clock.advance(random.random() * 5)
        faults.active = False
        await clock.advance(120)
        expected = {key_of(obj): obj for obj in cluster.state.storage.all(CONFIG_MAPS)}
        assert {key_of(obj): obj for obj in reflector.cache} == expected
        assert seen.objects == expected


def test_backoff_grows_with_jitter_and_obeys_the_server() -> None:
    backoff = Backoff(Random(1), first=1, greatest=30)
    pauses = [backoff.next() for _ in range(200)]
    assert 0.5 <= pauses[0] <= 1.5
    assert all(15 <= pause <= 45 for pause in pauses[5:])
    assert len(set(pauses)) == 200
    assert backoff.next(at_least=100) == 100
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next() <= 1.5
    assert 1 <= jittered(2, Random(3)) <= 3


def test_times_of_the_api() -> None:
    clock = VirtualClock()
    assert parse_rfc3339(rfc3339(clock.now())) == clock.now()
    with pytest.raises(ValueError, match="time zone"):
        parse_rfc3339("2026-01-01T00:00:00")


async def test_faults_before_and_after_the_effect(clock: VirtualClock) -> None:
    plan = [Planned(Fault.TIMEOUT_AFTER, "create"), Planned(Fault.CONFLICT, "patch", "configmaps", "a")]
    cluster = SimulatedCluster(clock, faults=PlannedFaults(plan))
    with pytest.raises(ApiError) as lost:
        await cluster.create(CONFIG_MAPS, "default", config_map("a"))
    assert lost.value.transient
    assert cluster.state.peek(CONFIG_MAPS, "default", "a") is not None
    with pytest.raises(ApiError) as conflict:
        await cluster.patch(CONFIG_MAPS, "default", "a", {"data": {"x": "1"}}, PatchType.MERGE)
    assert conflict.value.conflict
    assert "x" not in (await cluster.get(CONFIG_MAPS, "default", "a"))["data"]
