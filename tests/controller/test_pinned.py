"""Pinned pods, the whole controller on the simulated cluster: each goes to the place of its rank, when it appears."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.port import EVENTS, JOB_SETS, JOBS, NODES, PODS, Object, PatchType, Resource
from queue_manager.cluster.simulated.faults import SeededFaults
from queue_manager.cluster.simulated.objects import write_status
from queue_manager.kinds.annotations import JOB_SET_EXCLUSIVE
from queue_manager.kinds.gates import INDEX_LABEL, JOB_INDEX_LABEL, SLOT, TOPOLOGY_GATE
from queue_manager.kinds.names import REQUIRED
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.test_crashes import check_invariants
from tests.controller.world import World, batch_job, elastic_job, job_set, train_job

RACK = "topology.queue-manager.io/rack"
ANYWHERE = {"queue-manager.io/unconstrained-topology": "true"}


def spread(obj: Object) -> Object:
    """The job, with each of its pods pinned."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **ANYWHERE}}}


def indexed(obj: Object) -> Object:
    return {**obj, "spec": {**obj["spec"], "completionMode": "Indexed"}}


def rank(pod: Object, size: int = 0) -> int:
    labels = pod["metadata"]["labels"]
    return int(labels.get(JOB_INDEX_LABEL, "0")) * size + int(labels[INDEX_LABEL])


def planned(world: World, name: str) -> list[str]:
    """The host of each slot, in the order of ranks."""
    row = world.row(name)
    assert row is not None
    assert row.admission is not None
    [pod_set] = row.admission.admission.pod_sets
    assert pod_set.pinned
    assert pod_set.domains is not None
    return [domain.values[-1] for domain in pod_set.domains for _ in range(domain.count)]


def seats(world: World, name: str) -> dict[int, str]:
    """Slot -> node of the pods that are let through and have not ended; never two in one slot."""
    through = [pod for pod in world.pods(name) if SLOT in (pod["metadata"].get("annotations") or {})]
    found = {int(pod["metadata"]["annotations"][SLOT]): pod["spec"].get("nodeName", "") for pod in through}
    assert len(found) == len(through), "two pods have one slot"
    return found


async def until_seated(world: World, name: str) -> dict[int, str]:
    await world.until_state(name, State.RUNNING)
    wanted = dict(enumerate(planned(world, name)))
    await world.until(lambda: seats(world, name) == wanted, f"{wanted}: {seats(world, name)}")
    return wanted


def end(world: World, pod: Object, phase: str) -> None:
    """The pod's containers end."""
    write_status(world.cluster.state, PODS, pod, {**pod["status"], "phase": phase}, "kubelet")


def held_back(pod: Object) -> bool:
    return any(gate["name"] == TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())


def jobs_of_each_kind() -> list[Any]:
    return [
        pytest.param(None, train_job("j", 4, gpus=4), 0, id="TrainJob"),
        pytest.param(JOB_SETS, job_set("j", 4, 2), 2, id="JobSet"),
        pytest.param(JOBS, indexed(batch_job("j", 6, gpus=2)), 0, id="indexed Job"),
        pytest.param(JOBS, batch_job("j", 6, gpus=2), None, id="Job"),
    ]


async def submit(world: World, obj: Object, resource: Resource | None) -> None:
    await (world.submit(obj) if resource is None else world.submit(obj, resource))


@pytest.mark.parametrize(("resource", "obj", "size"), jobs_of_each_kind())
async def test_each_pod_runs_in_the_place_of_its_rank(
    store: Store, resource: Resource | None, obj: Object, size: int | None
) -> None:
    async with World(store) as world:
        await submit(world, spread(obj), resource)
        wanted = await until_seated(world, "j")
        assert len(set(wanted.values())) > 1, "one node holds them all: the case proves nothing"
        if size is not None:
            assert all(wanted[rank(pod, size)] == pod["spec"]["nodeName"] for pod in world.pods("j"))
        check_invariants(world)
        await world.until_state("j", State.FINISHED)
        assert world.charged() == 0


