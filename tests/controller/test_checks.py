"""Admission checks: quota first, the start once all of them are ready; retry and rejection give it back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_manager.cluster.port import JOBS, TRAIN_JOBS, PatchType
from queue_manager.store.records import CheckState, State, Wish
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, batch_job, train_job, with_checks


def states(world: World, name: str) -> dict[str, str]:
    return {check.name: check.state.value for check in world.known_row(name).checks}


def suspended(world: World, name: str) -> bool:
    return bool(world.cluster.state.get(TRAIN_JOBS, "ns", name)["spec"]["suspend"])


async def test_quota_is_reserved_and_the_job_starts_once_all_checks_are_ready(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached", "licence"))
        await world.submit(train_job("a", 4, seconds=60))
        row = await world.until_state("a", State.RESERVED)
        assert row.message.endswith("these checks are ready: dataset-cached, licence")
        assert world.charged() == 16
        await world.clock.advance(600)
        assert suspended(world, "a")
        world.answer("a", "dataset-cached", "Ready", message="all 3 TB are there")
        await world.until(lambda: states(world, "a") == {"dataset-cached": "Ready"})
        await world.clock.advance(60)
        assert world.state("a") is State.RESERVED
        assert suspended(world, "a")
        assert world.says("a") == ("reserved", row.message)
        world.answer("a", "licence", "Ready")
        row = await world.until_state("a", State.RUNNING)
        assert row.admission is not None
        assert row.admission.checked_at is not None
        assert row.admission.checked_at - row.admission.admitted_at > timedelta(seconds=600)
        assert world.admissions("a") == 1
        await world.until_state("a", State.FINISHED)
        assert store.check(world.clock.now()) == []
        assert store.pending_instructions() == []


async def test_time_to_get_ready_and_run_time_begin_with_the_start_not_with_the_reservation(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4, seconds=6000, ready_after="never", max_run_time="40m"))
        await world.until_state("a", State.RESERVED)
        await world.clock.advance(7200)
        assert world.state("a") is State.RESERVED
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(29 * 60)
        assert world.state("a") is State.RUNNING
        row = await world.until_state("a", State.DRAINING)
        assert row.reason == "PodsReadyTimeout"
        assert 30 * 60 <= row.past_run_time / 1_000_000 < 30 * 60 + 2


async def test_a_retry_gives_the_quota_back_until_the_time_it_asks_for(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4))
        await world.until_state("a", State.RESERVED)
        await world.submit(train_job("b", 4, seconds=20))
        world.answer("a", "dataset-cached", "Retry", message="cache is full", after=300)
        row = await world.until_state("a", State.WAITING)
        assert row.not_before is not None
        assert timedelta(seconds=290) < row.not_before - world.clock.now() < timedelta(seconds=300)
        assert "cache is full" in row.message
        await world.until_state("b", State.RESERVED)
        world.answer("b", "dataset-cached", "Ready")
        await world.until_state("b", State.FINISHED)
        await world.until_state("a", State.RESERVED, within=400)
        assert states(world, "a") == {"dataset-cached": "Pending"}, "it has to be asked again"
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.FINISHED)
        first, second = store.history(row.uid).admissions
        assert (first.cause, first.started_at) == ("AdmissionCheck", None)
        assert second.admitted_at >= row.not_before


async def test_retries_without_a_time_wait_ever_longer(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4))
        pauses = []
        for attempt in range(1, 4):
            await world.until(
                lambda attempt=attempt: world.row("a") and world.known_row("a").attempt == attempt, within=900
            )
            await world.until_state("a", State.RESERVED)
            asked = world.clock.now()
            world.answer("a", "dataset-cached", "Retry")
            row = await world.until_state("a", State.WAITING)
            assert row.not_before is not None
            pauses.append(round((row.not_before - asked).total_seconds()))
        assert pauses == [60, 120, 240]


async def test_a_rejection_deactivates_until_released(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4))
        await world.until_state("a", State.RESERVED)
        world.answer("a", "dataset-cached", "Rejected", message="no such dataset")
        row = await world.until_state("a", State.DEACTIVATED)
        assert row.reason == "AdmissionCheck"
        assert "check dataset-cached rejected it (no such dataset)" in row.message
        assert world.charged() == 0
        assert suspended(world, "a")
        await world.clock.advance(3600)
        assert world.state("a") is State.DEACTIVATED
        world.ask("a", Wish.RELEASE)
        await world.until_state("a", State.RESERVED)
        assert states(world, "a") == {"dataset-cached": "Pending"}
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.FINISHED)


async def test_an_answer_before_the_reservation_counts_for_it(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4, seconds=100))
        await world.until_state("a", State.RESERVED)
        for name in ("early", "never"):
            await world.submit(train_job(name, 4, seconds=20))
            await world.until(lambda name=name: world.row(name) is not None)
        world.answer("early", "dataset-cached", "Ready")
        world.answer("never", "dataset-cached", "Rejected")
        await world.until_state("never", State.DEACTIVATED)
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.FINISHED, within=300)
        row = await world.until_state("early", State.FINISHED)
        assert [a.checked_at == a.admitted_at for a in store.history(row.uid).admissions] == [True]
        assert world.admissions("never") == 0


async def test_an_eviction_forgets_the_answers(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("low", 4, seconds=600))
        await world.until_state("low", State.RESERVED)
        world.answer("low", "dataset-cached", "Ready")
        await world.until_state("low", State.RUNNING)
        await world.submit(train_job("high", 4, seconds=20, high=True))
        await world.until_state("high", State.RESERVED)
        world.answer("high", "dataset-cached", "Ready")
        await world.until_state("high", State.FINISHED)
        await world.until_state("low", State.RESERVED)
        assert states(world, "low") == {"dataset-cached": "Pending"}


async def test_a_reserved_workload_is_preempted_like_any_other(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("low", 4))
        await world.until_state("low", State.RESERVED)
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("high", State.RESERVED)
        assert world.state("low") is State.WAITING
        assert world.charged() == 16
        await world.until(lambda: "Preempted" in world.events("low"))
        assert store.check(world.clock.now()) == []


async def test_a_reserved_job_its_user_starts_is_suspended_again(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RESERVED)
        await world.user.patch(TRAIN_JOBS, "ns", "a", {"spec": {"suspend": False}}, PatchType.MERGE)
        await world.until(lambda: not suspended(world, "a"))
        await world.until(lambda: suspended(world, "a") and not world.pods("a"))
        assert world.state("a") is State.RESERVED
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.RUNNING)


async def test_a_job_deleted_or_changed_while_reserved_gives_its_quota_back(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("gone", 2))
        await world.submit(batch_job("changed", 2), JOBS)
        await world.until_state("gone", State.RESERVED)
        await world.until_state("changed", State.RESERVED)
        await world.user.delete(TRAIN_JOBS, "ns", "gone")
        await world.until_state("gone", State.FINISHED)
        assert world.charged() == 8
        await world.user.patch(JOBS, "ns", "changed", {"spec": {"parallelism": 1}}, PatchType.MERGE)
        await world.until(lambda: world.known_row("changed").attempt == 2 and world.charged() == 4, "reserved anew")
        assert world.state("changed") is State.RESERVED


async def test_a_check_that_is_configured_no_more_holds_nobody_up(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached", "licence"))
        await world.submit(train_job("a", 4))
        await world.until_state("a", State.RESERVED)
        world.answer("a", "licence", "Ready")
        world.configure(with_checks("licence"))
        await world.until_state("a", State.RUNNING)


async def test_a_check_is_asked_only_with_its_flavors(store: Store) -> None:
    async with World(store) as world:
        listed = "[{name: a, onFlavors: [gpus]}, {name: b, onFlavors: [other]}]"
        other = "    - {name: other, resources: [{name: nvidia.com/gpu, nominalQuota: 0}]}\n"
        text = CONFIGURATION.replace(
            "  namespaceSelector: {}\n", f"  namespaceSelector: {{}}\n  admissionChecks: {listed}\n"
        )
        text = text.replace(
            "    flavors: [{name: gpus, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]\n",
            "    flavors:\n    - {name: gpus, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}\n" + other,
        )
        world.configure(text + "---\napiVersion: queue-manager.io/v1\nkind: Flavor\nmetadata: {name: other}\n")
        await world.submit(train_job("a", 4))
        row = await world.until_state("a", State.RESERVED)
        assert row.admission is not None
        assert row.admission.admission.checks == ("a",)
        world.answer("a", "a", "Ready")
        await world.until_state("a", State.RUNNING)


async def test_a_check_that_retries_a_running_job_stops_it(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RESERVED)
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.RUNNING)
        world.answer("a", "dataset-cached", "Retry", after=30)
        await world.until_state("a", State.WAITING)
        await world.until_state("a", State.RESERVED)


async def test_the_same_answer_twice_is_one(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4))
        await world.until_state("a", State.RESERVED)
        for _ in range(3):
            world.answer("a", "dataset-cached", "Retry", after=100)
        row = await world.until_state("a", State.WAITING)
        world.answer("a", "dataset-cached", "Retry", after=100)
        await world.until(lambda: not store.pending_instructions(), "carried out")
        again = world.known_row("a")
        assert (again.not_before, again.attempt) == (row.not_before, 1)
        assert [(check.state, check.retries) for check in again.checks] == [(CheckState.RETRY, 1)]


async def test_a_rejection_while_it_drains_deactivates_it_once_its_pods_are_gone(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RESERVED)
        world.answer("a", "dataset-cached", "Ready")
        await world.until_state("a", State.RUNNING)
        world.answer("a", "dataset-cached", "Retry", after=600)
        await world.until_state("a", State.DRAINING)
        world.answer("a", "dataset-cached", "Rejected", message="no such dataset")
        await world.until(lambda: not store.pending_instructions(), "carried out")
        row = world.known_row("a")
        assert (row.state, row.after_drain, row.not_before) == (State.DRAINING, State.DEACTIVATED, None)
        row = await world.until_state("a", State.DEACTIVATED)
        assert row.reason == "AdmissionCheck"
        assert "check dataset-cached rejected it (no such dataset)" in row.message
        await world.until(lambda: "Deactivated" in world.events("a"), "told")
        assert world.charged() == 0


@pytest.mark.parametrize("state", ["Ready", "Retry", "Rejected"])
async def test_an_answer_given_while_nobody_leads_is_carried_out_once(store: Store, state: str) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RESERVED)
        await world.kill()
        await world.clock.advance(20)
        world.answer("a", "dataset-cached", state, after=600)
        await world.clock.advance(5)
        await world.start()
        wanted = {"Ready": State.RUNNING, "Retry": State.WAITING, "Rejected": State.DEACTIVATED}[state]
        await world.until_state("a", wanted)
        assert store.pending_instructions() == []
        await world.restart()
        await world.clock.advance(100)
        assert world.state("a") is wanted
        assert world.admissions("a") == 1
        assert store.check(world.clock.now()) == []
