"""What runs and no longer asks for a queue: it stays the one workload that it is, and charged for, until it ends."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, PODS, PatchType, Resource
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.test_plain_pods import QUEUE, RACK, bound, group, plain
from tests.controller.world import World, batch_job, job_set

GROUP = "queue-manager.io/pod-group"


async def without(world: World, resource: Resource, name: str, *labels: str) -> None:
    """Its user takes labels away."""
    patch = {"metadata": {"labels": dict.fromkeys(labels or (QUEUE,))}}
    await world.user.patch(resource, "ns", name, patch, PatchType.MERGE)


def workloads(world: World) -> list[tuple[str, str, State]]:
    """Everything that waits or runs."""
    return sorted((row.kind, row.name, row.state) for row in world.store.load_workloads())


async def test_pods_with_the_label_of_a_running_job_without_one_are_no_workloads(store: Store) -> None:
    async with World(store) as world:
        job = batch_job("a", 2, seconds=60)
        job["spec"]["template"]["metadata"]["labels"] = {QUEUE: "team"}
        await world.submit(job, JOBS)
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(bound(world)) == 2)
        await without(world, JOBS, "a")
        await world.clock.advance(10)
        assert (workloads(world), world.charged()) == ([("Job", "a", State.RUNNING)], 8)
        await world.until_state("a", State.FINISHED)
        assert world.charged() == 0


@pytest.mark.parametrize("restart", [False, True], ids=["sweep", "restart"])
async def test_a_child_job_with_the_label_of_a_running_job_set_without_one_is_no_workload(
    store: Store, restart: bool
) -> None:
    async with World(store) as world:
        obj = job_set("a", 2, 2, seconds=60)
        obj["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {QUEUE: "team"}}
        obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"] = {QUEUE: "team"}
        await world.submit(obj, JOB_SETS)
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(bound(world)) == 4)
        await without(world, JOB_SETS, "a")
        if restart:
            await world.restart()
            await world.until_ready()
        else:
            assert world.controller is not None
            assert world.controller.term is not None
            world.controller.term.inbox.sweep()
        await world.clock.advance(10)
        assert (workloads(world), world.charged()) == ([("JobSet", "a", State.RUNNING)], 8)
        await world.until_state("a", State.FINISHED)
        assert world.charged() == 0


async def test_pods_that_ask_themselves_are_workloads_once_their_owner_is_none(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("filler", 4, seconds=600), JOBS)
        await world.until_state("filler", State.RUNNING)
        job = batch_job("a", 1, seconds=600)
        job["spec"]["template"]["metadata"]["labels"] = {QUEUE: "team"}
        job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "queue-manager.io/admission"}]
        await world.submit(job, JOBS)
        await world.until_state("a", State.WAITING)
        await world.kill()
        patch = {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": False}}
        await world.user.patch(JOBS, "ns", "a", patch, PatchType.MERGE)
        await world.clock.advance(5)
        (pod,) = world.pods("a")
        await world.start()
        await world.until_state("a", State.FINISHED)
        await world.until_state(pod["metadata"]["name"], State.WAITING)


@pytest.mark.parametrize("labels", [(QUEUE,), (QUEUE, GROUP)], ids=["queue", "queue-and-group"])
@pytest.mark.parametrize("topology", [{}, {"required_topology": RACK}], ids=["anywhere", "in-a-rack"])
async def test_admitted_plain_pods_without_their_labels_are_charged_for_until_they_end(
    store: Store, labels: tuple[str, ...], topology: dict[str, str]
) -> None:
    async with World(store) as world:
        await group(world, "g", 2, seconds=60, **topology)
        before = await world.until_state("g", State.RUNNING)
        await world.until(lambda: len(bound(world)) == 2)
        for name in ("g-0", "g-1"):
            await without(world, PODS, name, *labels)
        await world.clock.advance(10)
        assert (workloads(world), world.charged()) == ([("PodGroup", "g", State.RUNNING)], 8)
        await world.restart()
        await world.until_ready()
        await world.clock.advance(10)
        assert (workloads(world), world.charged()) == ([("PodGroup", "g", State.RUNNING)], 8)
        row = await world.until_state("g", State.FINISHED)
        assert (row.uid, row.message, world.charged()) == (before.uid, "2 of 2 pods succeeded", 0)


async def test_an_admitted_pod_alone_without_its_label_is_charged_for_until_it_ends(store: Store) -> None:
    async with World(store) as world:
        await world.user.create(PODS, "ns", plain("alone", seconds=60))
        await world.until_state("alone", State.RUNNING)
        await world.until(lambda: len(bound(world)) == 1)
        await without(world, PODS, "alone")
        await world.clock.advance(10)
        assert (workloads(world), world.charged()) == ([("Pod", "alone", State.RUNNING)], 4)
        row = await world.until_state("alone", State.FINISHED)
        assert (row.message, world.charged()) == ("1 of 1 pods succeeded", 0)


async def test_a_pod_that_waits_at_its_gate_and_asks_no_longer_is_no_workload(store: Store) -> None:
    async with World(store) as world:
        await group(world, "g", 2, 1)
        await world.until_state("g", State.HELD)
        await without(world, PODS, "g-0")
        await world.until_state("g", State.FINISHED)