async def test_a_preferred_rack_that_is_too_small_is_pinned_and_a_rack_that_holds_all_is_not(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("two", 3, preferred_topology=RACK))
        assert sorted(await until_seated(world, "two")) == [0, 1, 2]
        await world.submit(train_job("one", 1, preferred_topology=RACK))
        row = await world.until_state("one", State.RUNNING)
        assert row.admission is not None
        assert not row.admission.admission.pod_sets[0].pinned
        assert not any(SLOT in (pod["metadata"].get("annotations") or {}) for pod in world.pods("one-"))


@pytest.mark.parametrize("make", [lambda: indexed(batch_job("j", 6, gpus=2, seconds=600)),
                                  lambda: batch_job("j", 6, gpus=2, seconds=600)])  # fmt: skip
async def test_a_pod_that_somebody_deletes_comes_back_to_its_own_slot(store: Store, make: Callable[[], Object]) -> None:
    async with World(store) as world:
        await world.submit(spread(make()), JOBS)
        wanted = await until_seated(world, "j")
        [one] = [pod for pod in world.pods("j") if pod["metadata"]["annotations"][SLOT] == "3"]
        await world.user.delete(PODS, "ns", one["metadata"]["name"])
        await world.until(lambda: one["metadata"]["uid"] not in {p["metadata"]["uid"] for p in world.pods("j")}, "gone")
        assert await until_seated(world, "j") == wanted
        row = world.row("j")
        assert row is not None
        assert (row.state, world.admissions("j")) == (State.RUNNING, 1)


async def test_a_restart_of_the_job_set_brings_all_pods_back_with_the_same_admission(store: Store) -> None:
    async with World(store) as world:
        await world.submit(spread(job_set("j", 4, 2, restarts=1, seconds=600)), JOB_SETS)
        wanted = await until_seated(world, "j")
        before = {pod["metadata"]["uid"] for pod in world.pods("j")}
        end(world, world.pods("j")[3], "Failed")
        await world.until(lambda: before.isdisjoint(p["metadata"]["uid"] for p in world.pods("j")) and world.pods("j"))
        assert await until_seated(world, "j") == wanted
        assert world.cluster.state.get(JOB_SETS, "ns", "j")["status"]["restarts"] == 1
        assert world.admissions("j") == 1
        check_invariants(world)


async def test_a_restart_that_brings_back_who_had_finished_before_the_admission_queues_again(store: Store) -> None:
    """Replica 0 has succeeded, its user stops the JobSet for a while; admitted again without it, then it restarts."""
    obj = job_set("j", 3, 2, gpus=2, restarts=1, seconds=600)
    async with World(store) as world:
        await world.submit(spread(obj), JOB_SETS)
        await until_seated(world, "j")
        for pod in [pod for pod in world.pods("j") if rank(pod, 2) < 2]:
            end(world, pod, "Succeeded")
        await world.until(lambda: world.charged() == 8, "the finished replica lends its quota")
        await world.user.patch(JOB_SETS, "ns", "j", {"spec": {"suspend": True}}, PatchType.MERGE)
        await world.until_state("j", State.HELD)
        await world.user.patch(JOB_SETS, "ns", "j", {"spec": {"suspend": False}}, PatchType.MERGE)
        assert len(await until_seated(world, "j")) == 4
        assert sorted(rank(pod, 2) for pod in world.pods("j")) == [2, 3, 4, 5]
        end(world, world.pods("j")[0], "Failed")
        await world.until(lambda: world.admissions("j") == 3, "admitted once more")
        wanted = await until_seated(world, "j")
        assert len(wanted) == 6
        assert all(wanted[rank(pod, 2)] == pod["spec"]["nodeName"] for pod in world.pods("j"))
        assert "Evicted" in world.events("j")
        assert world.charged() == 12
        check_invariants(world)


async def test_pods_of_later_stages_are_let_through_when_they_appear(store: Store) -> None:
    """Nobody waits for all pods of the gang: those of the second job are made once the first is complete."""
    obj = job_set("j", 1, 2, gpus=2)
    [first] = obj["spec"]["replicatedJobs"]
    second = {**first, "name": "later", "dependsOn": [{"name": "workers", "status": "Complete"}]}
    obj["spec"]["replicatedJobs"] = [first, second]
    async with World(store) as world:
        await world.submit(spread(obj), JOB_SETS)
        await world.until_state("j", State.FINISHED)
        pods = [pod for pod in world.cluster.state.storage.all(PODS) if "later" in pod["metadata"]["name"]]
        assert sorted(pod["metadata"]["annotations"][SLOT] for pod in pods) == ["0", "1"]


