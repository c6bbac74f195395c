"""Trainer's snapshots are asked for where they can matter: not for jobs that are over, and not kept after the end."""

from __future__ import annotations

from queue_manager.cluster.port import CONFIG_MAPS, Resource
from queue_manager.cluster.simulated.faults import Fault
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, train_job


class Asked:
    """Lets everything pass and notes which ConfigMaps were read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
        if verb == "get" and resource == CONFIG_MAPS:
            self.names.append(name)
        return None

    def drop_watch(self, resource: Resource) -> bool:
        return False


async def test_a_new_leader_asks_for_no_snapshot_of_a_job_that_is_over(store: Store) -> None:
    asked = Asked()
    async with World(store, faults=asked) as world:
        await world.submit(train_job("over", 1, seconds=5))
        await world.until_state("over", State.FINISHED)
        assert "over-runtime-snapshot" in asked.names, "it was needed while the job waited"
        asked.names.clear()
        await world.restart()
        await world.submit(train_job("new", 1))
        await world.until_state("new", State.RUNNING)
        assert set(asked.names) == {"new-runtime-snapshot"}


async def test_a_snapshot_is_forgotten_with_its_job(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 1, seconds=5))
        await world.until_state("a", State.RUNNING)
        assert world.controller is not None
        assert world.controller.term is not None
        view = world.controller.term.view
        assert view.get(CONFIG_MAPS, "ns", "a-runtime-snapshot") is not None
        await world.until_state("a", State.FINISHED)
        assert view.get(CONFIG_MAPS, "ns", "a-runtime-snapshot") is None
