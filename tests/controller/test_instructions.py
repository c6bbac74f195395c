"""What people ask for by the API: carried out by whoever leads, once, or dropped where it makes no sense any more."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.port import TRAIN_JOBS
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.controller.world import World, train_job


async def test_a_waiting_job_that_is_held_lets_others_pass_until_it_is_released(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=30))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 4, seconds=30))
        await world.submit(train_job("c", 4, seconds=30))
        await world.until(lambda: world.row("c") is not None)
        world.ask("b", Wish.HOLD, reason="data is not right yet")
        row = await world.until_state("b", State.HELD)
        assert (row.reason, row.message) == ("HeldByOperator", "Held by eve: data is not right yet")
        explanation = store.explanation(row.uid)
        assert explanation is not None
        assert [(b["type"], b["message"]) for b in explanation["blockers"]] == [(row.reason, row.message)]
        await world.until_state("c", State.FINISHED)
        assert world.state("b") is State.HELD
        world.ask("b", Wish.RELEASE)
        await world.until_state("b", State.FINISHED)
        assert [e for e in world.events("b") if e in ("Held", "Released")] == ["Held", "Released"]


async def test_a_running_job_that_is_held_stops_and_gives_its_quota_back(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.HOLD)
        row = await world.until_state("a", State.HELD)
        assert world.charged() == 0
        assert world.pods("a") == []
        assert world.cluster.state.get(TRAIN_JOBS, "ns", "a")["spec"]["suspend"] is True
        await world.clock.advance(600)
        assert world.state("a") is State.HELD
        world.ask("a", Wish.RELEASE)
        await world.until_state("a", State.RUNNING)
        [first, _] = store.history(row.uid).admissions
        assert (first.cause, first.cause_message) == ("HeldByOperator", "Held by eve: because")


async def test_hold_and_release_in_a_row_are_carried_out_in_order(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=60))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.HOLD)
        world.ask("a", Wish.RELEASE)
        await world.until(lambda: world.row("a").attempt == 2)  # type: ignore[union-attr]
        await world.until_state("a", State.FINISHED, within=300)
        assert store.pending_instructions() == []


async def test_what_makes_no_sense_any_more_is_dropped(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=20))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.RELEASE)
        await world.until(lambda: store.pending_instructions() == [], "dropped")
        assert world.state("a") is State.RUNNING
        await world.kill()
        world.ask("a", Wish.HOLD)
        await world.clock.advance(60)
        await world.start()
        await world.until_state("a", State.FINISHED)
        await world.until(lambda: store.pending_instructions() == [], "dropped with the job's end")


async def test_a_job_deleted_while_it_is_deactivated_or_held_is_over(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.HOLD)
        await world.until_state("a", State.HELD)
        await world.user.delete(TRAIN_JOBS, "ns", "a")
        await world.until_state("a", State.FINISHED)
        world.ask("a", Wish.RELEASE)
        await world.until(lambda: store.pending_instructions() == [], "dropped")


@pytest.mark.parametrize("seed", range(6))
async def test_a_dying_leader_carries_out_each_once(store: Store, seed: int) -> None:
    chance = Random(seed)
    async with World(store, seed) as world:
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.HOLD)
        await world.clock.advance(chance.uniform(0, 0.1))
        await world.restart()
        await world.until_state("a", State.HELD)
        world.ask("a", Wish.RELEASE)
        await world.clock.advance(chance.uniform(0, 0.1))
        await world.restart()
        await world.until_state("a", State.RUNNING)
        assert store.pending_instructions() == []
        assert world.admissions("a") == 2
        assert len(store.audit_entries(object="workload/ns/a")) == 2
        assert store.check(world.clock.now()) == []
