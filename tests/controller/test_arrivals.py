"""The order of jobs that were created within one second, which is all that the API says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from queue_manager.controller.intake import arrived_at
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import JOBS, World, batch_job

CREATED = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_jobs_of_one_second_start_in_the_order_in_which_they_came(store: Store) -> None:
    names = [f"j{number}" for number in range(8)]
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=30), JOBS)
        await world.until_state("first", State.RUNNING)
        began = world.clock.now().replace(microsecond=0) + timedelta(seconds=1)
        await world.until(lambda: world.clock.now() >= began, "a new second")
        for name in names:
            await world.submit(batch_job(name, 4, seconds=1), JOBS)
            await world.until_state(name, State.WAITING)
        assert {world.known_row(name).created_at.replace(microsecond=0) for name in names} == {began}
        for name in names:
            await world.until_state(name, State.FINISHED)
        starts = {name: world.known_row(name) for name in names}
    admitted = {name: store.history(row.uid).admissions[0].admitted_at for name, row in starts.items()}
    assert sorted(names, key=lambda name: admitted[name]) == names


@pytest.mark.parametrize(
    ("seen", "at"),
    [(0.25, 0.25), (-3600, 0), (0.9999999, 0.999999), (3600, 0.999999)],
    ids=["soon", "clock behind", "end of the second", "long after"],
)
def test_a_job_never_counts_as_older_or_younger_than_its_second(seen: float, at: float) -> None:
    assert arrived_at(CREATED, CREATED + timedelta(seconds=seen)) == CREATED + timedelta(seconds=at)
