"""wait-for-pods-ready: who does not get ready goes, comes back later and later, and in the end only by an admin."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_manager.cluster.port import JOBS, PODS, PatchType
from queue_manager.cluster.simulated.objects import with_condition, write_status
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, batch_job, settings, train_job, with_checks


def lose_readiness(world: World, name: str) -> None:
    """One pod of the job is not ready any more."""
    pod = world.pods(name)[0]
    conditions = with_condition(
        pod["status"]["conditions"], "Ready", False, "Broken", "", world.clock.now().isoformat()
    )
    write_status(world.cluster.state, PODS, pod, {**pod["status"], "conditions": conditions}, "kubelet")


def regain_readiness(world: World, name: str) -> None:
    for pod in world.pods(name):
        conditions = with_condition(pod["status"]["conditions"], "Ready", True, "", "", world.clock.now().isoformat())
        write_status(world.cluster.state, PODS, pod, {**pod["status"], "conditions": conditions}, "kubelet")


async def test_a_gang_that_never_gets_ready_is_evicted_backs_off_and_is_deactivated_until_released(
    store: Store,
) -> None:
    async with World(store) as world:
        world.configure(settings("60s", limit=2))
        await world.submit(train_job("a", 4, seconds=600, ready_after="never"))
        row = await world.until_state("a", State.RUNNING)
        assert row.admission is not None
        assert row.admission.ready_at is None
        admitted = row.admission.admitted_at
        row = await world.until_state("a", State.DRAINING)
        assert row.admission is not None
        assert row.admission.evicted_at is not None
        assert row.admission.evicted_at - admitted >= timedelta(seconds=60)
        assert row.admission.evicted_at - admitted < timedelta(seconds=61)
        assert (row.admission.cause, row.admission.underlying) == ("PodsReadyTimeout", "WaitForStart")
        assert row.not_before == row.admission.evicted_at + timedelta(seconds=10)
        row = await world.until_state("a", State.WAITING)
        await world.until(lambda: world.known_row("a").reason == "Backoff", "backs off")
        assert world.known_row("a").requeues == 1
        assert "not all its pods were ready within 1m" in world.known_row("a").message
        assert world.charged() == 0
        # --- twice as long the second time
        row = await world.until_state("a", State.RUNNING)
        assert row.attempt == 2
        row = await world.until_state("a", State.DRAINING)
        assert row.admission is not None
        assert row.admission.evicted_at is not None
        assert row.not_before == row.admission.evicted_at + timedelta(seconds=20)
        # --- the third is one too many
        await world.until_state("a", State.RUNNING)
        row = await world.until_state("a", State.DEACTIVATED)
        assert row.reason == "RequeuingLimitExceeded"
        assert world.admissions("a") == 3
        assert world.charged() == 0
        assert world.pods("a") == []
        assert "release ns/a" in row.message
        assert [e for e in world.events("a") if e in ("Evicted", "Deactivated")] == [
            "Evicted",
            "Evicted",
            "Deactivated",
        ]
        await world.clock.advance(3600)
        assert world.admissions("a") == 3, "it stays out of the queue"
        world.ask("a", Wish.RELEASE)
        row = await world.until_state("a", State.RUNNING)
        assert (row.attempt, row.requeues) == (4, 0)
        assert store.check(world.clock.now()) == []
        assert store.pending_instructions() == []
        await world.until(lambda: "Released" in world.events("a"))


async def test_the_pause_between_tries_never_exceeds_the_greatest(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("5s"))
        await world.submit(train_job("a", 1, seconds=6000, ready_after="never"))
        pauses = []
        for attempt in range(1, 5):
            await world.until(
                lambda attempt=attempt: world.known_row("a").attempt == attempt if world.row("a") else False
            )
            row = await world.until_state("a", State.DRAINING)
            assert row.admission is not None
            assert row.admission.evicted_at is not None
            assert row.not_before is not None
            pauses.append((row.not_before - row.admission.evicted_at).total_seconds())
        assert pauses == [10, 20, 30, 30]


async def test_a_job_whose_pods_get_ready_in_time_is_left_alone(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s"))
        await world.submit(train_job("a", 4, seconds=600, ready_after="50s"))
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: world.known_row("a").admission.ready_at is not None, "ready")  # type: ignore[union-attr]
        await world.clock.advance(300)
        assert world.known_row("a").state is State.RUNNING
        row = await world.until_state("a", State.FINISHED, within=900)
        assert (row.attempt, row.requeues) == (1, 0)


async def test_without_waiting_for_readiness_nobody_goes(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s").replace('{"timeout"', '{"enable": false, "timeout"'))
        await world.submit(train_job("a", 4, seconds=600, ready_after="never"))
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(500)
        assert world.known_row("a").state is State.RUNNING


async def test_a_pod_that_is_not_ready_again_for_too_long_ends_the_admission(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s", recovery="100s"))
        await world.submit(train_job("a", 2, seconds=6000))
        await world.until(
            lambda: world.row("a") and world.known_row("a").admission and world.known_row("a").admission.ready_at
        )  # type: ignore[union-attr]
        await world.clock.advance(500)
        lose_readiness(world, "a")
        await world.until(lambda: world.known_row("a").admission.unready_at is not None)  # type: ignore[union-attr]
        await world.clock.advance(90)
        regain_readiness(world, "a")
        await world.until(lambda: world.known_row("a").admission.unready_at is None)  # type: ignore[union-attr]
        await world.clock.advance(500)
        assert world.known_row("a").state is State.RUNNING
        lose_readiness(world, "a")
        row = await world.until_state("a", State.DRAINING)
        assert row.admission is not None
        assert row.admission.evicted_at is not None
        assert row.admission.unready_at is not None
        assert (row.admission.cause, row.admission.underlying) == ("PodsReadyTimeout", "WaitForRecovery")
        assert row.admission.evicted_at - row.admission.unready_at >= timedelta(seconds=100)
        await world.until(lambda: world.known_row("a").attempt == 2, "it comes back")


@pytest.mark.parametrize("dies_at", [1.0, 30.0, 59.9, 60.5, 62.0, 68.0, 75.0])
async def test_times_hold_over_restarts_at_any_point(store: Store, dies_at: float) -> None:
    async with World(store) as world:
        world.configure(settings("60s", limit=1))
        await world.submit(train_job("a", 4, seconds=6000, ready_after="never"))
        row = await world.until_state("a", State.RUNNING)
        assert row.admission is not None
        admitted = row.admission.admitted_at
        await world.clock.advance(dies_at - (world.clock.now() - admitted).total_seconds())
        await world.restart(after=5)
        await world.until_state("a", State.DEACTIVATED, within=300)
        first, second = store.history(row.uid).admissions
        assert first.evicted_at is not None
        assert timedelta(seconds=60) <= first.evicted_at - first.admitted_at < timedelta(seconds=80)
        assert second.evicted_at is not None
        assert second.admitted_at >= first.evicted_at + timedelta(seconds=10)
        assert [first.underlying, second.underlying] == ["WaitForStart", "RequeuingLimitExceeded"]


async def test_a_leader_away_over_the_deadline_acts_when_it_is_back(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s"))
        await world.submit(train_job("a", 4, seconds=6000, ready_after="never"))
        await world.until_state("a", State.RUNNING)
        await world.kill()
        await world.clock.advance(600)
        assert world.state("a") is State.RUNNING
        await world.start()
        await world.until_state("a", State.DRAINING, within=30)


async def test_a_job_that_ends_as_its_time_is_up_has_finished(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s"))
        await world.submit(train_job("a", 1, seconds=50, ready_after="never"))
        row = await world.until_state("a", State.FINISHED)
        assert row.reason == "Succeeded"
        assert row.requeues == 0


async def test_a_suspension_by_its_user_begins_anew(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s"))
        job = batch_job("j", 2, seconds=6000)
        job["spec"]["template"]["metadata"]["annotations"]["simulated.queue-manager.io/ready-after"] = "40s"
        await world.submit(job, JOBS)
        await world.until_state("j", State.RUNNING)
        await world.clock.advance(30)
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": True}}, PatchType.MERGE)
        await world.until_state("j", State.HELD)
        await world.clock.advance(300)
        assert world.known_row("j").state is State.HELD
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": False}}, PatchType.MERGE)
        row = await world.until_state("j", State.RUNNING)
        assert row.attempt == 2
        await world.until(lambda: world.known_row("j").admission.ready_at is not None)  # type: ignore[union-attr]
        assert world.known_row("j").requeues == 0


async def test_a_shorter_timeout_holds_for_what_runs_already(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("1h"))
        await world.submit(train_job("a", 1, seconds=6000, ready_after="never"))
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(120)
        world.configure(settings("60s"))
        await world.until_state("a", State.DRAINING, within=5)


@pytest.mark.parametrize(("timestamp", "first"), [("Eviction", "b"), ("Creation", "a")])
async def test_the_place_after_a_timeout_is_that_of_the_eviction_or_of_the_creation(
    store: Store, timestamp: str, first: str
) -> None:
    async with World(store) as world:
        world.configure(settings("60s", timestamp=timestamp, backoffBaseSeconds=1))
        world.configure(CONFIGURATION.replace("withinClusterQueue: LowerPriority", "withinClusterQueue: Never"))
        await world.submit(train_job("a", 4, seconds=6000, ready_after="never"))
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(40)
        await world.submit(train_job("b", 4, seconds=6000))
        await world.submit(train_job("high", 4, seconds=30, high=True))
        await world.until_state("high", State.RUNNING)
        assert world.known_row("a").attempt == 1
        await world.until_state("high", State.FINISHED)
        await world.until(lambda: world.known_row("a").attempt == 2 or world.known_row("b").attempt == 1, "one starts")
        assert ("a" if world.known_row("a").attempt == 2 else "b") == first


async def test_jobs_start_one_at_a_time_where_admission_is_blocked_until_pods_are_ready(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("60s", limit=0).replace('{"timeout"', '{"blockAdmission": true, "timeout"'))
        await world.submit(train_job("a", 1, seconds=6000, ready_after="20s"))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 1, seconds=6000, ready_after="never"))
        await world.clock.advance(2)
        await world.submit(train_job("c", 1, seconds=6000))
        await world.until(lambda: world.row("c") and world.known_row("c").reason == "WaitingForPodsReady")
        await world.clock.advance(10)
        assert (world.state("b"), world.state("c")) == (State.WAITING, State.WAITING)
        row = await world.until_state("b", State.RUNNING)
        first = world.known_row("a").admission
        assert first is not None
        assert first.ready_at is not None
        assert row.admission is not None
        assert row.admission.admitted_at >= first.ready_at
        # A restart forgets nothing of that.
        await world.restart()
        await world.clock.advance(30)
        assert world.state("c") is State.WAITING
        await world.until_state("b", State.DEACTIVATED)
        await world.until_state("c", State.RUNNING)


async def test_once_jobs_have_to_start_one_at_a_time_those_that_are_ready_already_block_nobody(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings("1h").replace('{"timeout"', '{"enable": false, "timeout"'))
        await world.submit(train_job("a", 1, seconds=6000))
        await world.until_state("a", State.RUNNING)
        await world.clock.advance(20)
        world.configure(settings("1h").replace('{"timeout"', '{"blockAdmission": true, "timeout"'))
        await world.submit(train_job("b", 1, seconds=6000))
        await world.until_state("b", State.RUNNING, within=5)
        assert world.known_row("a").admission.ready_at is not None  # type: ignore[union-attr]


async def test_counts_are_shown_as_metrics(store: Store) -> None:
    from queue_manager.controller.metrics import ControllerCollector

    async with World(store) as world:
        world.configure(settings("60s", limit=0))
        await world.submit(train_job("good", 1, seconds=6000))
        await world.submit(train_job("a", 1, seconds=6000, ready_after="never"))
        await world.until_state("a", State.DEACTIVATED)
        assert world.controller is not None
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for metric in ControllerCollector(world.controller).collect()
            for sample in metric.samples
        }
        cause = "RequeuingLimitExceeded"
        assert samples["queue_manager_evictions_total", ("cause", cause), ("reason", "Deactivated")] == 1
        assert samples["queue_manager_deactivations_total", ("cause", cause)] == 1
        assert samples["queue_manager_ready_wait_seconds_count",] == 1
        assert samples["queue_manager_workloads", ("queue", "team"), ("state", "deactivated")] == 1


async def test_one_at_a_time_counts_a_job_that_waits_for_its_checks(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("licence"))
        world.configure(settings("1h").replace('{"timeout"', '{"blockAdmission": true, "timeout"'))
        await world.submit(train_job("a", 1, seconds=6000, ready_after="20s"))
        await world.until_state("a", State.RESERVED)
        await world.submit(train_job("b", 1, seconds=6000))
        await world.clock.advance(600)
        row = world.known_row("b")
        assert (row.state, row.reason) == (State.WAITING, "WaitingForPodsReady")
        world.answer("a", "licence", "Ready")
        await world.until_state("a", State.RUNNING)
        await world.until_state("b", State.RESERVED)
        started = world.known_row("a").admission
        assert started is not None
        assert started.ready_at is not None
