"""Starts and stops that wait for their turn, pause, or wait together until the API server takes writes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, ApiError, Object
from queue_manager.cluster.simulated import VirtualClock
from queue_manager.cluster.simulated.patches import json_patched
from queue_manager.controller.executor import PARALLEL_WRITES, SETTLE_DOWN, Executors
from queue_manager.controller.outage import GREATEST, concerns_all
from queue_manager.kinds.batch_job import POD_SET, JobKind
from queue_manager.kinds.kind import PodPlacement
from queue_manager.store.records import Action, OutboxEntry, State, WorkloadRow
from tests.store.builders import admitted, workload

UNREACHABLE = ApiError(0, "Unreachable", "connection refused")
INTERNAL = ApiError(500, "InternalError", "etcdserver: request timed out")


class Place:
    """Executors of Jobs `a0`, `a1`...; an API server that fails as `trouble` says of a name, else answers after
    `latency` seconds. It is the `Brain` as well."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.rows: dict[str, WorkloadRow] = {}
        self.objects: dict[str, Object] = {}
        self.leads = True
        self.broken = ""
        self.latency = 0.0
        self.trouble: Callable[[str], ApiError | None] = lambda name: None
        self.asked: list[str] = []
        self.times: list[float] = []
        self.at_once = self.most = 0
        self.idle: list[str] = []
        self.lookup: Any = None
        self.placement = PodPlacement(1)
        me: Any = self
        self.executors = Executors(me, me, self.clock, Random(0))
        self.executors.on_idle = self.idle.append

    # --- the API server ---

    async def patch(self, resource: Any, namespace: str, name: str, body: Any, *_: Any, **__: Any) -> Object:
        """As in `Cluster.patch`, for what suspends or not."""
        self.asked.append(name)
        self.times.append(self.clock.monotonic())
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.clock.sleep(self.latency)
        self.at_once -= 1
        if (error := self.trouble(name)) is not None:
            raise error
        made = json_patched(self.objects[name], body)
        made["metadata"]["resourceVersion"] = str(int(made["metadata"]["resourceVersion"]) + 1)
        self.objects[name] = made
        return made

    # --- the brain ---

    def row(self, uid: str) -> WorkloadRow | None:
        return self.rows.get(uid)

    def kind_of(self, row: WorkloadRow) -> JobKind:
        return JobKind()

    def object_of(self, row: WorkloadRow) -> Object:
        return self.objects[row.name]

    def placement_of(self, row: WorkloadRow) -> dict[str, PodPlacement]:
        return {POD_SET: self.placement}

    def live_pods(self, uid: str) -> int:
        return int(self.rows[uid].state is State.DRAINING)

    def may_write(self) -> bool:
        return self.leads

    def tells_events(self) -> bool:
        return False

    def observe(self, resource: Any, obj: Object) -> None:
        pass

    async def refresh(self, row: WorkloadRow, obj: Object) -> bool:
        if row.name == self.broken:
            raise RuntimeError("a bug")
        return True

    # --- what happens ---

    def submit(self, name: str, state: State = State.STARTING, *, suspended: bool | None = None) -> None:
        """A row is committed that is to be started or stopped."""
        self.rows[name] = admitted(workload(name, name=name, namespace="ns", kind="Job"), state=state)
        suspend = state is State.STARTING if suspended is None else suspended
        metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "annotations": {}}
        spec = {"parallelism": 1, "suspend": suspend, "template": {"spec": {"containers": [{"name": "main"}]}}}
        self.objects[name] = {"apiVersion": "batch/v1", "kind": JOBS.kind, "metadata": metadata, "spec": spec}
        self.executors.submit(OutboxEntry(uid=name, action=Action.SYNC, id=len(self.rows)))

    def running(self, *names: str) -> int:
        """How many Jobs are unsuspended, of these or of all."""
        return sum(not self.objects[name]["spec"]["suspend"] for name in names or self.objects)


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    made = Place()
    try:
        yield made
    finally:
        await made.executors.close()


def names(count: int) -> list[str]:
    return [f"a{number}" for number in range(count)]


