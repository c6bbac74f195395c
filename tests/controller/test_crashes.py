"""The controller dies at any moment and requests fail in every way: what holds all the same."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.port import PODS, TRAIN_JOBS
from queue_manager.cluster.simulated.faults import SeededFaults
from queue_manager.store.records import ENDED, State
from queue_manager.store.store import Store
from tests.controller.world import JOBS, World, batch_job, train_job

QUOTA = 16
SEEDS = range(12)


def running_gpus(world: World) -> int:
    """GPUs of pods that are bound to a node and have not ended."""
    bound = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
    return sum(int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for pod in bound)


def check_invariants(world: World) -> None:
    """True at every moment, whatever has just been killed."""
    assert world.charged() <= QUOTA
    assert running_gpus(world) <= world.charged(), "pods run that nobody is charged for"
    assert world.store.check(world.clock.now()) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_and_faults_never_admit_twice_lose_quota_or_start_half_a_gang(store: Store, seed: int) -> None:
    chance = Random(seed)
    faults = SeededFaults(Random(seed + 1), requests=0.1, watches=0.05)
    names = [f"j{number}" for number in range(6)]
    async with World(store, seed, faults) as world:
        for number, name in enumerate(names):
            if chance.random() < 0.3:
                await world.submit(batch_job(name, chance.randint(1, 3), seconds=chance.randint(5, 30)), JOBS)
            else:
                job = train_job(name, chance.randint(1, 4), seconds=chance.randint(5, 30), high=number % 3 == 2)
                await world.submit(job)
            await world.clock.advance(chance.uniform(0, 8))
            check_invariants(world)
            if chance.random() < 0.7:
                await world.restart(after=chance.uniform(0, 3))
        faults.active = False
        await world.until(lambda: all(world.state(name) in ENDED for name in names), "every job ends", within=3600)
        check_invariants(world)
        assert world.charged() == 0
        assert [world.state(name) for name in names] == [State.FINISHED] * len(names)


@pytest.mark.parametrize("seed", range(4))
async def test_a_dying_leader_is_followed_and_its_late_writes_change_nothing(store: Store, seed: int) -> None:
    async with World(store, seed) as world:
        await world.submit(train_job("a", 4, seconds=60))
        await world.clock.advance(Random(seed).uniform(0, 1.5))
        await world.restart()
        row = await world.until_state("a", State.RUNNING)
        assert row.attempt == 1
        assert world.admissions("a") == 1
        assert world.charged() == QUOTA
        pods = [pod for pod in world.cluster.state.storage.all(PODS) if pod["metadata"]["name"].startswith("a-")]
        assert len(pods) <= 4
        assert world.cluster.state.get(TRAIN_JOBS, "ns", "a")["spec"]["suspend"] is False
