"""Users act at any moment: between a write and its confirmation, while pods end, while something is told."""

from __future__ import annotations

from queue_manager.cluster.port import JOB_SETS, JOBS, PODS, TRAIN_JOBS, Object, PatchType
from queue_manager.controller.term import Term
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job


def term_of(world: World) -> Term:
    assert world.controller is not None
    assert world.controller.term is not None
    return world.controller.term


def outbox(world: World) -> list[object]:
    return list(world.store.pending_outbox())


async def suspend(world: World, name: str, wish: bool) -> None:
    await world.user.patch(JOBS, "ns", name, {"spec": {"suspend": wish}}, PatchType.MERGE)


def stubborn(job: Object, seconds: int) -> Object:
    """Its pods take that long to terminate."""
    template = job["spec"]["template"]
    template["metadata"]["annotations"]["simulated.queue-manager.io/termination-time"] = f"{seconds}s"
    template["spec"]["terminationGracePeriodSeconds"] = 600
    return job


async def test_a_job_suspended_again_right_after_its_start_does_not_keep_its_quota_for_ever(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 2, seconds=20), JOBS)
        while world.cluster.state.get(JOBS, "ns", "j")["spec"]["suspend"]:
            await world.clock.run_until(lambda: True)
            await world.clock.advance(0.001)
        assert world.state("j") is State.STARTING
        await suspend(world, "j", True)
        await world.until(lambda: world.state("j") is not State.STARTING, "neither started nor given up")
        assert outbox(world) == [] or world.state("j") is not State.STARTING


async def test_a_job_resumed_while_it_still_drains_queues_again(store: Store) -> None:
    async with World(store) as world:
        await world.submit(stubborn(batch_job("j", 2, seconds=600), 60), JOBS)
        await world.until_state("j", State.RUNNING)
        await world.until(lambda: len(world.pods("j")) == 2)
        await world.clock.advance(5)
        await suspend(world, "j", True)
        await world.until_state("j", State.DRAINING)
        await suspend(world, "j", False)
        await world.clock.advance(5)
        assert world.state("j") is State.DRAINING, "its pods still terminate"
        assert world.charged() == 8
        await world.until_state("j", State.RUNNING, within=300)
        assert world.admissions("j") == 2


async def test_a_job_deleted_in_the_foreground_while_it_drains_is_released(store: Store) -> None:
    async with World(store) as world:
        await world.submit(stubborn(batch_job("low", 4, seconds=600), 10), JOBS)
        await world.until_state("low", State.RUNNING)
        await world.until(lambda: len(world.pods("low")) == 4)
        await world.clock.advance(5)
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("low", State.DRAINING)
        await world.user.delete(JOBS, "ns", "low", propagation="Foreground")
        await world.until_state("low", State.FINISHED)
        await world.until_state("high", State.RUNNING)
        assert store.check(world.clock.now()) == []


async def test_a_waiting_job_that_is_being_deleted_is_not_started(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=60))
        await world.until_state("a", State.RUNNING)
        job = train_job("b", 4)
        job["metadata"]["finalizers"] = ["example.com/keep"]
        await world.submit(job)
        await world.until_state("b", State.WAITING)
        await world.user.delete(TRAIN_JOBS, "ns", "b")
        await world.until_state("b", State.FINISHED)
        await world.until_state("a", State.FINISHED)
        await world.clock.advance(60)
        assert world.admissions("b") == 0
        assert world.charged() == 0


async def test_every_action_is_done_in_the_end_and_nothing_is_remembered(store: Store) -> None:
    """Also those of workloads that are forgotten before their executor looks again."""
    async with World(store) as world:
        for number in range(6):
            if number % 2:
                await world.submit(stubborn(batch_job(f"j{number}", 2, seconds=5), 3), JOBS)
            else:
                await world.submit(train_job(f"j{number}", 2, seconds=5, high=number == 4))
        await world.until(lambda: all(world.state(f"j{n}") is State.FINISHED for n in range(6)), within=600)
        await world.clock.advance(120)
        term = term_of(world)
        assert outbox(world) == []
        assert term.executors._pending == {}
        assert term.executors.oldest_age() == 0
        assert term.executors._notes.messages._written == {}
        assert term.executors._notes.messages._timers.next() is None
        assert term.picture.drained == set()
        assert term.reconciler.reports._refused == {}
        assert term.picture.rows == {}
        for number in range(6):
            resource = JOBS if number % 2 else TRAIN_JOBS
            await world.user.delete(resource, "ns", f"j{number}")
        await world.clock.advance(60)
        assert world.cluster.state.storage.all(PODS) == []
        assert term.picture.owners._parent == {}
        assert not any(term.picture.pods._of_workload.values())
        assert len(term.picture.pods._of_workload) == 0
        assert term.picture.pods._bound == {}
        assert term.picture.pods._charged == set()
        assert term.view._own == {}
        assert term.view._snapshots == {}


async def test_a_refusal_of_an_earlier_start_does_not_hit_the_next_one(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=60))
        await world.until_state("a", State.RUNNING)
        row = world.known_row("a")
        await world.submit(train_job("high", 4, high=True, seconds=10))
        await world.until_state("a", State.DRAINING)
        term_of(world).reconciler.reports.refused(row.uid, "late news of the first start")
        await world.until_state("a", State.RUNNING, within=100)
        assert world.admissions("a") == 2
        assert "StartRefused" not in world.events("a")


async def test_jobs_of_a_deleted_train_job_keep_its_quota_until_they_are_collected(store: Store) -> None:
    """The collector takes the JobSet first: its Jobs can make pods for a while."""
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(world.pods("a")) == 2)
        term = term_of(world)
        uid = world.row("a").uid  # type: ignore[union-attr]
        [job] = [j for j in world.cluster.state.storage.all(JOBS) if j["metadata"]["name"].startswith("a-")]
        kept = {**job, "metadata": {**job["metadata"], "finalizers": ["example.com/keep"]}}
        world.cluster.state.update(JOBS, job, kept, manager="kubectl")
        await world.user.delete(TRAIN_JOBS, "ns", "a")
        await world.until(lambda: not world.cluster.state.storage.all(JOB_SETS))
        for pod in world.pods("a"):
            world.cluster.state.delete(PODS, "ns", pod["metadata"]["name"], grace=0)
        await world.until(lambda: not world.pods("a") and term.picture.pods.live(uid) == 0)
        assert world.cluster.state.storage.all(JOB_SETS) == []
        await world.clock.advance(30)
        assert world.state("a") is State.DRAINING, "its Job is still there"
        [job] = world.cluster.state.storage.all(JOBS)
        gone = {**job, "metadata": {**job["metadata"], "finalizers": []}}
        world.cluster.state.update(JOBS, job, gone, manager="kubectl")
        await world.until_state("a", State.FINISHED)
