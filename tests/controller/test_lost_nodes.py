"""Pods on nodes that are gone: their quota is released after the drain timeout, their nodes stay blocked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queue_manager.cluster.port import EVENTS, TRAIN_JOBS
from queue_manager.config.models import API_VERSION
from queue_manager.controller.lost_nodes import given_up
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, train_job

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TEN = timedelta(minutes=10)


def node(status: str, since: datetime) -> dict[str, object]:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": since.isoformat()}
    return {"metadata": {"name": "n"}, "status": {"conditions": [condition]}}


def test_pods_are_given_up_only_when_all_their_nodes_were_silent_long_enough() -> None:
    long, short = NOW - timedelta(minutes=11), NOW - timedelta(minutes=9)
    nodes = {"dead": node("Unknown", long), "fresh": node("False", short), "well": node("True", long)}
    assert given_up(["dead", "dead", "deleted"], nodes.get, long, NOW, TEN) == ("dead", "deleted")
    assert given_up(["dead"], nodes.get, short, NOW, TEN) == ()
    assert given_up(["dead", "fresh"], nodes.get, long, NOW, TEN) == ()
    assert given_up(["dead", "well"], nodes.get, long, NOW, TEN) == ()
    assert given_up(["dead", ""], nodes.get, long, NOW, TEN) == (), "a pod that is bound nowhere can still start"


async def test_quota_of_pods_on_a_silent_node_is_released_after_the_drain_timeout(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("low", 4, seconds=3600))
        await world.until_state("low", State.RUNNING)
        await world.until(lambda: all(pod["spec"].get("nodeName") for pod in world.pods("low")))
        await world.clock.advance(10)
        world.cluster.set_ready("n0", False)
        await world.clock.advance(5)
        await world.submit(train_job("high", 3, high=True, seconds=3600))
        await world.until_state("low", State.DRAINING)
        await world.clock.advance(500)
        assert world.charged() == 16, "its kubelet may come back"
        assert len(world.pods("low")) == 1
        await world.until_state("low", State.WAITING, within=200)
        await world.until(lambda: "NodesLost" in world.events("low"))
        told = [e for e in world.cluster.state.storage.all(EVENTS) if e["reason"] == "NodesLost"]
        assert told[0]["message"].endswith("lost: n0")
        await world.until_state("high", State.RUNNING)
        assert {pod["spec"].get("nodeName") for pod in world.pods("high")} <= {"n1", "n2", "n3"}
        assert store.check(world.clock.now()) == []

        # The kubelet comes back with its pod: the node is full until that is gone, and nobody else is charged for it.
        await world.user.delete(TRAIN_JOBS, "ns", "high")
        await world.until_state("high", State.FINISHED)
        assert world.state("low") is State.WAITING, "n0 does not count"
        world.cluster.set_ready("n0", True)
        await world.until_state("low", State.RUNNING)
        assert world.admissions("low") == 2


async def test_the_drain_timeout_of_the_settings_holds_for_a_deleted_job_too(store: Store) -> None:
    async with World(store) as world:
        world.configure(
            f"apiVersion: {API_VERSION}\nkind: Settings\nmetadata: {{name: default}}\nspec: {{drainTimeout: 2m}}\n"
        )
        await world.submit(train_job("a", 2, seconds=3600))
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: all(pod["spec"].get("nodeName") for pod in world.pods("a")))
        node = world.pods("a")[0]["spec"]["nodeName"]
        world.cluster.set_ready(node, False)
        await world.user.delete(TRAIN_JOBS, "ns", "a")
        await world.until_state("a", State.DRAINING)
        await world.clock.advance(60)
        assert world.state("a") is State.DRAINING
        await world.until_state("a", State.FINISHED, within=200)
        assert world.charged() == 0
