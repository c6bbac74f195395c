"""Pods by whose priority kube-scheduler could stop those of other jobs: their users are told."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import EVENTS, JOBS, PRIORITY_CLASSES, Object
from queue_manager.config.compiled import compile_objects
from queue_manager.config.models import API_VERSION
from queue_manager.store.asked import workload_of
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job


def priority_class(name: str, value: int, **more: object) -> Object:
    """A PriorityClass of Kubernetes."""
    return {"metadata": {"name": name}, "value": value, **more}


def job(name: str, priority: str = "") -> Object:
    """A Job whose pods name a class."""
    made = batch_job(name, 1, seconds=3600)
    if priority:
        made["spec"]["template"]["spec"]["priorityClassName"] = priority
    return made


def settings(policy: str) -> str:
    """Settings with a policy for priorities of pods."""
    name = ", className: training" if policy == "Normalize" else ""
    spec = f"{{podPriority: {{policy: {policy}{name}}}}}"
    return f"apiVersion: {API_VERSION}\nkind: Settings\nmetadata: {{name: default}}\nspec: {spec}\n"


def warnings(world: World, name: str) -> list[str]:
    """What we told the user of a job about priorities."""
    found = [e for e in world.cluster.state.storage.all(EVENTS) if e["involvedObject"]["name"] == name]
    return [e["message"] for e in found if e["reason"] == "PodPriority"]


async def prepared(world: World) -> None:
    """Classes, and a job whose pods have none."""
    classes = (
        priority_class("urgent", 1000),
        priority_class("polite", 1000, preemptionPolicy="Never"),
        priority_class("training", 10),
    )
    for made in classes:
        world.cluster.state.create(PRIORITY_CLASSES, "", made, manager="kubectl")
    await world.submit(job("plain"), JOBS)
    await world.until_state("plain", State.RUNNING)


@pytest.mark.parametrize(("policy", "told"), [("Warn", True), ("Ignore", False), ("Normalize", True)])
async def test_a_job_that_could_preempt_others_below_the_queues_is_told_so_once(
    store: Store, policy: str, told: bool
) -> None:
    async with World(store) as world:
        world.configure(settings(policy))
        await prepared(world)
        await world.submit(job("high", "urgent"), JOBS)
        row = await world.until_state("high", State.RUNNING)
        await world.clock.advance(120)
        assert row.pod_groups[0].pod_sets[0].pod_priority == 1000
        assert row.priority == 1000, "it orders in our queue all the same"
        found = warnings(world, "high")
        assert len(found) == told
        if told:
            assert "urgent" in found[0]
            assert "1000" in found[0]
            assert ("not normalised" in found[0]) == (policy == "Normalize")
        assert warnings(world, "plain") == []


async def test_equal_priority_and_classes_that_never_preempt_are_no_danger(store: Store) -> None:
    async with World(store) as world:
        await prepared(world)
        await world.submit(job("same"), JOBS)
        await world.submit(job("polite", "polite"), JOBS)
        await world.until_state("polite", State.RUNNING)
        await world.clock.advance(10)
        assert warnings(world, "same") == warnings(world, "polite") == []


async def test_pods_without_a_class_have_the_global_default(store: Store) -> None:
    async with World(store) as world:
        made = priority_class("standard", 77, globalDefault=True)
        world.cluster.state.create(PRIORITY_CLASSES, "", made, manager="kubectl")
        await world.submit(job("a"), JOBS)
        row = await world.until_state("a", State.RUNNING)
        assert row.pod_groups[0].pod_sets[0].pod_priority == 77


async def test_a_class_of_ours_protects_nobody_whose_priority_is_from_kubernetes_class_of_that_name(
    store: Store,
) -> None:
    async with World(store) as world:
        world.configure(
            f"apiVersion: {API_VERSION}\nkind: PriorityClass\nmetadata: {{name: training}}\n"
            "spec: {value: 5, minRunTime: 10h}\n"
        )
        await prepared(world)
        await world.submit(job("theirs", "training"), JOBS)
        labelled = job("ours")
        labelled["metadata"]["labels"]["queue-manager.io/priority-class"] = "training"
        await world.submit(labelled, JOBS)
        theirs, ours = [await world.until_state(name, State.RUNNING) for name in ("theirs", "ours")]
        assert (theirs.priority, ours.priority) == (10, 5)
        compiled = compile_objects(store.load_configuration()[1])
        assert [workload_of(row, compiled, {}).min_run_time for row in (theirs, ours)] == [0, 10 * 3600 * 10**6]