async def test_what_waits_for_its_turn_has_no_task() -> None:
    async with place() as here:
        here.latency = 1.0
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(0.5)
        assert here.at_once == PARALLEL_WRITES
        assert len(asyncio.all_tasks()) <= PARALLEL_WRITES + 1
        await here.clock.advance(1000 / PARALLEL_WRITES + 1)
        assert here.running() == 1000
        assert here.most == PARALLEL_WRITES
        assert here.asked == names(1000)
        assert sorted(here.executors.done) == list(range(1, 1001))
        assert here.executors.oldest_age() == 0
        assert len(asyncio.all_tasks()) == 1


async def test_stops_go_before_starts() -> None:
    async with place() as here:
        here.latency = 1.0
        for name in names(200):
            here.submit(name)
        await here.clock.advance(0.5)
        here.submit("stop", State.DRAINING)
        await here.clock.advance(1.0)
        assert here.asked.index("stop") == PARALLEL_WRITES


async def test_a_start_that_becomes_a_stop_while_it_waits_goes_first_and_is_made_once() -> None:
    async with place() as here:
        here.latency = 1.0
        for name in names(200):
            here.submit(name)
        await here.clock.advance(0.5)
        here.submit("a199", State.DRAINING)
        await here.clock.advance(5.0)
        assert here.asked.index("a199") == PARALLEL_WRITES
        assert here.asked.count("a199") == 1


async def test_who_pauses_for_itself_takes_no_turn_from_others() -> None:
    async with place() as here:
        quota = ApiError(408, "Timeout", "try again")
        here.trouble = lambda name: quota if name.startswith("bad") else None
        for number in range(2 * PARALLEL_WRITES):
            here.submit(f"bad{number}")
        here.submit("good")
        await here.clock.advance(0.0)
        assert here.running("good") == 1
        assert len({failed.id for failed in here.executors.failed}) == 2 * PARALLEL_WRITES
        here.trouble = lambda name: None
        await here.clock.advance(1.0)
        assert here.running() == 2 * PARALLEL_WRITES + 1


async def test_a_job_that_settles_down_takes_no_turn_from_others() -> None:
    async with place() as here:
        kept = [f"kept{number}" for number in range(PARALLEL_WRITES)]
        # Started by somebody else, without their placement.
        here.placement = PodPlacement(1, node_selector={"rack": "r1"})
        for name in kept:
            here.submit(name, suspended=False)
        here.submit("other")
        await here.clock.advance(0.0)
        assert here.running(*kept) == 0
        assert here.running("other") == 1
        await here.clock.advance(SETTLE_DOWN - 0.1)
        assert here.running(*kept) == 0
        await here.clock.advance(0.2)
        assert here.running(*kept) == PARALLEL_WRITES


async def test_in_an_outage_one_at_a_time_tries_and_the_pauses_grow() -> None:
    async with place() as here:
        here.trouble = lambda name: UNREACHABLE
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(0.0)
        assert here.executors.outage.active
        assert len(here.asked) == PARALLEL_WRITES  # were on their way
        await here.clock.advance(300.0)
        tries = here.times[PARALLEL_WRITES:]
        assert 300 / (1.5 * GREATEST) <= len(tries) <= 80
        assert all(later > one for one, later in pairwise(tries))
        assert len({*here.asked[PARALLEL_WRITES:]}) > 10  # a single object is not in the way
        assert len(here.executors.failed) == len(tries) + 1
        assert here.executors.outage.age == pytest.approx(300.0)
        assert here.executors.oldest_age() == 300.0


async def test_after_an_outage_all_go_on_when_one_has_got_through() -> None:
    async with place() as here:
        here.trouble = lambda name: UNREACHABLE
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(60.0)
        here.trouble, here.latency, here.most = lambda name: None, 0.1, 0
        begun = len(here.asked)
        await here.clock.run_until(lambda: len(here.asked) > begun)
        await here.clock.advance(0.05)
        assert here.at_once == 1
        await here.clock.advance(2 * 0.1 * 1000 / PARALLEL_WRITES)
        assert here.most == PARALLEL_WRITES
        # But for those that have tried meanwhile, whose pauses end by themselves.
        assert here.running() > 980
        await here.clock.advance(1.5 * GREATEST)
        assert here.running() == 1000
        assert here.executors.outage.age == 0
        assert len(here.executors.done) == 1000


