"""Groups of plain pods on the simulated cluster: admitted whole, stopped by deletion, kept whole while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.port import PODS, Object, Resource
from queue_manager.cluster.simulated.faults import Fault, SeededFaults
from queue_manager.store.records import ENDED, State, Wish
from queue_manager.store.store import Store
from tests.controller.test_crashes import check_invariants
from tests.controller.world import World, train_job

QUEUE = "queue-manager.io/queue"
RACK = "topology.queue-manager.io/rack"


def plain(name: str, group: str = "", size: int = 0, *, gpus: int = 4, seconds: int = 30, **more: Any) -> Object:
    """A gated pod for queue `team`. `more` are annotations of ours; `labels` and `gated` say what they say."""
    labels = {QUEUE: "team"} | ({"queue-manager.io/pod-group": group} if group else {}) | more.pop("labels", {})
    annotations = {"simulated.queue-manager.io/run-time": f"{seconds}s"}
    annotations |= {"queue-manager.io/pod-group-size": str(size)} if size else {}
    gates = [{"name": "queue-manager.io/admission"}] if more.pop("gated", True) else []
    if outcome := more.pop("outcome", ""):
        annotations["simulated.queue-manager.io/outcome"] = outcome
    if ending := more.pop("ends_in", 0):
        annotations["simulated.queue-manager.io/termination-time"] = f"{ending}s"
    annotations |= {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in more.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            **({"schedulingGates": gates} if gates else {}),
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
    }


@pytest.fixture
async def world(store: Store) -> AsyncIterator[World]:
    """Two racks of two nodes of 4 GPUs, and a controller."""
    async with World(store) as found:
        yield found


async def create(world: World, pods: Iterable[Object]) -> list[Object]:
    """The pods, made by their user."""
    return [await world.user.create(PODS, "ns", pod) for pod in pods]


async def group(world: World, name: str, size: int, count: int = 0, **more: Any) -> list[Object]:
    """`count` pods (all of them) of a group."""
    pods = (plain(f"{name}-{number}", name, size, **more) for number in range(count or size))
    return await create(world, pods)


def pod(world: World, name: str) -> Object | None:
    """A pod as it is now."""
    return world.cluster.state.peek(PODS, "ns", name)


def gated(world: World) -> list[str]:
    """Pods that nothing has let through."""
    return sorted(p["metadata"]["name"] for p in world.pods() if p["spec"].get("schedulingGates"))


def bound(world: World, prefix: str = "") -> list[str]:
    """Nodes of bound pods that have not ended."""
    return sorted(p["spec"]["nodeName"] for p in world.pods(prefix) if p["spec"].get("nodeName"))


async def test_pods_of_a_group_that_want_to_be_apart_get_nodes_of_their_own(world: World) -> None:
    labels = {"app": "train"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    pods = [plain(f"g-{number}", "g", 4, gpus=1, labels=labels) for number in range(4)]
    for made in pods:
        made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await create(world, pods)
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world)) == 4)
    assert bound(world) == ["n0", "n1", "n2", "n3"]


def cycles(world: World) -> int:
    """How often the controller has looked and decided."""
    assert world.controller is not None
    assert world.controller.term is not None
    return world.controller.term.counters.cycles


async def test_a_group_waits_until_all_its_pods_exist_and_then_runs_whole(world: World) -> None:
    await group(world, "g", 4, 3)
    row = await world.until_state("g", State.HELD)
    await world.until(lambda: world.known_row("g").message == "3 of 4 pods exist", str(row))
    await world.clock.advance(60)
    assert (len(gated(world)), world.charged()) == (3, 0)
    assert (pod(world, "g-0") or {})["metadata"]["annotations"]["queue-manager.io/message"] == "3 of 4 pods exist"
    await create(world, [plain("g-3", "g", 4)])
    row = await world.until_state("g", State.RUNNING)
    assert (row.kind, world.charged()) == ("PodGroup", 16)
    await world.until(lambda: len(bound(world)) == 4, "all run")
    assert world.admissions("g") == 1


async def test_a_group_ends_when_all_its_pods_have_succeeded_and_lends_what_they_no_longer_need(world: World) -> None:
    await create(world, [plain("g-0", "g", 2, seconds=10), plain("g-1", "g", 2, seconds=60)])
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: world.charged() == 4, "one has ended")
    row = await world.until_state("g", State.FINISHED)
    assert (row.reason, row.message, world.charged()) == ("Succeeded", "2 of 2 pods succeeded", 0)


async def test_a_pod_alone_is_a_workload_of_its_own(world: World) -> None:
    await create(world, [plain("alone", seconds=10)])
    row = await world.until_state("alone", State.RUNNING)
    assert (row.kind, row.uid) == ("Pod", (pod(world, "alone") or {})["metadata"]["uid"])
    await world.until(lambda: world.says("alone", PODS)[0] == "running", "the pod says it")
    row = await world.until_state("alone", State.FINISHED)
    assert row.message == "1 of 1 pods succeeded"


async def test_a_preemptor_gets_the_quota_once_the_last_pod_of_the_group_is_gone(world: World) -> None:
    await group(world, "g", 4, seconds=600, ends_in=20)
    await world.until(lambda: len(bound(world)) == 4, "all run")
    await world.submit(train_job("urgent", 4, high=True))
    row = await world.until_state("g", State.DRAINING)
    await world.clock.advance(10)
    assert (world.state("urgent"), world.charged(), len(world.pods("g-"))) == (State.WAITING, 16, 4)
    assert all(p["metadata"].get("deletionTimestamp") for p in world.pods("g-"))
    await world.until_state("urgent", State.RUNNING)
    assert world.pods("g-") == []
    row = world.known_row("g")
    assert (row.state, row.reason) == (State.HELD, "PodsMissing")
    assert row.message == "0 of 4 pods exist; those that ran were deleted when it was stopped"


async def test_a_group_that_was_stopped_runs_again_with_new_pods_as_the_same_workload(world: World) -> None:
    await group(world, "g", 4, seconds=60, ends_in=20)
    uid = (await world.until_state("g", State.RUNNING)).uid
    await world.until(lambda: len(bound(world)) == 4, "all run")
    await world.submit(train_job("urgent", 4, high=True, seconds=10))
    await world.until_state("g", State.DRAINING)
    # Made while the last ones still end, as a controller does it.
    await create(world, (plain(f"again-{number}", "g", 4, seconds=60) for number in range(4)))
    await world.until(lambda: len(world.pods("g-")) == 0, "the old ones are gone")
    assert gated(world) == [f"again-{number}" for number in range(4)]
    await world.until_state("urgent", State.FINISHED)
    row = await world.until_state("g", State.RUNNING)
    assert (row.uid, world.admissions("g")) == (uid, 2)
    assert (await world.until_state("g", State.FINISHED)).message == "4 of 4 pods succeeded"


async def stopped(world: World) -> None:
    """A group `g` whose pods were deleted for a preemptor, which runs for a long time."""
    await group(world, "g", 2, seconds=600)
    await world.until_state("g", State.RUNNING)
    await world.submit(train_job("urgent", 4, high=True, seconds=36000))
    row = await world.until_state("g", State.HELD)
    assert row.reason == "PodsMissing"


@pytest.mark.parametrize("restart", [False, True], ids=["one-leader", "two-leaders"])
async def test_a_group_that_was_stopped_counts_as_deleted_when_nobody_makes_its_pods_anew(
    world: World, restart: bool
) -> None:
    await stopped(world)
    await world.clock.advance(400)
    assert world.state("g") is State.HELD
    if restart:
        await world.restart()
        await world.until_ready()
    row = await world.until_state("g", State.FINISHED, within=210)
    assert row.reason == "Deleted"


async def test_new_pods_end_the_time_that_a_stopped_group_has_to_get_some(world: World) -> None:
    await stopped(world)
    await world.clock.advance(400)
    await create(world, [plain("again", "g", 2)])
    await world.clock.advance(400)
    await world.user.delete(PODS, "ns", "again")
    await world.clock.advance(400)
    assert world.state("g") is State.HELD, "the time begins anew"
    await world.until_state("g", State.FINISHED, within=210)


async def test_a_held_group_without_pods_stays_held_and_its_time_begins_with_its_release(world: World) -> None:
    await group(world, "g", 2, seconds=600)
    uid = (await world.until_state("g", State.RUNNING)).uid
    world.ask("g", Wish.HOLD)
    await world.until_state("g", State.HELD)
    await world.clock.advance(3600)
    row = world.known_row("g")
    assert (row.uid, row.state, row.reason) == (uid, State.HELD, "HeldByOperator")
    world.ask("g", Wish.RELEASE)
    await world.clock.advance(590)
    assert world.known_row("g").reason == "PodsMissing"
    assert (await world.until_state("g", State.FINISHED, within=20)).reason == "Deleted"


async def test_a_deactivated_group_without_pods_stays_deactivated(world: World) -> None:
    await group(world, "g", 2, seconds=600, max_run_time="60s")
    row = await world.until_state("g", State.DEACTIVATED)
    assert world.pods("g-") == []
    await world.clock.advance(3600)
    assert world.known_row("g").state is State.DEACTIVATED
    assert row.reason == "MaximumExecutionTimeExceeded"


async def test_a_failed_pod_keeps_its_place_for_its_replacement(world: World) -> None:
    await create(world, [plain("g-0", "g", 2, seconds=10, outcome="Failed"), plain("g-1", "g", 2, seconds=100)])
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: ((pod(world, "g-0") or {})["status"]["phase"]) == "Failed", "it fails")
    await world.clock.advance(5)
    assert (world.state("g"), world.charged()) == (State.RUNNING, 8)
    await create(world, [plain("g-2", "g", 2, seconds=20)])
    await world.until(lambda: (pod(world, "g-2") or {})["status"]["phase"] == "Running", "its replacement runs")
    row = await world.until_state("g", State.FINISHED)
    assert row.message == "2 of 2 pods succeeded"


async def test_a_group_has_failed_when_all_its_pods_have_ended_and_one_was_not_replaced(world: World) -> None:
    await create(world, [plain("g-0", "g", 2, seconds=10, outcome="Failed"), plain("g-1", "g", 2, seconds=30)])
    row = await world.until_state("g", State.FAILED)
    assert (row.message, world.charged()) == ("1 of 2 pods succeeded, 1 failed", 0)


async def test_pods_beyond_the_size_are_told_and_stay_behind_their_gate_for_ever(world: World) -> None:
    await group(world, "g", 2, 3, gpus=1, seconds=30)
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world)) == 2, "two run")
    await world.until(lambda: "NoPlace" in world.events("g-2"), "it is told")
    first = world.known_row("g").uid
    await world.until(lambda: world.store.get_workloads([first])[0].state is State.FINISHED, "they end")
    row = await world.until_state("g", State.HELD)
    assert (gated(world), row.message) == (["g-2"], "1 of 2 pods exist")
    assert row.uid != first


async def test_a_group_made_anew_under_the_same_name_is_another_workload(world: World) -> None:
    await group(world, "g", 2, seconds=10)
    first = await world.until_state("g", State.FINISHED)
    await create(world, (plain(f"new-{number}", "g", 2, seconds=10) for number in range(2)))
    await world.until(lambda: world.known_row("g").uid != first.uid, "another one")
    second = await world.until_state("g", State.FINISHED)
    assert second.message == "2 of 2 pods succeeded"
    assert world.admissions("g") == 2


async def test_a_group_in_one_rack_has_all_its_pods_there(world: World) -> None:
    await create(world, [plain("first")])
    await world.until_state("first", State.RUNNING)
    await group(world, "g", 2, required_topology=RACK)
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world, "g-")) == 2, "both run")
    assert bound(world, "g-") in (["n0", "n1"], ["n2", "n3"])
    node_selector = (pod(world, "g-0") or {})["spec"]["nodeSelector"]
    assert node_selector[RACK] in ("rack-0", "rack-1")


async def test_pods_of_a_group_across_racks_go_to_exact_places_and_a_replacement_gets_that_of_the_failed_one(
    world: World,
) -> None:
    pods = [plain(f"g-{number}", "g", 4, seconds=200, unconstrained_topology="true") for number in range(3)]
    await create(world, [*pods, plain("g-3", "g", 4, seconds=20, outcome="Failed", unconstrained_topology="true")])
    await world.until(lambda: len(bound(world)) == 4, "all run")
    assert sorted((p["metadata"]["annotations"] or {})["queue-manager.io/slot"] for p in world.pods()) == list("0123")
    before = (pod(world, "g-3") or {})["spec"]["nodeName"]
    await world.until(lambda: (pod(world, "g-3") or {})["status"]["phase"] == "Failed", "it fails")
    await create(world, [plain("g-4", "g", 4, seconds=20, unconstrained_topology="true")])
    await world.until(lambda: (pod(world, "g-4") or {})["spec"].get("nodeName"), "its replacement runs")
    assert (pod(world, "g-4") or {})["spec"]["nodeName"] == before
    assert (await world.until_state("g", State.FINISHED, within=400)).message == "4 of 4 pods succeeded"


async def test_a_group_that_may_run_smaller_runs_its_pods_in_turn_and_pays_for_what_runs(world: World) -> None:
    await create(world, [plain("other", seconds=1000)])
    await world.until_state("other", State.RUNNING)
    await group(world, "g", 4, seconds=30, min_count="2")
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world, "g-")) == 3, "three run")
    assert (len(gated(world)), world.charged()) == (1, 16)
    await world.until(lambda: gated(world) == [], "the last one's turn")
    await world.until(lambda: world.charged() == 8, "it alone is charged for")
    assert (await world.until_state("g", State.FINISHED)).message == "4 of 4 pods succeeded"


async def test_pods_of_several_shapes_are_one_workload_with_a_pod_set_each(world: World) -> None:
    await create(world, [plain("g-0", "g", 3, gpus=1), plain("g-1", "g", 3), plain("g-2", "g", 3)])
    row = await world.until_state("g", State.RUNNING)
    counts = [(p.count, p.requests["nvidia.com/gpu"]) for p in row.pod_groups[0].pod_sets]
    assert (counts, world.charged()) == ([(1, 1), (2, 4)], 9)
    await world.until(lambda: len(bound(world)) == 3, "all run")


async def test_pods_of_a_managed_job_are_no_group_of_their_own(world: World) -> None:
    await world.submit(train_job("job", 2))
    await world.until_state("job", State.RUNNING)
    owner = next(p for p in world.pods("job"))["metadata"]["ownerReferences"]
    stray = plain("stray", gated=False)
    stray["metadata"]["ownerReferences"] = owner
    await create(world, [stray])
    await world.clock.advance(10)
    assert world.row("stray") is None


async def test_a_running_pod_without_our_gate_counts_and_is_not_deleted_before_its_group_is_admitted(
    world: World,
) -> None:
    await create(world, [plain("g-0", "g", 2, gated=False, seconds=100)])
    await world.until_state("g", State.HELD)
    await world.until(lambda: len(bound(world)) == 1, "it runs")
    before = cycles(world)
    await world.clock.advance(20)
    assert cycles(world) - before < 5, "nothing happens, and nothing is looked at"
    assert (pod(world, "g-0") or {})["metadata"].get("deletionTimestamp") is None
    await create(world, [plain("g-1", "g", 2, seconds=100)])
    await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world)) == 2, "both run")
    assert world.charged() == 8
    assert (await world.until_state("g", State.FINISHED, within=200)).message == "2 of 2 pods succeeded"


async def test_pods_that_contradict_each_other_are_told_which(world: World) -> None:
    await create(world, [plain("g-0", "g", 2), plain("g-1", "g", 2, required_topology=RACK)])
    row = await world.until_state("g", State.HELD)
    await world.until(lambda: world.known_row("g").reason == "Disagreement", str(row))
    assert "'nothing' on g-0" in world.known_row("g").message


async def test_all_pods_deleted_by_their_user_end_the_group(world: World) -> None:
    await group(world, "g", 2, seconds=600)
    await world.until_state("g", State.RUNNING)
    for name in ("g-0", "g-1"):
        await world.user.delete(PODS, "ns", name)
    row = await world.until_state("g", State.FINISHED)
    assert (row.reason, world.charged()) == ("Deleted", 0)


async def test_a_restart_of_the_controller_leaves_a_running_group_as_it_is(world: World) -> None:
    await group(world, "g", 4, seconds=60)
    before = await world.until_state("g", State.RUNNING)
    await world.until(lambda: len(bound(world)) == 4, "all run")
    await world.user.delete(PODS, "ns", "g-0")
    await world.restart(after=40)
    await world.until_ready()
    await create(world, [plain("g-4", "g", 4, seconds=20)])
    row = await world.until_state("g", State.FINISHED, within=300)
    assert (row.uid, row.message, world.admissions("g")) == (before.uid, "4 of 4 pods succeeded", 1)


@pytest.mark.parametrize("seed", range(8))
async def test_kills_and_faults_never_let_half_a_group_run_or_lose_its_quota(store: Store, seed: int) -> None:
    chance = Random(seed)
    faults = SeededFaults(Random(seed + 1), requests=0.1, watches=0.05)
    async with World(store, seed, faults) as world:
        names = [f"g{number}" for number in range(4)]
        for name in names:
            size = chance.randint(1, 4)
            topology = chance.choice([{}, {"required_topology": RACK}, {"unconstrained_topology": "true"}])
            pods = [
                plain(f"{name}-{number}", name, size, seconds=chance.randint(5, 30), **(topology if size < 3 else {}))
                for number in range(size)
            ]
            for made in pods:
                world.cluster.state.create(PODS, "ns", made, manager="kubectl")
                await world.clock.advance(chance.uniform(0, 2))
            check_invariants(world)
            await world.clock.advance(chance.uniform(0, 8))
            check_invariants(world)
            if chance.random() < 0.7:
                await world.restart(after=chance.uniform(0, 3))
        faults.active = False
        await world.until(lambda: all(world.state(name) in ENDED for name in names), "every group ends", within=3600)
        check_invariants(world)
        assert [world.state(name) for name in names] == [State.FINISHED] * len(names)
        assert [world.admissions(name) for name in names] == [1] * len(names)


class DieAt:
    """The controller dies at its nth write to a pod, before or after the write takes effect."""

    def __init__(self, write: int, fault: Fault) -> None:
        self.left = write
        self.fault = fault
        self.died = asyncio.Event()

    def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
        """Every request after that one is lost as well: the process is dead."""
        if resource == PODS and verb in ("patch", "delete"):
            self.left -= 1
        if self.left > 0 or self.died.is_set():
            return None
        if not self.died.is_set():
            self.died.set()
        return self.fault

    def drop_watch(self, resource: Resource) -> bool:
        """Never."""
        return False


@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER])
@pytest.mark.parametrize("write", range(1, 13))
async def test_a_controller_that_dies_at_any_write_leaves_a_group_that_the_next_one_carries_on(
    store: Store, write: int, fault: Fault
) -> None:
    """Annotations, starts and deletions of a group that a preemptor stops once."""
    dies = DieAt(write, fault)
    async with World(store, faults=dies) as world:

        async def kill() -> None:
            await dies.died.wait()
            await world.restart()

        killer = asyncio.create_task(kill())
        for number in range(4):
            made = plain(f"g-{number}", "g", 4, seconds=600)
            world.cluster.state.create(PODS, "ns", made, manager="kubectl")
        await world.until(lambda: len(bound(world, "g-")) == 4, "all run", within=300)
        check_invariants(world)
        await world.submit(train_job("urgent", 4, high=True, seconds=10))
        await world.until(lambda: world.state("urgent") in ENDED, "the preemptor ends", within=600)
        check_invariants(world)
        assert world.pods("g-") == []
        for number in range(4):
            made = plain(f"new-{number}", "g", 4, seconds=10)
            world.cluster.state.create(PODS, "ns", made, manager="kubectl")
        row = await world.until_state("g", State.FINISHED, within=600)
        assert (row.message, world.admissions("g"), world.charged()) == ("4 of 4 pods succeeded", 2, 0)
        assert dies.died.is_set()
        killer.cancel()
