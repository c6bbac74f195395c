"""The lifecycle rules under kills and faults: nothing is charged twice, forgotten, or started without its checks."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.simulated.faults import SeededFaults
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.controller.test_crashes import check_invariants
from tests.controller.world import World, settings, train_job, with_checks

SEEDS = range(8)
NAMES = ("good", "stuck", "long", "refused", "held")
CHECK = "dataset-cached"


def started_unchecked(world: World) -> list[str]:
    """Admissions that began although their check was not ready."""
    rows = [row for name in NAMES if (row := world.row(name)) is not None]
    return [
        row.name
        for row in rows
        for admission in world.store.history(row.uid).admissions
        if admission.started_at is not None and admission.checked_at is None
    ]


async def give_answers(world: World, chance: Random) -> None:
    """What the cache of datasets would say to whoever waits for it."""
    for name in NAMES:
        if world.state(name) is State.RESERVED and not world.store.pending_instructions(world.row(name).uid):  # type: ignore[union-attr]
            if name == "refused":
                world.answer(name, CHECK, "Rejected")
            else:
                world.answer(name, CHECK, "Retry" if chance.random() < 0.2 else "Ready", after=None)


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_ends_as_its_rule_says_whoever_leads(store: Store, seed: int) -> None:
    chance = Random(seed)
    faults = SeededFaults(Random(seed + 1), requests=0.1, watches=0.05)
    async with World(store, seed, faults) as world:
        world.configure(settings("60s", limit=2, recovery="600s"))
        world.configure(with_checks(CHECK))
        await world.submit(train_job("good", 1, seconds=30))
        await world.submit(train_job("stuck", 1, seconds=6000, ready_after="never"))
        await world.submit(train_job("long", 1, seconds=6000, max_run_time="3m"))
        await world.submit(train_job("refused", 1))
        await world.submit(train_job("held", 2, seconds=30))
        await world.until(lambda: all(world.row(name) for name in NAMES))
        world.ask("held", Wish.HOLD)
        for turn in range(30):
            await world.clock.advance(chance.uniform(1, 40))
            check_invariants(world)
            assert started_unchecked(world) == []
            await give_answers(world, chance)
            if chance.random() < 0.4:
                await world.clock.advance(chance.uniform(0, 0.5))
                await world.restart(after=chance.uniform(0, 20))
            if turn == 15:
                world.ask("held", Wish.RELEASE)
        faults.active = False
        wanted = {
            "good": State.FINISHED,
            "stuck": State.DEACTIVATED,
            "long": State.DEACTIVATED,
            "refused": State.DEACTIVATED,
            "held": State.FINISHED,
        }
        for _ in range(200):
            if {name: world.state(name) for name in NAMES} == wanted:
                break
            await world.clock.advance(30)
            await give_answers(world, chance)
        assert {name: world.state(name) for name in NAMES} == wanted
        check_invariants(world)
        assert world.charged() == 0
        assert started_unchecked(world) == []
        assert store.pending_instructions() == []
        stuck, long = world.row("stuck"), world.row("long")
        assert stuck is not None
        assert long is not None
        assert (stuck.reason, stuck.requeues) == ("RequeuingLimitExceeded", 2)
        assert long.reason == "MaximumExecutionTimeExceeded"
        assert long.past_run_time >= 180_000_000
