"""Nodes that fail under a running gang: other places for all its pods, a wait, and then all of it goes."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import EVENTS, PODS, TRAIN_JOBS, Object
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.store.records import State, WorkloadRow
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, World, train_job, with_checks

RACK = "topology.queue-manager.io/rack"


def settings(unhealthy: str = "60s", wait: str = "5m", then: str = "Requeue") -> str:
    """Settings of node failures."""
    spec = f"{{nodeFailure: {{unhealthyAfter: {unhealthy}, waitForReplacement: {wait}, then: {then}}}}}"
    return f"apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {{name: default}}\nspec: {spec}\n"


def hosts(row: WorkloadRow) -> list[str]:
    """Planned nodes of a workload, one a pod, in the order of ranks."""
    assert row.admission is not None
    (pod_set,) = row.admission.admission.pod_sets
    return [domain.values[-1] for domain in pod_set.domains or () for _ in range(domain.count)]


def bound(world: World, name: str) -> list[str]:
    """Nodes of its pods that are not on their way out."""
    pods = [pod for pod in world.pods(name) if not pod["metadata"].get("deletionTimestamp")]
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


def told(world: World, reason: str) -> list[str]:
    """Messages of our events with the reason."""
    return [e["message"] for e in world.cluster.state.storage.all(EVENTS) if e["reason"] == reason]


def container(gpus: int) -> Object:
    """A container that asks for GPUs."""
    return {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


async def running(world: World, name: str, nodes: int, **more: str) -> WorkloadRow:
    """A gang in one rack that runs."""
    await world.submit(train_job(name, nodes, seconds=36000, required_topology=RACK, **more))
    await world.until_state(name, State.RUNNING)

    def ready() -> bool:
        row = world.row(name)
        return row is not None and row.admission is not None and row.admission.ready_at is not None

    await world.until(ready)
    return row_of(world, name)


def row_of(world: World, name: str) -> WorkloadRow:
    """The workload of that name."""
    row = world.row(name)
    assert row is not None
    return row


def spare(world: World, name: str) -> str:
    """The node of a rack of three that two pods leave free."""
    rack = int(bound(world, name)[0][1:]) // 3 * 3
    (found,) = {f"n{rack + number}" for number in range(3)} - set(bound(world, name))
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_a_lost_node_is_replaced_in_its_rack_by_the_same_admission(store: Store, seed: int) -> None:
    async with World(store, seed, nodes=6, rack=3) as world:
        row = await running(world, "a", 2)
        charged = world.charged()
        lost, stays = bound(world, "a")
        free = spare(world, "a")
        world.cluster.set_ready(lost, False)
        await world.clock.advance(55)
        assert row_of(world, "a") == row, "a short silence changes nothing"
        await world.until(lambda: "NodesReplaced" in world.events("a"), within=10)
        row = row_of(world, "a")
        assert sorted(hosts(row)) == sorted([free, stays])
        assert row.state is State.RUNNING
        assert row.attempt == 1
        assert world.admissions("a") == 1
        assert world.charged() == charged
        await world.clock.advance(20)
        (message,) = told(world, "NodesReplaced")
        assert lost in message
        assert message.endswith(f"to {free}")
        assert store.check(world.clock.now()) == []


async def test_several_nodes_lost_at_once_are_replaced_together(store: Store) -> None:
    async with World(store, nodes=10, rack=5) as world:
        await running(world, "a", 3)
        gone, silent, stays = bound(world, "a")
        world.cluster.remove_node(gone)
        world.cluster.set_ready(silent, False)
        await world.until(
            lambda: gone not in hosts(row_of(world, "a")) and silent not in hosts(row_of(world, "a")), within=70
        )
        row = row_of(world, "a")
        rack = {f"n{int(stays[1:]) // 5 * 5 + number}" for number in range(5)}
        assert len(set(hosts(row))) == 3
        assert stays in hosts(row)
        assert set(hosts(row)) <= rack - {gone, silent}
        await world.until(lambda: bound(world, "a") == sorted(hosts(row)), within=400)
        assert row_of(world, "a").attempt == 1
        assert world.charged() == 12


async def test_without_other_nodes_all_of_it_goes_after_the_wait_and_queues_again(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings(wait="3m"))
        row = await running(world, "a", 2)
        await world.submit(train_job("b", 2, seconds=36000, required_topology=RACK))
        await world.until_state("b", State.RUNNING)
        lost = bound(world, "a")[0]
        world.cluster.set_ready(lost, False)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=70)
        waits = row_of(world, "a")
        assert waits.state is State.RUNNING
        assert lost in waits.message
        assert store.explanation(row.uid)["blockers"][0]["node"] == lost
        await world.clock.advance(170)
        assert world.state("a") is State.RUNNING, "the wait is not over"
        assert world.charged() == 16
        await world.until_state("a", State.DRAINING, within=15)
        row = await world.until_state("a", State.WAITING, within=700)  # a pod is left on the silent node
        assert row.requeues == 0
        assert row.not_before is None
        assert row.requeued_at is None, "it keeps its place in time"
        assert world.charged() == 8
        (cause,) = [e for e in told(world, "Evicted") if lost in e]
        assert "3m" in cause
        job = world.cluster.state.get(TRAIN_JOBS, "ns", "a")
        assert job["spec"]["suspend"] is True
        world.cluster.set_ready(lost, True)
        row = await world.until_state("a", State.RUNNING)
        assert row.attempt == 2
        assert store.check(world.clock.now()) == []


async def test_a_node_that_comes_back_in_time_ends_the_wait(store: Store) -> None:
    async with World(store) as world:
        await running(world, "a", 2)
        lost = bound(world, "a")[0]
        world.cluster.set_ready(lost, False)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=70)
        await world.clock.advance(100)
        world.cluster.set_ready(lost, True)
        await world.until(lambda: "NodesRecovered" in world.events("a"), within=5)
        row = row_of(world, "a")
        assert (row.reason, row.message) == ("", "")
        assert row.admission is not None
        assert row.admission.unplaced_at is None
        assert store.explanation(row.uid) is None
        await world.clock.advance(900)
        assert row_of(world, "a") == row, "nothing is left of the wait"


async def test_room_that_becomes_free_during_the_wait_is_taken(store: Store) -> None:
    async with World(store, nodes=6, rack=3) as world:
        await running(world, "a", 2)
        free = spare(world, "a")
        pod = {"metadata": {"name": "foreign"}, "spec": {"nodeName": free, "containers": [container(4)]}}
        await world.user.create(PODS, "ns", pod)
        lost, stays = bound(world, "a")
        world.cluster.set_ready(lost, False)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=70)
        await world.user.delete(PODS, "ns", "foreign")
        await world.until(lambda: "NodesReplaced" in world.events("a"), within=10)
        row = row_of(world, "a")
        assert sorted(hosts(row)) == sorted([free, stays])
        assert row.reason == ""


async def test_deactivation_instead_of_the_queue(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings(wait="0s", then="Deactivate"))
        await running(world, "a", 2)
        world.cluster.remove_node(bound(world, "a")[0])
        row = await world.until_state("a", State.DEACTIVATED)
        assert row.reason == "NodeFailures"
        assert world.charged() == 0


async def test_delay_and_wait_count_on_over_a_restart_of_the_controller(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings(wait="3m"))
        await running(world, "a", 2)
        world.cluster.set_ready(bound(world, "a")[0], False)
        await world.clock.advance(50)
        await world.restart(after=15)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=3)
        await world.clock.advance(100)
        await world.restart(after=75)
        assert world.state("a") is State.RUNNING
        await world.until_state("a", State.DRAINING, within=25)


async def test_a_cordon_leaves_running_pods_and_new_ones_go_elsewhere(store: Store) -> None:
    async with World(store, nodes=6, rack=3) as world:
        row = await running(world, "a", 2)
        cordoned, stays = bound(world, "a")
        free = spare(world, "a")
        world.cluster.change_node(cordoned, unschedulable=True)
        await world.clock.advance(600)
        assert row_of(world, "a") == row
        assert bound(world, "a") == sorted([cordoned, stays])
        (pod,) = [pod for pod in world.pods("a") if pod["spec"]["nodeName"] == cordoned]
        await world.user.delete(PODS, "ns", pod["metadata"]["name"])
        await world.until(lambda: bound(world, "a") == sorted([free, stays]))
        assert row_of(world, "a").attempt == 1


async def test_a_cordoned_node_without_others_lets_all_of_it_go_once_a_pod_is_missing(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings(wait="2m"))
        await running(world, "a", 2)
        cordoned = bound(world, "a")[0]
        world.cluster.change_node(cordoned, unschedulable=True)
        (pod,) = [pod for pod in world.pods("a") if pod["spec"]["nodeName"] == cordoned]
        await world.user.delete(PODS, "ns", pod["metadata"]["name"])
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=10)
        assert f"{cordoned} (cordoned)" in row_of(world, "a").message
        row = await world.until_state("a", State.RUNNING, within=300)
        await world.until(lambda: row_of(world, "a").attempt == 2, within=300)
        assert cordoned not in bound(world, "a")
        assert row.uid == row_of(world, "a").uid


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
async def test_a_taint_counts_where_it_is_not_tolerated(store: Store, effect: str) -> None:
    async with World(store, nodes=6, rack=3) as world:
        row = await running(world, "a", 2)
        tainted, stays = bound(world, "a")
        free = spare(world, "a")
        world.cluster.change_node(tainted, taints=[{"key": "repair", "effect": effect}])
        await world.clock.advance(30)
        if effect == "NoSchedule":
            assert row_of(world, "a") == row, "what runs there goes on"
            assert bound(world, "a") == sorted([tainted, stays])
        else:
            assert bound(world, "a") == sorted([free, stays])


async def test_a_foreign_pod_in_the_place_of_a_missing_one_is_seen(store: Store) -> None:
    async with World(store) as world:
        world.configure(settings(wait="2m"))
        await running(world, "a", 2)
        taken = bound(world, "a")[0]
        foreign = {
            "metadata": {"name": "foreign"},
            "spec": {"priority": 1000, "nodeSelector": {HOSTNAME: taken}, "containers": [container(4)]},
        }
        await world.user.create(PODS, "ns", foreign)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=10)
        assert taken in row_of(world, "a").message
        await world.until(lambda: row_of(world, "a").attempt == 2, within=300)
        assert taken not in hosts(row_of(world, "a"))


async def test_a_pinned_pod_that_outlives_the_loss_of_its_node_has_its_place_again(store: Store) -> None:
    async with World(store, nodes=4, rack=4) as world:
        await world.submit(train_job("a", 3, seconds=36000, unconstrained_topology="true"))
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: bound(world, "a") == sorted(hosts(row_of(world, "a"))))
        before = hosts(row_of(world, "a"))
        world.cluster.set_ready(before[1], False)
        await world.until(lambda: "NodesReplaced" in world.events("a"), within=70)
        assert before[1] not in hosts(row_of(world, "a"))
        world.cluster.set_ready(before[1], True)
        await world.until(lambda: hosts(row_of(world, "a")) == before, within=5)
        await world.submit(train_job("b", 1, seconds=36000))
        await world.until_state("b", State.RUNNING)
        assert bound(world, "a") == sorted(before)
        assert row_of(world, "a").attempt == 1


async def test_two_gangs_that_lose_a_node_each_do_not_get_one_and_the_same(store: Store) -> None:
    async with World(store, nodes=6, rack=6) as world:
        world.configure(CONFIGURATION.replace("nominalQuota: 16", "nominalQuota: 24"))
        for name in ("a", "b"):
            await world.submit(train_job(name, 2, seconds=36000, unconstrained_topology="true"))
            await world.until_state(name, State.RUNNING)
        await world.until(lambda: all(bound(world, n) == sorted(hosts(row_of(world, n))) for n in ("a", "b")))
        lost = [hosts(row_of(world, name))[0] for name in ("a", "b")]
        for name in lost:
            world.cluster.remove_node(name)
        await world.until(lambda: not {*hosts(row_of(world, "a")), *hosts(row_of(world, "b"))} & {*lost}, within=20)
        await world.clock.advance(60)
        placed = [*hosts(row_of(world, "a")), *hosts(row_of(world, "b"))]
        assert len(set(placed)) == 4
        assert sorted([*bound(world, "a"), *bound(world, "b")]) == sorted(placed)
        assert len(told(world, "NodesReplaced")) == 2, "nobody moves twice"


async def test_a_lost_placement_is_no_second_voice_while_a_gang_waits_for_other_nodes(store: Store) -> None:
    async with World(store) as world:
        await running(world, "a", 2)
        await world.submit(train_job("b", 2, seconds=36000, required_topology=RACK))
        await world.until_state("b", State.RUNNING)
        lost = bound(world, "a")[0]
        world.cluster.set_ready(lost, False)
        await world.until(lambda: row_of(world, "a").reason == "WaitingForReplacement", within=70)
        # Trainer's webhook refuses this for what runs; it is not always there.
        job = world.cluster.state.get(TRAIN_JOBS, "ns", "a")
        world.cluster.state.storage.put(TRAIN_JOBS, {**job, "spec": {**job["spec"], "runtimePatches": []}})
        await world.clock.advance(5)
        row = row_of(world, "a")
        assert row.reason == "WaitingForReplacement"
        assert lost in row.message
        await world.clock.advance(30)
        assert row_of(world, "a").version == row.version, "it is said once"
        world.cluster.set_ready(lost, True)
        await world.until(lambda: "would lose their place" in row_of(world, "a").message, within=10)
        await world.clock.advance(30)
        assert len(told(world, "PlacementLost")) == 1


@pytest.mark.parametrize("then", ["Requeue", "Deactivate"])
async def test_what_is_reserved_on_a_lost_node_queues_again_at_once(store: Store, then: str) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset"))
        world.configure(settings(then=then))
        await world.submit(train_job("a", 4, seconds=36000))
        row = await world.until_state("a", State.RESERVED)
        world.cluster.remove_node(hosts(row)[0])
        await world.until(lambda: world.state("a") is not State.RESERVED, within=10)
        row = await world.until_state("a", State.WAITING)
        await world.until(lambda: told(world, "Evicted"))
        (message,) = told(world, "Evicted")
        assert "reservation" in message
        assert "within" not in message, "it has not waited"
        assert (row.requeued_at, world.charged()) == (None, 0)


async def test_foreign_pods_make_nobody_be_looked_at_but_who_may_have_lost_a_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(store) as world:
        row = await running(world, "a", 2)
        await world.clock.advance(10)
        assert world.controller is not None
        assert world.controller.term is not None
        reconciler, looked = world.controller.term.reconciler, []
        look = reconciler.change_of
        monkeypatch.setattr(reconciler, "change_of", lambda uid, row: looked.append(uid) or look(uid, row))
        node = bound(world, "a")[0]
        for name, gpus in (("small", 0), ("large", 4)):
            before = world.controller.term.picture.pods.foreign(node)
            spec = {"nodeName": node, "containers": [container(gpus)]}
            await world.user.create(PODS, "ns", {"metadata": {"name": name}, "spec": spec})
            await world.clock.advance(2)
            assert world.controller.term.picture.pods.foreign(node) != before
            assert looked == ([row.uid] if gpus else [])
