"""From arrival to end on the simulated cluster: what a user and the ledger see."""

from __future__ import annotations

from typing import Any

import pytest

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.cluster.port import TRAIN_JOBS, PatchType
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, JOBS, World, batch_job, train_job


async def test_a_gang_is_admitted_whole_runs_and_frees_everything(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4))
        row = await world.until_state("a", State.RUNNING)
        assert world.charged() == 16
        assert row.admission is not None
        await world.until(lambda: len(world.pods("a")) == 4, "four pods")
        await world.until_state("a", State.FINISHED)
        assert world.charged() == 0
        assert store.check(world.clock.now()) == []


async def test_a_second_gang_waits_with_numbers_and_follows_the_first(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 3))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 2))
        await world.until(lambda: world.state("b") and world.row("b").reason == "WaitingForQuota")  # type: ignore[union-attr]
        row = world.known_row("b")
        assert "4 nvidia.com/gpu short" in row.message
        assert world.charged() == 12
        await world.until_state("b", State.RUNNING)
        assert world.state("a") is State.FINISHED


async def test_a_higher_priority_preempts_the_whole_victim_which_runs_later(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("low", 4, seconds=60))
        await world.until_state("low", State.RUNNING)
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("low", State.DRAINING)
        assert world.charged() == 16
        await world.until_state("high", State.RUNNING)
        assert world.pods("low") == []
        assert world.state("low") is State.WAITING
        await world.until_state("low", State.FINISHED, within=300)
        assert world.admissions("low") == 2
        assert "Preempted" in world.events("low")


async def test_a_job_its_user_suspends_is_held_until_the_user_resumes_it(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 4, seconds=600), JOBS)
        await world.until_state("j", State.RUNNING)
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": True}}, PatchType.MERGE)
        await world.until_state("j", State.HELD)
        assert world.charged() == 0
        assert world.pods() == []
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": False}}, PatchType.MERGE)
        await world.until_state("j", State.RUNNING)
        assert world.admissions("j") == 2


async def test_a_deleted_job_is_charged_until_its_pods_are_gone(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(world.pods("a")) == 2)
        await world.user.delete(TRAIN_JOBS, "ns", "a")
        await world.until_state("a", State.DRAINING)
        assert world.charged() == 8
        await world.until_state("a", State.FINISHED)
        assert world.pods("a") == []
        assert world.charged() == 0


async def test_an_unknown_queue_is_named_and_the_job_starts_once_the_queue_exists(store: Store) -> None:
    async with World(store) as world:
        job = train_job("a", 1)
        job["metadata"]["labels"]["queue-manager.io/queue"] = "nobody"
        await world.submit(job)
        await world.until(lambda: world.state("a") is not None)
        row = world.known_row("a")
        assert (row.state, row.reason) == (State.WAITING, "UnknownQueue")
        assert 'no local queue "nobody"' in row.message
        world.configure(
            "apiVersion: queue-manager.io/v1\nkind: LocalQueue\n"
            "metadata: {name: nobody, namespace: ns}\nspec: {queue: team}\n"
        )
        await world.until_state("a", State.RUNNING)


async def test_a_job_started_without_an_admission_is_suspended_on_sight(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        rogue = train_job("rogue", 2)
        await world.user.create(TRAIN_JOBS, "ns", rogue)
        await world.until_state("rogue", State.WAITING)
        await world.until(lambda: world.cluster.state.get(TRAIN_JOBS, "ns", "rogue")["spec"]["suspend"])
        await world.until(lambda: world.pods("rogue") == [])
        assert world.charged() == 16


async def test_finished_pods_lend_their_quota(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 4, completions=6, seconds=20), JOBS)
        await world.until_state("j", State.RUNNING)
        assert world.charged() == 16
        await world.until(lambda: world.charged() == 8, "two of six pods left")
        assert store.check(world.clock.now()) == []
        await world.until_state("j", State.FINISHED)
        assert world.charged() == 0


async def test_a_job_started_by_its_user_that_may_start_is_not_taken_for_one_its_user_suspended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is suspended on sight, and before that arrives quota appears and it is admitted.
    world = World(store, nodes=8)
    patch = world.cluster.patch

    async def slow_patch(*arguments: Any, **named: Any) -> Any:
        await world.clock.sleep(5)
        return await patch(*arguments, **named)

    monkeypatch.setattr(world.cluster, "patch", slow_patch)
    async with world:
        await world.submit(train_job("first", 4, seconds=600))
        await world.until_state("first", State.RUNNING)
        await world.user.create(TRAIN_JOBS, "ns", train_job("eager", 2))
        await world.until_state("eager", State.WAITING)
        world.configure(CONFIGURATION.replace("nominalQuota: 16", "nominalQuota: 24"))
        await world.until_state("eager", State.FINISHED, within=600)
        assert "Held" not in world.events("eager")
        assert world.admissions("eager") == 1


async def test_a_plan_by_an_old_configuration_is_made_again(store: Store) -> None:
    async with World(store, nodes=6) as world:
        await world.submit(train_job("first", 4, seconds=600))
        await world.until_state("first", State.RUNNING)
        # Nobody tells the controller, as when somebody applies while a plan is being made.
        apply_text(Context(store, world.clock.now), CONFIGURATION.replace("nominalQuota: 16", "nominalQuota: 24"))
        await world.submit(train_job("second", 2))
        await world.until_state("second", State.RUNNING)
        assert world.charged() == 24
        assert store.check(world.clock.now()) == []


async def test_the_numbers_of_an_explanation_stay_true_while_its_reason_stays_the_same(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=20))
        await world.submit(train_job("b", 2, seconds=600))
        await world.until_state("b", State.RUNNING)
        await world.submit(train_job("c", 4))
        await world.until(lambda: world.row("c") and "needs 16, 0 free" in world.row("c").message)  # type: ignore[union-attr]
        await world.until_state("a", State.FINISHED)
        await world.clock.advance(3)
        row = world.known_row("c")
        assert "8 nvidia.com/gpu short" in row.message
        assert "needs 16, 8 free" in row.message
        explanation = store.explanation(row.uid)
        assert explanation is not None
        found = [(b["type"], b["available"], b["missing"]) for b in explanation["blockers"]]
        assert found == [("Quota", 8, 8), ("Topology", 2, 2)]
