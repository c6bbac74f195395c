"""Kueue's labels and annotations at the whole controller: who reads them, when, and what becomes of jobs meanwhile."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CRDS,
    EVENTS,
    JOBS,
    MUTATING_WEBHOOKS,
    NODES,
    TRAIN_JOBS,
    ApiError,
    Object,
    PatchType,
    Query,
    Resource,
)
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.cluster.simulated.faults import Fault, Planned, PlannedFaults
from queue_manager.controller.kueue_signs import KueueSigns
from queue_manager.store.records import ENDED, State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job

KUEUE = "kueue.x-k8s.io/"
RACK = "topology.queue-manager.io/rack"
OURS = "queue-manager.io/queue"


def kueues(job: Object, **labels: str) -> Object:
    """The job as its user has it with Kueue."""
    given = job["metadata"]["labels"]
    given[KUEUE + "queue-name"] = given.pop(OURS)
    given.update({KUEUE + key.replace("_", "-"): value for key, value in labels.items()})
    return job


def crd() -> Object:
    return {
        "metadata": {"name": "clusterqueues.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Cluster",
            "names": {"plural": "clusterqueues", "kind": "ClusterQueue"},
            "versions": [{"name": "v1beta2", "served": True, "storage": True, "schema": {}}],
        },
    }


SIGNS: list[tuple[Resource, Object]] = [
    (CRDS, crd()),
    (MUTATING_WEBHOOKS, {"metadata": {"name": "kueue-mutating-webhook-configuration"}, "webhooks": []}),
]


def install(cluster: SimulatedCluster, sign: tuple[Resource, Object] = SIGNS[0]) -> None:
    cluster.state.create(sign[0], "", sign[1], manager="kubectl")


def remove(cluster: SimulatedCluster, sign: tuple[Resource, Object] = SIGNS[0]) -> None:
    cluster.state.delete(sign[0], "", sign[1]["metadata"]["name"])


def wish(labels: str) -> str:
    """Settings with these `kueueLabels`."""
    head = "apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {name: default}\n"
    return f"{head}spec: {{kueueLabels: '{labels}'}}\n"


def reads(world: World) -> bool:
    assert world.controller is not None
    assert world.controller.term is not None
    return world.controller.term.view.kueue_keys


def message(world: World, name: str, reason: str) -> str:
    """What the first such event on an object says."""
    found = world.cluster.state.storage.all(EVENTS)
    return next(e["message"] for e in found if (e["involvedObject"]["name"], e["reason"]) == (name, reason))


async def test_a_job_is_queued_ranked_placed_and_limited_by_them(store: Store) -> None:
    job = kueues(batch_job("j", 2, seconds=600), priority_class="high", max_exec_time_seconds="60")
    job["spec"]["template"]["metadata"]["annotations"][KUEUE + "podset-required-topology"] = RACK
    async with World(store) as world:
        await world.submit(job, JOBS)
        row = await world.until_state("j", State.RUNNING)
        assert (row.queue, row.local_queue, row.priority, row.priority_class) == ("team", "team", 100, "high")
        assert row.max_run_time == 60_000_000
        await world.until(lambda: len(world.pods("j")) == 2)
        racks = {
            world.cluster.state.get(NODES, "", p["spec"]["nodeName"])["metadata"]["labels"][RACK]
            for p in world.pods("j")
        }
        assert len(racks) == 1
        await world.until_state("j", State.DEACTIVATED, within=300)


async def test_a_gang_waits_for_the_rack_that_it_asks_for_on_its_pod_template(store: Store) -> None:
    """12 GPUs in one rack, and a rack has 8: with its annotation read it waits, without it would start."""
    jobs = {name: kueues(batch_job(name, 3)) for name in ("tied", "free")}
    jobs["tied"]["spec"]["template"]["metadata"]["annotations"][KUEUE + "podset-required-topology"] = RACK
    async with World(store) as world:
        await world.submit(jobs["tied"], JOBS)
        await world.submit(jobs["free"], JOBS)
        await world.until_state("free", State.RUNNING)
        assert world.state("tied") is State.WAITING


async def test_fewer_pods_where_the_job_says_so(store: Store) -> None:
    job = kueues(batch_job("j", 8, seconds=600))
    job["metadata"]["annotations"] = {KUEUE + "job-min-parallelism": "2"}
    async with World(store) as world:
        await world.submit(job, JOBS)
        await world.until_state("j", State.RUNNING)
        assert world.cluster.state.get(JOBS, "ns", "j")["spec"]["parallelism"] == 4


async def test_annotations_of_a_runtime_hold_for_its_train_jobs(store: Store) -> None:
    async with World(store) as world:
        runtime = world.cluster.state.get(CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed")
        for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            metadata = replicated["template"]["spec"]["template"].setdefault("metadata", {})
            metadata.setdefault("annotations", {})[KUEUE + "podset-required-topology"] = RACK
        patch = {"spec": {"template": runtime["spec"]["template"]}}
        await world.user.patch(CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed", patch, PatchType.MERGE)
        await world.submit(kueues(train_job("tied", 3)))
        await world.submit(kueues(train_job("fits", 2)))
        await world.until_state("fits", State.RUNNING)
        assert world.state("tied") is State.WAITING


@pytest.mark.parametrize("sign", SIGNS, ids=["crd", "webhook"])
async def test_with_kueue_beside_us_its_jobs_are_left_to_it(store: Store, sign: tuple[Resource, Object]) -> None:
    world = World(store)
    install(world.cluster, sign)
    async with world:
        await world.submit(kueues(batch_job("theirs", 1)), JOBS)
        ours = batch_job("ours", 1)
        ours["metadata"]["labels"][KUEUE + "priority-class"] = "high"
        await world.submit(ours, JOBS)
        row = await world.until_state("ours", State.RUNNING)
        assert row.priority == 0
        assert world.row("theirs") is None
        assert world.cluster.state.get(JOBS, "ns", "theirs")["spec"]["suspend"] is True


async def test_nothing_is_taken_from_kueue_before_it_is_known_whether_it_is_there(store: Store) -> None:
    faults = PlannedFaults([Planned(Fault.THROTTLED, "list", MUTATING_WEBHOOKS.plural)] * 3)
    world = World(store, faults=faults)
    install(world.cluster, SIGNS[1])
    await world.submit(kueues(batch_job("theirs", 1)), JOBS)
    async with world:
        await world.submit(batch_job("ours", 1), JOBS)
        await world.until_state("ours", State.RUNNING)
        assert not faults.plan
        assert world.row("theirs") is None


@pytest.mark.parametrize(
    ("labels", "kueue", "read"),
    [("on", True, True), ("on", False, True), ("off", False, False), ("auto", False, True), ("auto", True, False)],
)
async def test_the_setting_decides(store: Store, labels: str, kueue: bool, read: bool) -> None:
    world = World(store)
    if kueue:
        install(world.cluster)
    world.configure(wish(labels))
    async with world:
        await world.until_ready()
        assert reads(world) is read
        await world.submit(kueues(batch_job("theirs", 1)), JOBS)
        await world.submit(batch_job("ours", 1), JOBS)
        await world.until_state("ours", State.RUNNING)
        if read:
            await world.until_state("theirs", State.RUNNING)
        assert (world.row("theirs") is not None) is read


async def test_a_changed_setting_is_followed_at_once(store: Store) -> None:
    world = World(store)
    world.configure(wish("off"))
    async with world:
        await world.submit(kueues(batch_job("j", 5, seconds=600)), JOBS)
        await world.clock.advance(5)
        assert world.row("j") is None
        world.configure(wish("on"))
        await world.until_state("j", State.WAITING, within=2)
        world.configure(wish("off"))
        row = await world.until_state("j", State.FINISHED, within=2)
        assert row.reason == "Unmanaged"


async def test_kueue_comes_what_waits_is_left_to_it_and_what_runs_stays_charged(store: Store) -> None:
    async with World(store) as world:
        await world.submit(kueues(batch_job("runs", 2, seconds=60)), JOBS)
        await world.submit(kueues(batch_job("waits", 5, seconds=60)), JOBS)
        await world.until_state("runs", State.RUNNING)
        await world.until_state("waits", State.WAITING)
        install(world.cluster)
        await world.until_state("waits", State.FINISHED, within=5)
        assert world.known_row("waits").reason == "Unmanaged"
        assert (world.state("runs"), world.charged()) == (State.RUNNING, 8)
        await world.until_state("runs", State.FINISHED)
        assert world.charged() == 0


async def test_kueue_goes_and_its_jobs_are_taken_over(store: Store) -> None:
    world = World(store)
    install(world.cluster)
    async with world:
        await world.submit(kueues(train_job("j", 2)), TRAIN_JOBS)
        await world.clock.advance(5)
        assert world.row("j") is None
        remove(world.cluster)
        await world.until_state("j", State.RUNNING, within=30)


async def test_pods_under_a_job_that_becomes_ours_are_no_workloads_of_their_own(store: Store) -> None:
    """Pods that ask for our queue themselves are their job's as soon as that one is managed."""
    world = World(store)
    install(world.cluster)
    async with world:
        job = kueues(batch_job("j", 2, seconds=600))
        job["spec"]["template"]["metadata"]["labels"] = {OURS: "team"}
        await world.user.create(JOBS, "ns", {**job, "spec": {**job["spec"], "suspend": False}})
        await world.until(lambda: {row.kind for row in world.store.load_workloads()} == {"Pod"}, "pods of their own")
        world.configure(wish("on"))
        await world.until_state("j", State.RUNNING)
        await world.clock.advance(1)
        alive = [row.kind for row in world.store.load_workloads() if row.state not in ENDED]
        assert (alive, world.charged()) == (["Job"], 8)