async def test_a_pod_beyond_those_admitted_stays_behind_its_gate_and_is_told(store: Store) -> None:
    async with World(store) as world:
        await world.submit(spread(batch_job("j", 4, completions=9, gpus=2, seconds=600)), JOBS)
        await until_seated(world, "j")
        await world.user.patch(JOBS, "ns", "j", {"spec": {"parallelism": 5}}, PatchType.MERGE)
        await world.until(lambda: len(world.pods("j")) == 5, "one pod more")
        [more] = [pod for pod in world.pods("j") if held_back(pod)]

        def told() -> list[Object]:
            found = world.cluster.state.storage.all(EVENTS)
            return [event for event in found if event["involvedObject"]["name"] == more["metadata"]["name"]]

        await world.until(lambda: told(), "an event on the pod")
        await world.clock.advance(30)
        assert [event["reason"] for event in told()] == ["NoPlace"]
        assert "is admitted with 4 pods of main" in told()[0]["message"]
        assert held_back(world.cluster.state.get(PODS, "ns", more["metadata"]["name"]))
        check_invariants(world)


async def test_no_pod_is_let_through_to_a_node_that_could_not_start_it(store: Store) -> None:
    """All nodes are full, so there is no other place for it."""
    async with World(store) as world:
        await world.submit(spread(indexed(batch_job("j", 8, gpus=2, seconds=600))), JOBS)
        wanted = await until_seated(world, "j")
        node = wanted[3]
        await world.user.patch(NODES, "", node, {"spec": {"unschedulable": True}}, PatchType.MERGE)
        [one] = [pod for pod in world.pods("j") if pod["metadata"]["annotations"][SLOT] == "3"]
        await world.user.delete(PODS, "ns", one["metadata"]["name"])
        await world.until(lambda: len(seats(world, "j")) == 7 and len(world.pods("j")) == 8, "made anew")
        await world.clock.advance(5)
        assert sorted(seats(world, "j")) == [0, 1, 2, 4, 5, 6, 7]
        await world.user.patch(NODES, "", node, {"spec": {"unschedulable": None}}, PatchType.MERGE)
        assert await until_seated(world, "j") == wanted


async def test_an_elastic_job_that_is_pinned_grows_into_new_slots_and_shrinks(store: Store) -> None:
    async with World(store) as world:
        await world.submit(spread(elastic_job("j", 3, completions=50, gpus=2, seconds=600)), JOBS)
        await until_seated(world, "j")
        await world.user.patch(JOBS, "ns", "j", {"spec": {"parallelism": 6}}, PatchType.MERGE)
        await world.until(lambda: len(planned(world, "j")) == 6, "grown")
        await world.until(lambda: len(seats(world, "j")) == 6 and all(seats(world, "j").values()), "all run")
        assert sorted(seats(world, "j").values()) == sorted(planned(world, "j"))
        await world.user.patch(JOBS, "ns", "j", {"spec": {"parallelism": 2}}, PatchType.MERGE)
        await world.until(lambda: len(planned(world, "j")) == 2, "shrunk")
        await world.until(lambda: len(world.pods("j")) == 2)
        assert sorted(pod["spec"]["nodeName"] for pod in world.pods("j")) == sorted(planned(world, "j"))
        check_invariants(world)


@pytest.mark.parametrize("seed", range(6))
async def test_killed_half_way_through_the_gates_it_goes_on_where_it_was(store: Store, seed: int) -> None:
    """16 pods, a leader that dies after some writes and again; the pods let through stay where they are."""
    async with World(store, seed) as world:
        await world.submit(spread(indexed(batch_job("j", 16, gpus=1, seconds=600))), JOBS)
        for count in (3, 9):
            await world.until(lambda count=count: len(seats(world, "j")) >= count, f"{count} are let through")
            before = seats(world, "j")
            await world.kill()
            await world.clock.advance(Random(seed).uniform(0, 3))
            check_invariants(world)
            await world.start()
            await world.clock.advance(0.5)
            assert before.keys() <= seats(world, "j").keys()
        wanted = await until_seated(world, "j")
        assert all(wanted[rank(pod)] == pod["spec"]["nodeName"] for pod in world.pods("j"))
        assert world.admissions("j") == 1


