"""No more is admitted at once than can be started soon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queue_manager.controller import term
from queue_manager.controller.executor import Executors
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import JOBS, World, batch_job, with_checks


@pytest.fixture
def slow_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that takes a second for a write, for a controller that admits one after the other."""
    monkeypatch.setattr(term, "BACKLOG", 0)
    monkeypatch.setattr(term, "MOST_ADMITTED", 1)
    send = Executors.send

    async def slowly(self: Executors, *arguments: Any) -> Any:
        await self._clock.sleep(1)
        return await send(self, *arguments)

    monkeypatch.setattr(Executors, "send", slowly)


@pytest.mark.usefixtures("slow_api")
async def test_who_comes_while_starts_are_written_goes_before_lower_ranks_and_evicts_nobody(store: Store) -> None:
    async with World(store) as world:
        await world.until_ready()
        names = ("a", "b", "c", "d")
        for name in names:
            await world.submit(batch_job(name, 1, seconds=30), JOBS)
        await world.until(lambda: State.STARTING in map(world.state, names), "one of them starts")
        await world.clock.advance(0.5)
        urgent = batch_job("urgent", 3, seconds=5)
        urgent["metadata"]["labels"]["queue-manager.io/priority-class"] = "high"
        await world.submit(urgent, JOBS)
        await world.until_state("urgent", State.RUNNING)
        assert sum(map(world.admissions, names)) == 1
        for name in names:
            await world.until_state(name, State.FINISHED)
            assert world.admissions(name) == 1


@pytest.mark.usefixtures("slow_api")
async def test_all_that_may_be_reserved_is_though_nothing_is_written_and_nothing_else_happens(store: Store) -> None:
    async with World(store, events=False) as world:
        world.configure(with_checks("licence"))
        await world.until_ready()
        names = ("a", "b", "c", "d")
        await asyncio.gather(*(world.submit(batch_job(name, 1), JOBS) for name in names))
        await world.until(lambda: set(map(world.state, names)) == {State.RESERVED}, "all are reserved", within=3)


async def test_a_start_that_is_answered_late_keeps_nobody_waiting_once_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the watches show of it has been seen by then: nothing more happens."""
    monkeypatch.setattr(term, "BACKLOG", 0)
    monkeypatch.setattr(term, "MOST_ADMITTED", 1)
    send = Executors.send

    async def answered_late(self: Executors, *arguments: Any) -> Any:
        result = await send(self, *arguments)
        await self._clock.sleep(20)
        return result

    monkeypatch.setattr(Executors, "send", answered_late)
    async with World(store, events=False) as world:
        await world.until_ready()
        names = ("a", "b")
        for name in names:
            await world.submit(batch_job(name, 1, seconds=3000), JOBS)
        await world.until(lambda: sum(map(world.admissions, names)) == 1, "one is admitted")
        await world.until(lambda: sum(map(world.admissions, names)) == 2, "the other is", within=21)
