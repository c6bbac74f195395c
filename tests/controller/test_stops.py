"""Queues and flavors that people stop by hand: what runs goes or stays, and its users read who did it and why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api.context import Context
from api.stops import service
from api.stops.schemas import StopRequest
from queue_manager.cluster.port import EVENTS
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, train_job

SPARE = """
---
apiVersion: queue-manager.io/v1
kind: Flavor
metadata: {name: spare}
"""
TWO_FLAVORS = CONFIGURATION.replace(
    "nominalQuota: 16}]}]", "nominalQuota: 16}]}, {name: spare, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]"
)


def stop(world: World, kind: str, name: str, policy: str, namespace: str = "") -> None:
    """What the API does; a running controller hears of it."""
    context = Context(world.store, lambda: datetime.now(UTC))
    service.stop(context, kind, namespace, name, StopRequest.model_validate({"policy": policy, "reason": "new cables"}))
    if world.controller is not None and world.controller.term is not None:
        world.controller.term.configuration_changed()


def messages(world: World, name: str, reason: str) -> list[str]:
    found = world.cluster.state.storage.all(EVENTS)
    return [e["message"] for e in found if e["involvedObject"]["name"] == name and e["reason"] == reason]


@pytest.mark.parametrize(("kind", "name", "what"), [("Queue", "team", "queue team"), ("Flavor", "gpus", "flavor gpus")])
async def test_what_runs_is_evicted_and_starts_again_once_that_is_undone(
    store: Store, kind: str, name: str, what: str
) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=600))
        row = await world.until_state("a", State.RUNNING)
        stop(world, kind, name, "HoldAndDrain")
        await world.until_state("a", State.WAITING)
        await world.until(lambda: messages(world, "a", "Evicted"))
        [told] = messages(world, "a", "Evicted")
        assert told.startswith(f"Stopped because {what} is stopped (HoldAndDrain) by local since ")
        assert "new cables" in told
        [admission] = store.history(row.uid).admissions
        assert admission.cause_message == told
        await world.until(lambda: "new cables" in world.known_row("a").message and world.charged() == 0)
        await world.submit(train_job("b", 2))
        await world.clock.advance(30)
        assert (world.state("a"), world.state("b")) == (State.WAITING, State.WAITING)
        stop(world, kind, name, "None")
        await world.until_state("a", State.RUNNING)
        await world.until_state("b", State.FINISHED)
        assert store.check(world.clock.now()) == []


async def test_a_flavor_that_is_stopped_lets_finish_what_runs_and_is_given_to_nobody(store: Store) -> None:
    async with World(store) as world:
        world.configure(TWO_FLAVORS + SPARE)
        await world.submit(train_job("a", 2, seconds=60))
        await world.until_state("a", State.RUNNING)
        stop(world, "Flavor", "gpus", "Hold")
        await world.submit(train_job("b", 2, seconds=60))
        row = await world.until_state("b", State.RUNNING)
        assert row.admission is not None
        assert {cell.flavor for cell in row.admission.admission.charge} == {"spare"}
        await world.until_state("a", State.FINISHED)
        assert world.admissions("a") == 1


async def test_a_stop_counts_for_whoever_leads_next(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.kill()
        stop(world, "Flavor", "gpus", "HoldAndDrain")
        await world.start()
        await world.until_state("a", State.WAITING)
        await world.clock.advance(60)
        assert (world.state("a"), world.charged()) == (State.WAITING, 0)


async def test_applying_the_file_again_does_not_start_what_is_stopped(store: Store) -> None:
    async with World(store) as world:
        stop(world, "Queue", "team", "Hold")
        await world.submit(train_job("a", 2))
        await world.until(lambda: world.row("a") is not None)
        world.configure(CONFIGURATION.replace("nominalQuota: 16", "nominalQuota: 12"))
        await world.clock.advance(30)
        assert world.state("a") is State.WAITING
        explanation = store.explanation(world.known_row("a").uid)
        assert explanation is not None
        [blocker] = [b for b in explanation["blockers"] if b["type"] == "QueueStopped"]
        assert "queue team is stopped (Hold) by local since" in blocker["message"]
