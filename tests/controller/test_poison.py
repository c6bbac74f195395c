"""Objects that can't be worked with: they are told, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queue_manager.cluster.port import CONFIG_MAPS, JOB_SETS, JOBS, NODES, Object
from queue_manager.cluster.simulated.faults import Fault, Planned, PlannedFaults
from queue_manager.cluster.simulated.fleet import gpu_node
from queue_manager.controller.term import Term
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job


async def ready(world: World) -> Term:
    await world.until_ready()
    assert world.controller is not None
    assert world.controller.term is not None
    return world.controller.term


async def goes_on(world: World, term: Term) -> None:
    """The same term still admits others."""
    await world.submit(train_job("other", 1))
    await world.until_state("other", State.RUNNING)
    assert world.controller is not None
    assert world.controller.term is term


async def test_a_node_with_an_unreadable_amount_counts_as_empty(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        node = gpu_node("bad", "block-0", "rack-9", 4)
        node["status"]["allocatable"]["nvidia.com/gpu"] = "four"
        node["metadata"] |= {"uid": "bad", "resourceVersion": "9"}
        term.view.reflectors[NODES]._put(node)  # as if the API server let it pass
        await goes_on(world, term)
        await term.stored_nodes.save()
        saved = {row.name: row for row in store.load_nodes()}
        assert saved["bad"].allocatable == {}
        assert not saved["bad"].ready
        assert saved["n0"].allocatable["nvidia.com/gpu"] == 4


async def test_nodes_that_went_while_nobody_led_are_forgotten(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        await term.stored_nodes.save()
        await world.kill()
        world.cluster.state.delete(NODES, "", "n3")
        await world.start()
        term = await ready(world)
        await term.stored_nodes.save()
        assert [row.name for row in store.load_nodes()] == ["n0", "n1", "n2"]


async def test_nodes_that_could_not_be_saved_are_saved_the_next_time(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "save_nodes", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await term.stored_nodes.save()
        await term.stored_nodes.save()
        assert len(store.load_nodes()) == 4


def huge(amounts: dict[str, str]) -> Object:
    job = batch_job("huge", 2_000_000_000)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": amounts}
    job["metadata"].setdefault("annotations", {})["queue-manager.io/required-topology"] = (
        "topology.queue-manager.io/rack"
    )
    return job


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "cpu", "memory"])
async def test_requests_beyond_all_bounds_only_wait(store: Store, resource: str) -> None:
    async with World(store) as world:
        term = await ready(world)
        amounts = {"nvidia.com/gpu": "1", resource: "9223372036854775807"}
        await world.submit(huge(amounts), JOBS)
        await world.until_state("huge", State.WAITING)
        await world.clock.advance(1)
        await goes_on(world, term)
        assert world.admissions("huge") == 0


def job_set(replicas: int, parallelism: int) -> Object:
    template: dict[str, Any] = batch_job("x", parallelism)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "many", "labels": {"queue-manager.io/queue": "team"}},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": template}}]},
    }


async def test_more_pods_than_can_be_counted_are_told(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        await world.submit(job_set(3, 2_000_000_000), JOB_SETS)
        await world.clock.advance(1)
        await goes_on(world, term)
        row = world.known_row("many")
        assert row.state is State.HELD
        assert "pods" in row.message


@pytest.mark.parametrize("text", ["a%00b", "a\0b", "%ff%fe"])
async def test_annotations_that_no_database_keeps(store: Store, text: str) -> None:
    async with World(store) as world:
        term = await ready(world)
        await world.submit(train_job("odd", 1, user_groups=text, user=text))
        await goes_on(world, term)
        await world.until_state("odd", State.FINISHED)


async def test_a_change_that_the_database_refuses_stops_nobody_else(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        read = term.picture.intake.read_all

        class Intake(type(term.picture.intake)):  # type: ignore[misc]
            def read_all(self, obj: Object, kind: Any, inputs: Any = {}) -> Any:  # noqa: B006 - never changed
                reading = read(obj, kind, inputs)
                odd = reading.row.name == "odd" and world.state("other") is None
                return replace(reading, row=replace(reading.row, priority=2**70)) if odd else reading

        term.picture.intake = Intake(term.view, lambda: term.picture.compiled)
        await world.submit(train_job("odd", 1))
        await goes_on(world, term)
        await world.until_state("odd", State.FINISHED)


async def test_a_job_that_could_not_be_looked_at_is_looked_at_again(store: Store) -> None:
    faults = PlannedFaults()
    async with World(store, faults=faults) as world:
        await ready(world)
        faults.plan += [Planned(Fault.ERROR_BEFORE, "get", CONFIG_MAPS.plural)] * 3
        await world.submit(train_job("a", 1))
        await world.until_state("a", State.RUNNING)


async def test_looking_again_does_not_ask_for_every_snapshot_again(store: Store) -> None:
    async with World(store) as world:
        term = await ready(world)
        await world.submit(train_job("a", 4, seconds=3600))
        await world.until_state("a", State.RUNNING)
        asked: list[str] = []
        get = term.view._cluster.get

        async def counted(resource: Any, namespace: str, name: str) -> Object:
            if resource == CONFIG_MAPS:
                asked.append(name)
            return await get(resource, namespace, name)

        for number in range(5):
            await world.submit(train_job(f"w{number}", 4))
        await world.clock.advance(10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(term.view._cluster, "get", counted)
            term.view._snapshots.clear()
            for number in range(5):
                world.cluster.state.delete(CONFIG_MAPS, "ns", f"w{number}-runtime-snapshot")
            for _ in range(3):
                term.inbox.sweep()
                await world.clock.advance(1)
        assert len(asked) <= 5 + 1
