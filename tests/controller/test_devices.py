"""Jobs whose pods get devices by resource claims: held, counted, and looked at again when claims come and go."""

from __future__ import annotations

from typing import Any

from queue_manager.cluster.port import (
    DEVICE_CLASSES,
    LIMIT_RANGES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Object,
    Resource,
)
from queue_manager.engine.workload import Devices
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import JOBS, World, batch_job

MAPPING = """
apiVersion: queue-manager.io/v1
kind: Settings
metadata: {name: default}
spec:
  resources: {deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [h100]}]}
"""


def with_claims(job: Object, **names: str) -> Object:
    """The job with its GPUs asked for by a claim."""
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0].pop("resources")
    pod["resourceClaims"] = [{"name": "gpus", **names}]
    return job


def asks(count: int) -> Any:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "h100", "count": count}}]}}


def create(world: World, resource: Resource, name: str, spec: Any) -> None:
    namespace = "ns" if resource.namespaced else ""
    world.cluster.state.create(resource, namespace, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")


async def test_a_job_waits_for_its_template_and_for_the_setting_and_is_charged_for_each_pod(store: Store) -> None:
    async with World(store) as world:
        await world.submit(with_claims(batch_job("j", 3, seconds=600), resourceClaimTemplateName="gpus"), JOBS)
        row = await world.until_state("j", State.HELD)
        assert "there is no ResourceClaimTemplate gpus" in row.message
        create(world, RESOURCE_CLAIM_TEMPLATES, "gpus", {"spec": asks(2)})
        await world.until_state("j", State.WAITING)

        def told() -> bool:
            row = world.row("j")
            return row is not None and row.reason == "Misconfigured" and "DeviceClass h100" in row.message

        await world.until(told, "the class and the setting are named")
        world.configure(MAPPING)
        row = await world.until_state("j", State.RUNNING)
        assert world.charged() == 6
        assert row.pod_groups[0].pod_sets[0].devices == Devices({"h100": 2})
        await world.restart()
        await world.until(lambda: world.controller is not None and world.controller.term is not None)
        assert world.charged() == 6
        assert store.check(world.clock.now()) == []


async def test_a_template_that_is_made_anew_while_the_job_waits_is_read_again(store: Store) -> None:
    async with World(store) as world:
        world.configure(MAPPING)
        create(world, RESOURCE_CLAIM_TEMPLATES, "gpus", {"spec": asks(9)})
        await world.submit(with_claims(batch_job("j", 2, seconds=600), resourceClaimTemplateName="gpus"), JOBS)
        await world.until(lambda: (row := world.row("j")) is not None and row.reason == "ExceedsMaxQuota", "too much")
        await world.user.delete(RESOURCE_CLAIM_TEMPLATES, "ns", "gpus")
        await world.until_state("j", State.HELD)
        create(world, RESOURCE_CLAIM_TEMPLATES, "gpus", {"spec": asks(1)})
        await world.until_state("j", State.RUNNING)
        assert world.charged() == 2


async def test_a_claim_that_pods_share_is_charged_once(store: Store) -> None:
    async with World(store) as world:
        world.configure(MAPPING)
        create(world, RESOURCE_CLAIMS, "one", asks(5))
        await world.submit(with_claims(batch_job("j", 4, seconds=600), resourceClaimName="one"), JOBS)
        await world.until_state("j", State.RUNNING)
        assert world.charged() == 5


async def test_an_extended_resource_that_a_class_serves_needs_no_node_that_lists_it(store: Store) -> None:
    async with World(store) as world:
        world.configure(MAPPING)
        create(world, DEVICE_CLASSES, "h100", {"extendedResourceName": "vendor.com/accelerator"})
        job = batch_job("j", 2, seconds=600)
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"vendor.com/accelerator": 3}}
        await world.submit(job, JOBS)
        await world.until_state("j", State.RUNNING)
        assert world.charged() == 6


async def test_a_limit_range_that_refuses_the_pods_holds_the_job_until_it_is_gone(store: Store) -> None:
    async with World(store) as world:
        limits = [{"type": "Container", "max": {"nvidia.com/gpu": 2}}]
        create(world, LIMIT_RANGES, "small", {"limits": limits})
        await world.submit(batch_job("j", 2, seconds=600), JOBS)
        row = await world.until_state("j", State.HELD)
        assert row.reason == "Misconfigured"
        assert "spec.template.spec.containers[0].resources has a limit of 4 of nvidia.com/gpu" in row.message
        await world.user.delete(LIMIT_RANGES, "ns", "small")
        await world.until_state("j", State.RUNNING)
