"""Pods that a third party takes away: the whole job goes back to its queue, or the pod gets another place."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import PODS, TRAIN_JOBS, Object
from queue_manager.cluster.simulated.node_lifecycle import disrupt
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.test_node_failures import bound, container, hosts, row_of, running, settings, told
from tests.controller.world import World, train_job


def foreign(node: str, priority: int = 1000) -> Object:
    """A pod of somebody else that fits on one node only."""
    spec = {"priority": priority, "nodeSelector": {HOSTNAME: node}, "containers": [container(4)]}
    return {"metadata": {"name": "foreign"}, "spec": spec}


async def pinned(world: World, name: str, nodes: int, **more: str) -> None:
    """A gang that runs, each pod on the node of its rank."""
    await world.submit(train_job(name, nodes, seconds=36000, unconstrained_topology="true", **more))
    await world.until_state(name, State.RUNNING)
    await world.until(lambda: bound(world, name) == sorted(hosts(row_of(world, name))))
    assert row_of(world, name).admission.admission.pod_sets[0].pinned  # type: ignore[union-attr]


async def test_mode_all_sends_the_whole_gang_back_to_its_queue(store: Store) -> None:
    async with World(store) as world:
        await running(world, "a", 2, disruption_mode="all")
        taken = bound(world, "a")[0]
        await world.user.create(PODS, "ns", foreign(taken))
        row = await world.until_state("a", State.DRAINING, within=10)
        assert row.reason == "Disrupted"
        assert "kube-scheduler" in row.message
        assert world.cluster.state.get(TRAIN_JOBS, "ns", "a")["spec"]["suspend"] is True
        await world.until(lambda: row_of(world, "a").attempt == 2 and row_of(world, "a").state is State.RUNNING)
        assert taken not in hosts(row_of(world, "a"))
        assert row_of(world, "a").requeues == 0


@pytest.mark.parametrize("seed", range(3))
async def test_mode_single_repairs_a_pinned_gang_in_another_place(store: Store, seed: int) -> None:
    async with World(store, seed, nodes=5, rack=5) as world:
        await pinned(world, "a", 3)
        charged = world.charged()
        taken = hosts(row_of(world, "a"))[1]
        await world.user.create(PODS, "ns", foreign(taken))
        await world.until(lambda: "NodesReplaced" in world.events("a"), within=10)
        row = row_of(world, "a")
        assert taken not in hosts(row)
        await world.until(lambda: bound(world, "a") == sorted(hosts(row)))
        assert (row.attempt, world.charged()) == (1, charged)
        assert taken in told(world, "NodesReplaced")[0]
        assert store.check(world.clock.now()) == []


async def test_mode_single_without_another_place_waits_and_then_all_of_it_goes(store: Store) -> None:
    async with World(store, nodes=3, rack=3) as world:
        world.configure(settings(wait="2m"))
        await pinned(world, "a", 3)
        taken = hosts(row_of(world, "a"))[0]
        await world.user.create(PODS, "ns", foreign(taken))
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=10)
        await world.clock.advance(100)
        free = [pod for pod in world.pods("a") if not pod["spec"].get("nodeName")]
        assert len(free) == 1
        assert free[0]["spec"].get("schedulingGates"), "it is not sent to a node that others have"
        await world.until_state("a", State.WAITING, within=60)
        await world.user.delete(PODS, "ns", "foreign")
        await world.until(lambda: row_of(world, "a").attempt == 2)


async def test_what_comes_of_its_node_or_its_owner_is_no_third_party(store: Store) -> None:
    async with World(store, nodes=6, rack=3) as world:
        await running(world, "a", 2, disruption_mode="all")
        for reason in ("TerminationByKubelet", "ExclusivePlacementViolation"):
            pod = world.pods("a")[0]
            disrupt(world.cluster.state, pod, reason, "because", "test")
            await world.user.delete(PODS, "ns", pod["metadata"]["name"])
            await world.clock.advance(20)
            assert row_of(world, "a").attempt == 1
            assert row_of(world, "a").state is State.RUNNING


async def test_a_mode_that_is_no_mode_holds_the_job_with_the_field(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, disruption_mode="both"))
        row = await world.until_state("a", State.HELD)
        assert "disruption-mode" in row.message
        assert "single or all" in row.message
