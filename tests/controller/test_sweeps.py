"""Looking at everything: who decides and who else uses the event loop go on meanwhile."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import JOBS, TRAIN_JOBS
from queue_manager.controller import inbox as inboxes
from queue_manager.controller import term as terms
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, batch_job, train_job


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "SLICE", 2)
    monkeypatch.setattr(inboxes, "AT_ONCE", 0)
    monkeypatch.setattr(terms, "SLICE", 2)


async def test_a_sweep_gives_each_look_a_slice_of_it_until_it_is_through(store: Store) -> None:
    async with World(store) as world:
        await world.until_ready()
        assert world.controller is not None
        assert world.controller.term is not None
        inbox = world.controller.term.inbox
        names = [f"job-{number}" for number in range(5)]
        for name in names:
            await world.submit(batch_job(name, 1), JOBS)
        await world.until(lambda: len(store.load_workloads()) == len(names), "all are known")
        inbox.take()
        inbox.sweep()
        looks = []
        while inbox.sweeping:
            inbox.events.clear()
            looks.append(inbox.take())
            assert inbox.events.is_set() is inbox.sweeping
        assert [len(look) for look in looks] == [2, 2, 1]
        assert sorted(uid for look in looks for uid in look) == sorted(row.uid for row in store.load_workloads())
        inbox.sweep(at_once=True)
        assert not inbox.sweeping
        assert len(inbox.take()) == 5


async def test_a_new_leader_sees_what_came_meanwhile_and_is_ready_once_it_has_looked_at_all(store: Store) -> None:
    async with World(store) as world:
        await world.until_ready()
        names = [f"job-{number}" for number in range(3)]
        for name in names:
            await world.submit(batch_job(name, 1), JOBS)
        for name in names:
            await world.until_state(name, State.RUNNING)
        await world.kill()
        await world.submit(batch_job("late", 1), JOBS)
        await world.start()
        await world.until_ready()
        await world.until_state("late", State.RUNNING)
        assert world.controller is not None
        assert world.controller.term is not None
        assert not world.controller.term.inbox.sweeping


async def test_a_new_leader_stops_nobody_for_jobs_that_are_gone(store: Store) -> None:
    never = CONFIGURATION.replace("withinClusterQueue: LowerPriority", "withinClusterQueue: Never")
    gone = [f"gone-{number}" for number in range(5)]
    async with World(store, configuration=never) as world:
        await world.submit(train_job("runs", 4, seconds=600))
        await world.until_state("runs", State.RUNNING)
        for name in gone:
            await world.submit(train_job(name, 4, high=True))
            await world.until_state(name, State.WAITING)
        await world.kill()
        for name in gone:
            await world.user.delete(TRAIN_JOBS, "ns", name)
        world.configure(CONFIGURATION)
        await world.start()
        await world.until_ready()
        assert {world.state(name) for name in gone} == {State.FINISHED}
        assert world.admissions("runs") == 1
        assert world.state("runs") is State.RUNNING


async def test_who_would_start_first_is_looked_at_first(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("runs", 4, high=True))
        await world.until_state("runs", State.RUNNING)
        for name, high in (("old", False), ("young", False), ("urgent", True)):
            await world.submit(train_job(name, 4, high=high))
            await world.until_state(name, State.WAITING)
        assert world.controller is not None
        assert world.controller.term is not None
        inbox = world.controller.term.inbox
        inbox.take()
        inbox.sweep()
        names = {row.uid: row.name for row in store.load_workloads()}
        first: dict[str, int] = {}
        for look in range(10):
            first |= {names[uid]: look for uid in inbox.take() if uid in names}
        assert first["urgent"] < first["old"]
        assert not inbox.sweeping
