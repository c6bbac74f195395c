"""Limits of users, protection from preemption and holds for the starving, from the job's annotations to its start."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from queue_manager.cluster.pods import is_gated
from queue_manager.cluster.port import JOBS, TRAIN_JOBS, PatchType, Resource
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, elastic_job, train_job

STARVATION = """
---
apiVersion: queue-manager.io/v1
kind: Settings
metadata: {name: default}
spec: {starvation: {after: 60s}}
"""


def with_limits(limits: dict[str, Any]) -> str:
    return CONFIGURATION.replace(
        "  namespaceSelector: {}\n", f"  namespaceSelector: {{}}\n  limits: {json.dumps(limits)}\n"
    )


async def test_one_user_waits_for_the_own_limit_and_another_starts_past_it(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_limits({"perUser": {"running": 1}}))
        await world.until_ready()
        await world.submit(train_job("a1", 1, seconds=60, user="ann"))
        await world.until_state("a1", State.RUNNING)
        await world.submit(train_job("a2", 1, user="ann"))
        await world.submit(train_job("b1", 1, seconds=90, user="bob"))
        await world.until_state("b1", State.RUNNING)
        row = world.known_row("a2")
        assert (row.state, row.reason) == (State.WAITING, "LimitReached")
        assert row.message == "limit of user ann in queue team: 1 of at most 1 running, this would be 1 more"
        await world.until_state("a2", State.RUNNING)
        assert world.state("a1") is State.FINISHED
        assert world.state("b1") is State.RUNNING


async def test_a_group_of_users_shares_its_limit(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_limits({"perGroup": {"resources": {"nvidia.com/gpu": "8"}}}))
        await world.until_ready()
        for name, user in (("a", "ann"), ("b", "bob"), ("c", "cem")):
            await world.submit(train_job(name, 1, seconds=600, user=user, user_groups="vision,system:authenticated"))
            await world.clock.run_until(lambda name=name: world.row(name), 10)  # type: ignore[misc]
        await world.submit(train_job("d", 1, seconds=600, user="dan", user_groups="speech,system:authenticated"))
        await world.until_state("d", State.RUNNING)
        states = {name: world.state(name) for name in "abc"}
        assert states == {"a": State.RUNNING, "b": State.RUNNING, "c": State.WAITING}
        row = world.known_row("c")
        assert "limit of group vision in queue team: 8 of at most 8" in row.message


async def test_a_job_is_preempted_only_after_its_minimum_run_time(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_limits({"minRunTime": "100s"}))
        await world.until_ready()
        await world.submit(train_job("low", 4, seconds=1000))
        row = await world.until_state("low", State.RUNNING)
        assert row.admission is not None
        admitted = row.admission.admission.admitted
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("high", State.RUNNING, within=400)
        again = world.known_row("low")
        high = world.known_row("high")
        assert high.admission is not None
        waited = (high.admission.admission.admitted - admitted) / 1_000_000
        assert 100 <= waited <= 140
        assert again.attempt == 1


@pytest.mark.parametrize("kind", [TRAIN_JOBS, JOBS], ids=["TrainJob", "elastic Job"])
async def test_a_checkpoint_ends_the_grace_and_disturbs_nobody(store: Store, kind: Resource) -> None:
    async with World(store) as world:
        world.configure(with_limits({"checkpointGrace": "1h"}))
        await world.until_ready()
        job = train_job("low", 4, seconds=10_000) if kind == TRAIN_JOBS else elastic_job("low", 4, seconds=10_000)
        await world.submit(job, kind)
        before = await world.until_state("low", State.RUNNING)
        await world.until(lambda: len(world.pods("low")) == 4 and not any(map(is_gated, world.pods("low"))))
        pods = {pod["metadata"]["uid"] for pod in world.pods("low")}
        await world.submit(train_job("high", 4, high=True))
        await world.until(lambda: (row := world.row("high")) and row.reason == "WaitingForQuota")
        end = world.clock.monotonic() + 300
        await world.until(lambda: world.clock.monotonic() >= end, within=400)
        assert world.state("low") is State.RUNNING
        assert {pod["metadata"]["uid"] for pod in world.pods("low")} == pods

        patch = {"metadata": {"annotations": {"queue-manager.io/checkpointed-at": world.clock.now().isoformat()}}}
        await world.user.patch(kind, "ns", "low", patch, PatchType.MERGE)
        await world.until_state("high", State.RUNNING)
        after = world.known_row("low")
        assert after.attempt == before.attempt
        assert world.admissions("low") == 1
        assert "Preempted" in world.events("low") or "Evicted" in world.events("low")


async def test_a_gang_starts_within_the_bound_in_a_stream_of_small_jobs(store: Store) -> None:
    """16 one-GPU jobs run and as many wait, each for at most 100 s; the gang wants all 16 GPUs."""
    async with World(store) as world:
        world.configure(CONFIGURATION + STARVATION)
        await world.until_ready()
        number = 0

        async def refill() -> None:
            nonlocal number
            waiting = sum(world.state(f"s{i}") in (None, State.WAITING) for i in range(number))
            for _ in range(4 - waiting):
                name = f"s{number}"
                number += 1
                await world.submit(train_job(name, 1, gpus=1, seconds=60 + 7 * (number % 5), max_run_time="100s"))

        async def go(seconds: float) -> None:
            end = world.clock.monotonic() + seconds
            await world.until(lambda: world.clock.monotonic() >= end, within=seconds + 60)

        for _ in range(8):
            await refill()
            await go(4)
        await world.submit(train_job("gang", 4, seconds=30))
        submitted = world.clock.now()
        held: datetime | None = None
        expected = ""
        while world.state("gang") is not State.RUNNING:
            await refill()
            if world.controller is not None and held is not None and world.clock.now() - held > timedelta(seconds=30):
                assert expected
            row = world.row("gang")
            if held is None and row is not None and "kept for it" in row.message:
                held = world.clock.now()
                found = store.explanation(row.uid)
                expected = (found or {}).get("estimatedStart") or ""
                await world.restart()
            await go(4)
            assert world.clock.now() - submitted < timedelta(seconds=400)
        assert held is not None
        assert timedelta(seconds=60) <= held - submitted <= timedelta(seconds=80)
        assert world.clock.now() - held <= timedelta(seconds=100 + 60)  # the bound, and a restart of the controller
        assert datetime.fromisoformat(expected) <= held + timedelta(seconds=101)