async def test_one_object_that_fails_for_ever_is_in_nobodys_way() -> None:
    async with place() as here:
        here.trouble = lambda name: INTERNAL if name == "poison" else None
        here.submit("poison")
        for name in names(20):
            await here.clock.advance(7.0)
            here.submit(name)
            await here.clock.advance(0.0)
            assert here.running(name) == 1
        assert here.asked.count("poison") > 5
        assert here.executors.outage.age == 0


async def test_internal_errors_of_two_workloads_without_an_answer_in_between_pause_all() -> None:
    async with place() as here:
        here.trouble = lambda name: INTERNAL
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(0.0)
        assert here.executors.outage.active
        await here.clock.advance(60.0)
        assert len(here.asked) < 2 * PARALLEL_WRITES


async def test_who_was_on_its_way_when_an_outage_began_keeps_its_place() -> None:
    async with place() as here:
        here.trouble = lambda name: UNREACHABLE
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(0.0)
        here.trouble = lambda name: None
        await here.clock.advance(1.0)
        others = PARALLEL_WRITES - 1  # all but the one that has told of it
        assert {*here.asked[PARALLEL_WRITES : PARALLEL_WRITES + others]} == {*names(PARALLEL_WRITES)[1:]}


async def test_a_server_that_asks_for_a_pause_is_left_alone_so_long() -> None:
    async with place() as here:
        here.trouble = lambda name: ApiError(429, "TooManyRequests", "too many", retry_after=20.0)
        for name in names(100):
            here.submit(name)
        await here.clock.advance(19.9)
        assert len(here.asked) == PARALLEL_WRITES
        here.trouble = lambda name: None
        await here.clock.advance(0.2)
        assert here.running() == 100


async def test_without_a_lease_nothing_is_asked_and_all_go_on_soon_after_it_is_back() -> None:
    async with place() as here:
        here.leads = False
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(60.0)
        assert here.asked == []
        assert len(here.executors.failed) < 150
        here.leads = True
        await here.clock.advance(1.1)
        assert here.running() >= 999


async def test_rows_that_need_nothing_any_more_do_not_end_an_outage() -> None:
    async with place() as here:
        here.trouble = lambda name: UNREACHABLE
        for name in names(1000):
            here.submit(name)
        await here.clock.advance(0.1)
        for uid in names(1000)[:500]:
            here.rows.pop(uid)
        await here.clock.advance(30.0)
        assert here.executors.outage.active
        assert len(here.asked) < PARALLEL_WRITES + 40
        assert here.at_once == 0


async def test_who_asked_is_told_when_a_try_is_over_but_not_while_it_pauses() -> None:
    async with place() as here:
        here.trouble = lambda name: UNREACHABLE
        here.submit("a")
        await here.clock.advance(1.0)
        assert here.executors.busy("a")
        assert here.idle == []
        here.trouble = lambda name: None
        await here.clock.advance(1.5 * GREATEST)
        assert here.idle == ["a"]
        assert not here.executors.busy("a")


async def test_the_failure_of_a_program_is_that_of_one_workload_only() -> None:
    async with place() as here:
        here.broken = "a0"
        for name in names(3):
            here.submit(name)
        await here.clock.advance(0.0)
        assert here.running() == 2
        assert not here.executors.busy("a0")
        here.broken = ""
        here.executors.wake("a0")
        await here.clock.advance(0.0)
        assert here.running() == 3


@pytest.mark.parametrize(
    ("error", "all_of_them"),
    [
        (UNREACHABLE, True),
        (ApiError(0, "Timeout", "no answer"), True),
        (ApiError(0, "NotLeading", "uncertain"), True),
        (ApiError(0, "NoProgress", "no end"), False),
        (ApiError(429, "TooManyRequests", "too many"), True),
        (ApiError(500, "InternalError", "etcdserver: leader changed"), True),
        (ApiError(500, "InternalError", 'failed calling webhook "x"'), False),
        (ApiError(503, "ServiceUnavailable", "shutting down"), True),
        (ApiError(403, "Forbidden", "denied"), False),
        (ApiError(422, "Invalid", "no"), False),
    ],
    ids=str,
)
def test_what_would_have_happened_to_any_write_concerns_all(error: ApiError, all_of_them: bool) -> None:
    assert concerns_all(error) is all_of_them