async def test_messages_name_the_label_that_was_written(store: Store) -> None:
    async with World(store) as world:
        lost = kueues(batch_job("lost", 1))
        lost["metadata"]["labels"][KUEUE + "queue-name"] = "nowhere"
        await world.submit(lost, JOBS)
        await world.submit(kueues(batch_job("rankless", 1), priority_class="unheard-of"), JOBS)
        await world.submit(kueues(batch_job("endless", 1), max_exec_time_seconds="soon"), JOBS)
        for name in ("rankless", "endless"):
            await world.until_state(name, State.HELD)
        await world.until(lambda: "Held" in world.events("lost"))
        assert f'metadata.labels["{KUEUE}queue-name"]: there is no local queue "nowhere"' in message(
            world, "lost", "Held"
        )
        assert f'metadata.labels["{KUEUE}priority-class"]: there is no' in world.known_row("rankless").message
        assert f"metadata.labels[{KUEUE}max-exec-time-seconds] must be" in world.known_row("endless").message


class Forbidding:
    """A cluster that lets nobody see these collections."""

    def __init__(self, cluster: SimulatedCluster, hidden: set[Resource]) -> None:
        self._cluster = cluster
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(self, resource: Resource, query: Query, token: str = "") -> Any:
        if resource in self._hidden:
            raise ApiError(403, "Forbidden", f"{resource.plural} is forbidden")
        return await self._cluster.list(resource, query, token)


@pytest.mark.parametrize("hidden", [{CRDS}, {MUTATING_WEBHOOKS}, {CRDS, MUTATING_WEBHOOKS}])
async def test_what_we_may_not_see_is_absent_and_said(hidden: set[Resource]) -> None:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    for sign in SIGNS:
        install(cluster, sign)
    forbidding: Any = Forbidding(cluster, hidden)
    signs = KueueSigns(forbidding, clock, Random(1), lambda *_: None)
    task = asyncio.create_task(signs.run())
    with capture_logs() as logs:
        waiting = asyncio.create_task(signs.synced())
        await clock.run_until(waiting.done, 30, "seen")
    task.cancel()
    await asyncio.wait([task])
    assert signs.installed is (len(hidden) < 2)
    told = {entry["resource"] for entry in logs if entry["log_level"] == "warning"}
    assert told == {f"{resource.plural}.{resource.group}" for resource in hidden}