@pytest.mark.parametrize("seed", range(6))
async def test_kills_faults_and_deletions_never_put_two_pods_into_one_slot(store: Store, seed: int) -> None:
    chance = Random(seed)
    faults = SeededFaults(Random(seed + 1), requests=0.1, watches=0.05)
    made = {
        "a": (JOBS, indexed(batch_job("a", 4, gpus=2, seconds=120))),
        "b": (JOBS, batch_job("b", 3, gpus=2, seconds=90)),
        "c": (JOB_SETS, job_set("c", 2, 2, gpus=1, seconds=60, restarts=2)),
        "d": (None, train_job("d", 2, seconds=60, high=True)),
    }
    async with World(store, seed, faults) as world:
        for resource, obj in made.values():
            await submit(world, spread(obj), resource)
            await world.clock.advance(chance.uniform(0, 5))
        for _ in range(25):
            await world.clock.advance(chance.uniform(0, 6))
            check_invariants(world)
            for name in made:
                seats(world, name)
            pods = world.pods()
            if pods and chance.random() < 0.3:
                await world.user.delete(PODS, "ns", chance.choice(pods)["metadata"]["name"])
            if chance.random() < 0.3:
                await world.restart(after=chance.uniform(0, 3))
        faults.active = False
        await world.until(lambda: all(world.state(name) in (State.FINISHED, State.FAILED) for name in made), "all end",
                          within=3600)  # fmt: skip
        assert world.charged() == 0
        check_invariants(world)


async def test_leaders_go_first_to_their_committed_racks_and_their_followers_after_them(store: Store) -> None:
    """JobSet's annotation stays where Trainer made the JobSet of a runtime: it refuses followers until their leader is
    scheduled, so nobody may wait for all pods."""
    obj = job_set("j", 2, 2, gpus=4, seconds=600)
    obj["metadata"]["annotations"] = {JOB_SET_EXCLUSIVE: RACK}
    async with World(store) as world:
        await world.submit(obj, JOB_SETS)
        wanted = await until_seated(world, "j")
        assert {slot: node for slot, node in wanted.items() if slot % 2 == 0} == {0: "n0", 2: "n2"}
        assert all(wanted[rank(pod, 2)] == pod["spec"]["nodeName"] for pod in world.pods("j"))
        followers = sorted((pod for pod in world.pods("j") if rank(pod, 2) % 2), key=lambda pod: rank(pod, 2))
        assert [pod["spec"]["nodeSelector"][RACK] for pod in followers] == ["rack-0", "rack-1"]


async def test_the_users_terms_of_affinity_are_only_added_to(store: Store) -> None:
    term = {"matchExpressions": [{"key": RACK, "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [term, {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]}
    obj = spread(indexed(batch_job("j", 4, gpus=4, seconds=600)))
    obj["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: required}}
    async with World(store) as world:
        await world.submit(obj, JOBS)
        await until_seated(world, "j")
        for pod in world.pods("j"):
            terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
            assert [t["matchFields"][0]["values"] for t in terms] == [[pod["spec"]["nodeName"]]] * 2
            assert terms[0]["matchExpressions"] == term["matchExpressions"]


@pytest.mark.parametrize("seed", range(5))
async def test_pods_that_ran_without_their_placement_have_ended_before_the_start(store: Store, seed: int) -> None:
    """Its user resumes a Job that was held: its pods run anywhere until it is suspended again, and must not stay."""
    async with World(store, seed, lag=0.03) as world:
        await world.submit(spread(batch_job("j", 2, gpus=4, seconds=600)), JOBS)
        await until_seated(world, "j")
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": True}}, PatchType.MERGE)
        await world.until_state("j", State.HELD)
        await world.user.patch(JOBS, "ns", "j", {"spec": {"suspend": False}}, PatchType.MERGE)
        await until_seated(world, "j")
        assert len(world.pods("j")) == 2
        check_invariants(world)
