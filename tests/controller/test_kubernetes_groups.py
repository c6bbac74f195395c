"""PodGroups of Kubernetes that other controllers make: found by reference, followed before and after the admission."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CRDS,
    JOB_SETS,
    JOBS,
    POD_GROUPS,
    POD_GROUPS_ALPHA,
    TRAIN_JOBS,
    WORKLOADS,
    WORKLOADS_ALPHA,
    Object,
    Resource,
)
from queue_manager.cluster.simulated.crds import definition
from queue_manager.controller.intake import Intake, merged
from queue_manager.controller.kubernetes_groups import disrupted
from queue_manager.engine.decision import Reason
from queue_manager.engine.workload import DisruptionMode, GroupPolicy
from queue_manager.kinds.kubernetes_groups import Covering
from queue_manager.kinds.trainjob import TrainJobKind
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.test_elastic import ask, elastic
from tests.controller.world import World, batch_job, train_job
from tests.kinds import world as plain

RACK = "topology.queue-manager.io/rack"
ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
VERSIONS = [(POD_GROUPS, WORKLOADS), (POD_GROUPS_ALPHA, WORKLOADS_ALPHA)]


class Groups:
    """Makes Workloads and PodGroups as a controller of this version would."""

    def __init__(self, world: World, resources: tuple[Resource, Resource]) -> None:
        self.world = world
        self.groups, self.workloads = resources
        for resource in resources:
            world.cluster.state.create(CRDS, "", definition(resource, ANYTHING), manager="kubectl")

    @property
    def alpha(self) -> bool:
        return self.groups == POD_GROUPS_ALPHA

    def job(self, name: str, resource: Resource = JOBS) -> Object:
        return self.world.cluster.state.get(resource, "ns", name)

    def make(self, name: str, owner: Object, *, key: str = RACK, minimum: int = 2, all_: bool = False) -> Object:
        """A gang and its Workload, owned by a job; nothing in their names says whose they are."""
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        group, _, _ = owner["apiVersion"].rpartition("/")
        workload = self.world.cluster.state.create(
            self.workloads,
            "ns",
            {
                "metadata": {"name": f"w-{name}", "ownerReferences": [{**reference, "controller": True}]},
                "spec": {"controllerRef": {"apiGroup": group, "kind": owner["kind"], "name": reference["name"]}},
            },
            manager="test",
        )
        link: Any = {"workloadRef": {"workloadName": f"w-{name}", "templateName": "t"}}
        mode: Any = {"all": {}} if all_ else {"single": {}}
        if self.alpha:
            link = {"podGroupTemplateRef": {"workload": {"workloadName": f"w-{name}", "podGroupTemplateName": "t"}}}
            mode = "PodGroup" if all_ else "Pod"
        spec = {
            **link,
            "schedulingPolicy": {"gang": {"minCount": minimum}},
            "disruptionMode": mode,
            **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
        }
        owners = [
            {**reference, "controller": True},
            {
                "apiVersion": "scheduling.k8s.io/x",
                "kind": "Workload",
                "name": f"w-{name}",
                "uid": workload["metadata"]["uid"],
            },
        ]
        body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        return self.world.cluster.state.create(self.groups, "ns", body, manager="test")

    def delete(self, name: str) -> None:
        self.world.cluster.state.delete(self.groups, "ns", name)
        self.world.cluster.state.delete(self.workloads, "ns", f"w-{name}")

    def condition(self, name: str, kind: str, status: str, reason: str, message: str) -> None:
        """Sets one condition, at the present time."""
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.world.cluster.state.time(),
        }
        state = self.world.cluster.state
        obj = state.get(self.groups, "ns", name)
        state.update(
            self.groups, obj, {**obj, "status": {"conditions": [condition]}}, manager="test", subresource="status"
        )


async def racks_half_full(world: World) -> None:
    """One node of each of the two racks is taken: two whole nodes are left, in different racks."""
    for rack in ("rack-0", "rack-1"):
        filler = batch_job(f"filler-{rack}", 1, seconds=600)
        filler["spec"]["template"]["spec"]["nodeSelector"] = {RACK: rack}
        await world.submit(filler, JOBS)
        await world.until_state(f"filler-{rack}", State.RUNNING)


@pytest.mark.parametrize("resources", VERSIONS, ids=["v1beta1", "v1alpha2"])
@pytest.mark.parametrize("keeps", [False, True], ids=["deleted-on-suspend", "kept-on-suspend"])
async def test_group_that_comes_late_sends_the_job_back_and_its_key_is_planned_with(
    store: Store, resources: tuple[Resource, Resource], keeps: bool
) -> None:
    async with World(store) as world:
        groups = Groups(world, resources)
        await racks_half_full(world)
        await world.submit(batch_job("a", 2, seconds=60), JOBS)
        await world.until_state("a", State.RUNNING)
        groups.make("g", groups.job("a"), all_=True)
        await world.until(lambda: world.state("a") in (State.DRAINING, State.WAITING))
        assert "PodGroup g wants its pods in one topology.queue-manager.io/rack" in world.known_row("a").message
        await world.until(lambda: "Evicted" in world.events("a"))
        if not keeps:
            groups.delete("g")
        await world.until(lambda: world.known_row("a").reason == Reason.TOPOLOGY_PLACEMENT_FAILED.value)
        row = world.known_row("a")
        assert row.pod_groups[0].topology is not None
        assert (row.pod_groups[0].topology.level, row.pod_groups[0].disruption) == (RACK, DisruptionMode.ALL)
        assert world.charged() == 8, "only the fillers"

        # A new leader knows it, too.
        await world.restart()
        await world.until_ready()
        await world.clock.advance(30)
        assert world.state("a") is State.WAITING
        await world.user.delete(JOBS, "ns", "filler-rack-0")
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(world.pods("a")) == 2)
        if not keeps:
            groups.make("h", groups.job("a"))
        await world.clock.advance(10)
        row = world.known_row("a")
        assert (row.state, world.admissions("a")) == (State.RUNNING, 2)
        assert row.admission is not None
        assert {d.values[1] for p in row.admission.admission.pod_sets for d in p.domains or ()} == {"rack-0"}


async def test_group_that_is_there_before_is_planned_with(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await racks_half_full(world)
        await world.submit(batch_job("full", 2, gpus=4, seconds=30), JOBS)
        await world.until_state("full", State.RUNNING)
        await world.submit(batch_job("a", 2, seconds=30), JOBS)
        await world.until_state("a", State.WAITING)
        groups.make("g", groups.job("a"))
        await world.until(lambda: world.known_row("a").pod_groups[0].topology is not None)
        await world.until_state("full", State.FINISHED)
        await world.until(lambda: world.known_row("a").reason == Reason.TOPOLOGY_PLACEMENT_FAILED.value)
        assert world.admissions("a") == 0


async def test_group_that_suits_changes_nothing_but_how_it_is_disrupted(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(train_job("a", 2, required_topology=RACK), TRAIN_JOBS)
        await world.until_state("a", State.RUNNING)
        job_set = groups.job("a", JOB_SETS)
        job = groups.job("a-node-0")
        await world.until(lambda: len(world.pods("a")) == 2)
        # The group belongs to the TrainJob; that its pods are in it, only they say.
        groups.make("g", groups.job("a", TRAIN_JOBS), all_=True)
        assert job["metadata"]["ownerReferences"][0]["uid"] == job_set["metadata"]["uid"]
        await world.clock.advance(5)
        assert world.known_row("a").pod_groups[0].disruption is DisruptionMode.SINGLE
        await world.user.delete(TRAIN_JOBS, "ns", "a")
        await world.until_state("a", State.FINISHED)


async def test_groups_of_others_and_of_earlier_jobs_are_not_ours(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await racks_half_full(world)
        await world.submit(batch_job("a", 2, seconds=600), JOBS)
        await world.until_state("a", State.RUNNING)
        job = groups.job("a")
        former = {**job, "metadata": {**job["metadata"], "uid": "an-earlier-one"}}
        groups.make("a", former)
        other = {**job, "metadata": {"name": "b", "uid": "b"}}
        groups.make("a-main", other)
        await world.clock.advance(10)
        assert (world.state("a"), world.admissions("a")) == (State.RUNNING, 1)
        assert "Evicted" not in world.events("a")


async def test_what_kube_scheduler_says_of_a_group_is_told_once(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(batch_job("a", 2, seconds=600), JOBS)
        await world.until_state("a", State.RUNNING)
        groups.make("g", groups.job("a"), key="")
        groups.condition("g", "PodGroupInitiallyScheduled", "False", "Unschedulable", "0/4 nodes are available")
        await world.until(lambda: "0/4 nodes" in world.known_row("a").message)
        assert "PodGroup g is not placed by kube-scheduler (Unschedulable)" in world.known_row("a").message
        groups.condition("g", "PodGroupInitiallyScheduled", "False", "Unschedulable", "1/4 nodes are available")
        await world.clock.advance(10)
        assert world.events("a").count("PodGroupWaits") == 1
        groups.condition("g", "PodGroupInitiallyScheduled", "True", "Scheduled", "")
        await world.until(lambda: world.known_row("a").message == "")
        groups.delete("g")
        groups.make("h", groups.job("a"), key="", minimum=3)
        await world.until(lambda: "PodGroup h never forms" in world.known_row("a").message)
        assert "needs 3 pods at once, and 2 are left" in world.known_row("a").message


async def test_a_gang_is_as_it_was_while_its_group_is_away(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(batch_job("b", 4, seconds=600), JOBS)
        await world.until_state("b", State.RUNNING)
        await world.submit(batch_job("a", 3, seconds=600), JOBS)
        await world.until_state("a", State.WAITING)
        groups.make("g", groups.job("a"), key="", minimum=3)
        await world.until(lambda: world.known_row("a").pod_groups[0].minimum == 3)
        with_it = world.known_row("a").pod_groups
        groups.delete("g")
        await world.clock.advance(5)
        assert world.known_row("a").pod_groups == with_it


async def test_a_group_is_no_second_voice_while_its_gang_waits_for_other_nodes(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(train_job("b", 2, seconds=36000, required_topology=RACK))
        job = batch_job("a", 2, seconds=36000)
        job["metadata"]["annotations"] = {"queue-manager.io/required-topology": RACK}
        await world.submit(job, JOBS)
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: all(pod["spec"].get("nodeName") for pod in world.pods("a")))
        lost = world.pods("a")[0]["spec"]["nodeName"]
        world.cluster.set_ready(lost, False)
        await world.until(lambda: world.known_row("a").reason == "WaitingForReplacement", within=70)
        groups.make("g", groups.job("a"), key="", minimum=3)
        await world.clock.advance(5)
        row = world.known_row("a")
        assert lost in row.message
        await world.clock.advance(30)
        assert world.known_row("a").version == row.version, "it is said once"
        world.cluster.set_ready(lost, True)
        await world.until(lambda: "PodGroup g never forms" in world.known_row("a").message)
        await world.clock.advance(30)
        assert world.events("a").count("PodGroupWaits") == 1


async def test_a_group_is_no_second_voice_while_its_job_waits_to_grow(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(elastic("a", 2), JOBS)
        await world.submit(batch_job("b", 3, seconds=600), JOBS)
        await world.until_state("b", State.RUNNING)
        await ask(world, "a", 6)
        await world.until(lambda: "more pods wait" in world.known_row("a").message)
        groups.make("g", groups.job("a"), key="", minimum=9)
        await world.clock.advance(10)
        assert "more pods wait" in world.known_row("a").message
        await world.user.delete(JOBS, "ns", "b")
        await world.until(lambda: "PodGroup g never forms" in world.known_row("a").message)
        await world.until(lambda: world.events("a").count("PodGroupWaits") == 1)


async def test_a_priority_that_kube_scheduler_refuses_is_told(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        job = batch_job("a", 2, seconds=600)
        job["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        await world.submit(job, JOBS)
        await world.until_state("a", State.RUNNING)
        await world.until(lambda: len(world.pods("a")) == 2)
        group = groups.make("g", groups.job("a"), key="")
        await world.clock.advance(5)
        assert world.known_row("a").message == ""
        state = world.cluster.state
        state.update(groups.groups, group, {**group, "spec": {**group["spec"], "priority": 9}}, manager="test")
        await world.until(lambda: "PodGroup g is never placed" in world.known_row("a").message)
        assert "priority 9 and its pods have 0" in world.known_row("a").message


async def test_disrupted_groups_since_the_admission(store: Store) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        await world.submit(batch_job("a", 2, seconds=600), JOBS)
        row = await world.until_state("a", State.RUNNING)
        assert world.controller is not None
        assert world.controller.term is not None
        picture = world.controller.term.picture
        assert row.admission is not None
        admitted_at = row.admission.admitted_at

        def coverings() -> tuple[Covering, ...]:
            return picture.kubernetes_groups.of(row.uid, groups.job("a"), picture.kind_of(row))

        groups.make("g", groups.job("a"), key="", all_=True)
        await world.clock.advance(5)
        assert len(coverings()) == 1
        assert disrupted(coverings(), admitted_at) == ()
        groups.condition("g", "DisruptionTarget", "True", "PreemptionByScheduler", "preempted by ns/other")
        await world.clock.advance(1)
        (found,) = disrupted(coverings(), admitted_at)
        assert (found.name, found.mode, found.message) == ("g", DisruptionMode.ALL, "preempted by ns/other")
        assert found.pod_sets == ("main",)
        # A group that is kept over a suspension keeps its condition.
        assert disrupted(coverings(), datetime(2999, 1, 1, tzinfo=UTC)) == ()

        def again() -> bool:
            found = world.row("a")
            return found is not None and found.state is State.RUNNING and found.attempt > row.attempt

        await world.until(again)
        began = world.known_row("a").attempt
        await world.clock.advance(60)
        assert (world.state("a"), world.known_row("a").attempt) == (State.RUNNING, began)


async def test_the_groups_of_a_running_job_are_looked_up_once_a_look_and_those_of_nobody_wake_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(store) as world:
        groups = Groups(world, VERSIONS[0])
        job = batch_job("a", 2, seconds=600)
        await world.submit(job, JOBS)
        row = await world.until_state("a", State.RUNNING)
        await world.clock.advance(10)
        assert world.controller is not None
        term = world.controller.term
        assert term is not None
        found, looked = term.picture.kubernetes_groups.of, []
        monkeypatch.setattr(
            term.picture.kubernetes_groups, "of", lambda uid, *how: looked.append(uid) or found(uid, *how)
        )
        other = {**groups.job("a"), "metadata": {"name": "b", "namespace": "ns", "uid": "b"}}
        cycles = term.counters.cycles
        groups.make("h", other, key="")
        await world.clock.advance(1)
        assert (term.counters.cycles, looked) == (cycles, [])
        groups.make("g", groups.job("a"), key="")
        await world.clock.advance(1)
        assert term.counters.cycles - cycles == len(looked) > 0
        assert set(looked) == {row.uid}


async def test_without_the_api_there_is_nothing(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("a", 2, seconds=30), JOBS)
        row = await world.until_state("a", State.RUNNING)
        assert world.controller is not None
        assert world.controller.term is not None
        picture = world.controller.term.picture
        assert picture.kubernetes_groups.of(row.uid, picture.object_of(row) or {}, picture.kind_of(row)) == ()
        await world.until_state("a", State.FINISHED)


async def test_message_about_what_is_not_followed_is_an_event(store: Store) -> None:
    async with World(store) as world:
        runtime = world.cluster.state.get(CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed")
        spec = {**runtime["spec"], "scheduling": {"schedulingPolicy": {"gang": {}}, "colour": "blue"}}
        state = world.cluster.state
        before = state.get(CRDS, "", "clustertrainingruntimes.trainer.kubeflow.org")
        crd = copy.deepcopy(before)
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["scheduling"] = (
            ANYTHING
        )
        state.update(CRDS, before, crd, manager="kubectl")
        state.update(CLUSTER_TRAINING_RUNTIMES, runtime, {**runtime, "spec": spec}, manager="kubectl")
        await world.submit(train_job("a", 2))
        row = await world.until_state("a", State.RUNNING)
        assert (row.pod_groups[0].policy, row.pod_groups[0].minimum) == (GroupPolicy.GANG, 2)
        await world.until(lambda: "NotFollowed" in world.events("a"))


def test_edited_num_nodes_of_a_gang_holds_the_train_job() -> None:
    trainer = plain.replicated_job("node", plain.pod_template(plain.container("node")), ancestor="trainer")
    template = plain.runtime("torch", trainer, policy={"numNodes": 1, "torch": {}}, scheduling={})
    _, obj = plain.train_job("torch", trainer={"numNodes": 4})
    obj["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    lookup = plain.World(template, (TRAIN_JOBS, obj), schema=plain.schema("v2.3"))
    world_intake = Intake(lookup, lambda: compiled())
    kind = TrainJobKind()

    def read(nodes: int, inputs: Any) -> Any:
        return world_intake.read({**obj, "spec": {**obj["spec"], "trainer": {"numNodes": nodes}}}, kind, inputs)

    old = read(4, {})
    edited = merged(old, read(6, old.inputs))
    assert edited is not None
    assert (edited.state, edited.reason) == (State.HELD, "GangSizeChanged")
    assert edited.message.startswith("spec.trainer.numNodes: it was 4 and is 6 now")
    assert edited.pod_groups == old.pod_groups
    assert merged(edited, read(6, edited.inputs)) is None, "held for as long as it is so"
    back = merged(edited, read(4, edited.inputs))
    assert back is not None
    assert (back.state, back.pod_groups[0].minimum) == (State.WAITING, 4)
    template[1]["spec"]["scheduling"] = {"schedulingPolicy": {"basic": {}}}
    free = read(4, {})
    resized = merged(free, read(6, free.inputs))
    assert resized is not None
    assert resized.pod_groups[0].pod_sets[0].count == 6, "a basic group has no size"


def compiled() -> Any:
    from queue_manager.config.compiled import compile_objects

    return compile_objects(())
