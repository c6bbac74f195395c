"""The configuration changes while the controller decides: nothing is decided by an old one, and nobody is stuck."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.cluster.port import JOBS, NAMESPACES, TRAIN_JOBS, PatchType
from queue_manager.config.models import API_VERSION
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job

LESS = f"""
apiVersion: {API_VERSION}
kind: Queue
metadata: {{name: team}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{{name: gpus, resources: [{{name: nvidia.com/gpu, nominalQuota: 4}}]}}]
"""
PICKY = f"""
apiVersion: {API_VERSION}
kind: Queue
metadata: {{name: team}}
spec:
  namespaceSelector: {{matchLabels: {{team: a}}}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{{name: gpus, resources: [{{name: nvidia.com/gpu, nominalQuota: 16}}]}}]
---
apiVersion: {API_VERSION}
kind: LocalQueue
metadata: {{name: mine, namespace: ns}}
spec: {{queue: team}}
"""


def behind_its_back(world: World, yaml: str) -> None:
    """Applied by another process; the controller has not heard of it yet."""
    apply_text(Context(world.store, lambda: datetime.now(UTC)), yaml, file="test.yaml")


async def test_a_plan_by_an_old_configuration_is_taken_back_and_made_anew(store: Store) -> None:
    async with World(store) as world:
        await world.until_ready()
        term = world.controller.term  # type: ignore[union-attr]
        behind_its_back(world, LESS)
        await world.submit(train_job("big", 4))
        await world.submit(train_job("small", 1))
        await world.until_state("small", State.RUNNING)
        assert world.controller is not None
        assert world.controller.term is term, "the term goes on"
        assert world.state("big") is State.WAITING
        assert world.charged() == 4


async def test_a_namespace_gets_the_label_its_queue_asks_for(store: Store) -> None:
    async with World(store) as world:
        world.configure(PICKY)
        job = train_job("a", 1)
        job["metadata"]["labels"]["queue-manager.io/queue"] = "mine"
        await world.submit(job)
        await world.until(lambda: world.row("a") and world.row("a").reason == "Misconfigured")  # type: ignore[union-attr]
        await world.user.patch(NAMESPACES, "", "ns", {"metadata": {"labels": {"team": "a"}}}, PatchType.MERGE)
        await world.until_state("a", State.RUNNING)


def delete(world: World, kind: str, name: str) -> None:
    store = world.store
    store.apply_configuration(
        [], delete=[(kind, "", name)], author="t", reason="", now=datetime.now(UTC), source="test"
    )
    assert world.controller is not None
    assert world.controller.term is not None
    world.controller.term.configuration_changed()


async def test_a_queue_is_deleted_while_its_jobs_run_and_wait(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 3, seconds=60))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 3))
        await world.until(lambda: world.row("b") and world.row("b").reason == "WaitingForQuota")  # type: ignore[union-attr]
        delete(world, "Queue", "team")
        await world.until(lambda: world.row("b").reason == "UnknownQueue")  # type: ignore[union-attr]
        assert world.state("a") is State.RUNNING
        assert world.charged() == 12
        await world.until_state("a", State.FINISHED)
        assert world.charged() == 0
        assert store.check(world.clock.now()) == []


async def test_a_flavor_is_deleted_while_its_jobs_run_and_drain(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 4, completions=6, seconds=20), JOBS)
        await world.until_state("j", State.RUNNING)
        delete(world, "Flavor", "gpus")
        await world.until(lambda: world.charged() == 8, "finished pods lend their quota all the same")
        await world.until_state("j", State.FINISHED)
        assert world.charged() == 0


async def running_without_us(world: World, name: str) -> None:
    job: dict[str, Any] = train_job(name, 1, seconds=600)
    await world.user.create(TRAIN_JOBS, "ns", job)


async def test_jobs_that_ran_before_are_left_to_the_queue_where_adoption_is_off(store: Store) -> None:
    world = World(store)
    behind_its_back(
        world, f"apiVersion: {API_VERSION}\nkind: Settings\nmetadata: {{name: default}}\nspec: {{adoption: Suspend}}\n"
    )
    await running_without_us(world, "before")
    async with world:
        await world.until_state("before", State.RUNNING)
        assert world.admissions("before") == 1
        assert world.events("before") == []


async def test_jobs_that_ran_before_are_adopted_once_there_is_a_configuration(store: Store) -> None:
    world = World(store)
    store.apply_configuration(
        [],
        delete=[(o.kind, o.namespace, o.name) for o in store.load_configuration()[1]],
        author="t",
        reason="",
        now=datetime.now(UTC),
        source="test",
    )
    await running_without_us(world, "before")
    async with world:
        await world.until(lambda: world.pods("before"))
        await world.clock.advance(30)
        assert world.pods("before"), "nobody has said yet what queues there are"
        from tests.controller.world import CONFIGURATION

        world.configure(CONFIGURATION)
        await world.until_state("before", State.RUNNING)
        await world.until(lambda: world.events("before") == ["Adopted"])
        assert world.charged() == 4


async def test_a_change_of_quotas_alone_has_nobody_read_again(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("runs", 4, seconds=300))
        await world.until_state("runs", State.RUNNING)
        await world.submit(batch_job("waits", 4), JOBS)
        await world.until_state("waits", State.WAITING)
        term = world.controller.term  # type: ignore[union-attr]
        assert term is not None
        read = term.picture.intake.read_all
        seen: list[str] = []

        class Reads(type(term.picture.intake)):  # type: ignore[misc]
            def read_all(self, obj: Any, *arguments: Any) -> Any:
                seen.append(obj["metadata"]["name"])
                return read(obj, *arguments)

        term.picture.intake = Reads(term.view, lambda: term.picture.compiled)
        world.configure(LESS)
        await world.until(lambda: "needs 16, 0 free" in world.known_row("waits").message, "it is told of the quota")
        assert seen == []
        world.configure(PICKY)
        await world.until(lambda: world.known_row("waits").reason == "UnknownQueue", "it is told of the namespace")
        assert "waits" in seen
