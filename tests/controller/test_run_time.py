"""max-run-time: counted over all admissions of a workload; who has used it up is deactivated."""

from __future__ import annotations

from datetime import timedelta

from queue_manager.cluster.port import JOBS, TRAIN_JOBS, PatchType
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job


def limited(name: str, limit: str, **more: object) -> dict[str, object]:
    return train_job(name, 4, seconds=6000, max_run_time=limit, **more)  # type: ignore[arg-type]


async def test_a_job_over_its_run_time_is_stopped_and_deactivated(store: Store) -> None:
    async with World(store) as world:
        await world.submit(limited("a", "5m"))
        row = await world.until_state("a", State.RUNNING)
        assert row.max_run_time == 300_000_000
        row = await world.until_state("a", State.DEACTIVATED, within=400)
        assert row.reason == "MaximumExecutionTimeExceeded"
        assert "its max-run-time is 5m" in row.message
        assert 300_000_000 <= row.past_run_time < 301_000_000
        assert world.cluster.state.get(TRAIN_JOBS, "ns", "a")["spec"]["suspend"] is True
        assert world.charged() == 0
        [event] = [e for e in world.events("a") if e == "Deactivated"]
        assert event
        assert store.check(world.clock.now()) == []


async def test_run_time_adds_up_over_evictions_and_holds_and_not_while_waiting(store: Store) -> None:
    async with World(store) as world:
        await world.submit(limited("a", "5m"))
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(100)
        await world.submit(train_job("high", 4, seconds=200, high=True))
        row = await world.until_state("a", State.WAITING)
        first = row.past_run_time
        assert 100_000_000 <= first < 110_000_000
        await world.until_state("a", State.RUNNING, within=600)
        await world.clock.advance(100)
        world.ask("a", Wish.HOLD)
        row = await world.until_state("a", State.HELD)
        assert 200_000_000 <= row.past_run_time < 220_000_000
        await world.clock.advance(3600)
        world.ask("a", Wish.RELEASE)
        await world.until_state("a", State.RUNNING)
        row = await world.until_state("a", State.DEACTIVATED, within=200)
        lasted = sum(
            (a.evicted_at - a.begun_at for a in store.history(row.uid).admissions if a.evicted_at), timedelta()
        )
        assert timedelta(seconds=300) <= lasted < timedelta(seconds=301)


async def test_a_suspension_by_its_user_neither_counts_nor_resets(store: Store) -> None:
    async with World(store) as world:
        job = batch_job("j", 2, seconds=6000)
        job["metadata"]["annotations"] = {"queue-manager.io/max-run-time": "2m"}
        await world.submit(job, JOBS)
        await world.until_state("j", State.RUNNING)
        await world.clock.advance(60)
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": True}}, PatchType.MERGE)
        row = await world.until_state("j", State.HELD)
        assert 60_000_000 <= row.past_run_time < 65_000_000
        await world.clock.advance(600)
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": False}}, PatchType.MERGE)
        await world.until_state("j", State.RUNNING)
        await world.clock.advance(40)
        assert world.state("j") is State.RUNNING
        await world.until_state("j", State.DEACTIVATED, within=60)


async def test_a_release_gives_the_whole_time_again(store: Store) -> None:
    async with World(store) as world:
        await world.submit(limited("a", "2m"))
        await world.until_state("a", State.DEACTIVATED, within=200)
        world.ask("a", Wish.RELEASE)
        row = await world.until_state("a", State.RUNNING)
        assert row.past_run_time == 0
        await world.clock.advance(100)
        assert world.state("a") is State.RUNNING
        await world.until_state("a", State.DEACTIVATED, within=60)


async def test_the_end_of_the_run_time_holds_over_a_restart(store: Store) -> None:
    async with World(store) as world:
        await world.submit(limited("a", "2m"))
        row = await world.until_state("a", State.RUNNING)
        assert row.admission is not None
        await world.clock.advance(60)
        await world.restart(after=30)
        await world.until_state("a", State.DEACTIVATED, within=60)
        [admission] = store.history(row.uid).admissions
        assert admission.evicted_at is not None
        assert admission.evicted_at - admission.admitted_at < timedelta(seconds=121)


async def test_a_job_that_finishes_in_its_last_second_has_finished(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 1, seconds=58, max_run_time="60s"))
        row = await world.until_state("a", State.FINISHED)
        assert row.reason == "Succeeded"


async def test_a_run_time_that_is_none_is_named_and_the_job_waits_for_a_right_one(store: Store) -> None:
    async with World(store) as world:
        await world.submit(limited("a", "an hour"))
        row = await world.until_state("a", State.HELD)
        assert "metadata.annotations[queue-manager.io/max-run-time] must be a duration such as 90m" in row.message
        body = {"metadata": {"annotations": {"queue-manager.io/max-run-time": "1h"}}}
        await world.user.patch(TRAIN_JOBS, "ns", "a", body, PatchType.MERGE)
        row = await world.until_state("a", State.RUNNING)
        assert row.max_run_time == 3_600_000_000
