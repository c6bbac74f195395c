"""Starting and stopping TrainJobs: the writes, in every generation of the API."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queue_manager.cluster.port import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, JOB_SETS, JOBS, TRAIN_JOBS, Object
from queue_manager.engine.workload import Toleration
from queue_manager.kinds.kind import MANAGER, Done, PlacementLost, PodPlacement, Unresolvable, Wait, Write
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.world import (
    NAMESPACE,
    VERSIONS,
    World,
    container,
    job,
    job_set,
    json_patch,
    owned,
    pod_template,
    replicated_job,
    runtime,
    schema,
    train_job,
)

KIND = TrainJobKind()
RACK = "topology/rack"
TWO_WRITES = ("v2.0", "v2.1")
KEYED = ("v2.2", "v2.3")


def rack(name: str, count: int = 2) -> dict[str, PodPlacement]:
    return {"node": PodPlacement(count, {RACK: name}, (Toleration("gpu", "Exists", "", "NoSchedule"),))}


def make(version: str, *, tolerations: Any = None, **spec: Any) -> World:
    """A suspended TrainJob of the torch runtime, as the webhook left it."""
    template = pod_template(container("node"), **({"tolerations": tolerations} if tolerations else {}))
    world = World(
        runtime("torch", replicated_job("node", template, ancestor="trainer"), policy={"numNodes": 1, "torch": {}}),
        schema=schema(version),
    )
    resource, obj = train_job("torch", trainer={"numNodes": 2}, **spec)
    world.add(resource, obj)
    world.add(resource, json_patch(obj, KIND.suspend_on_create(obj, world)))
    return world


def current(world: World) -> Object:
    found = world.get(TRAIN_JOBS, NAMESPACE, "job")
    assert found is not None
    return found


def pod_spec(obj: Object) -> Any:
    """What our entry lays over the pod spec of the job node."""
    spec = obj["spec"]
    if "podSpecOverrides" in spec:
        return {key: value for key, value in spec["podSpecOverrides"][-1].items() if key != "targetJobs"}
    if "podTemplateOverrides" in spec:
        return spec["podTemplateOverrides"][-1]["spec"]
    entry = next(entry for entry in spec["runtimePatches"] if entry["manager"] == MANAGER)
    jobs = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return jobs[0]["template"]["spec"]["template"]["spec"]


def child_job_set(world: World, name: str = "job", **pod: Any) -> Object:
    """The JobSet and child Job that Trainer and JobSet made of it; `pod` is in the child's pod spec."""
    owner = current(world)
    jobs = replicated_job("node", pod_template(container("node")), parallelism=2, completions=2, replicas=1)
    _, found = job_set(jobs, name=name)
    world.add(JOB_SETS, owned(found, owner))
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node"}
    _, child = job(pod_template(container("node"), **pod), name=f"{name}-node-0", metadata={"labels": labels})
    world.add(JOBS, owned(child, found))
    return found


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryGeneration:
    def test_start(self, version: str) -> None:
        world = make(version)
        writes = world.run_start(KIND, "job", rack("r1"))
        assert len(writes) == (2 if version in TWO_WRITES else 1)
        assert current(world)["spec"]["suspend"] is False
        assert pod_spec(current(world)) == {
            "nodeSelector": {RACK: "r1"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        }
        assert isinstance(world.start(KIND, "job", rack("r1")), Done)

    def test_writes_hold_for_the_version_seen_only(self, version: str) -> None:
        world = make(version)
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        world.objects[(TRAIN_JOBS, NAMESPACE, "job")] = copy.deepcopy(current(world))
        current(world)["metadata"]["resourceVersion"] = "77"
        with pytest.raises(AssertionError, match="resourceVersion"):
            world.perform(step)

    def test_placement_without_anything_to_write_only_unsuspends(self, version: str) -> None:
        world = make(version)
        writes = world.run_start(KIND, "job", {"node": PodPlacement(2)})
        assert [[entry["path"] for entry in write.body] for write in writes] == [
            ["/metadata/resourceVersion", "/spec/suspend"]
        ]
        assert isinstance(world.start(KIND, "job", {"node": PodPlacement(2)}), Done)

    def test_tolerations_of_the_template_stay(self, version: str) -> None:
        """kueue#15161: the list is replaced whole, so ours carries the template's too, each once."""
        own = [
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30},
            {"key": "a", "value": "b"},
        ]
        world = make(version, tolerations=own)
        placement = {
            "node": PodPlacement(2, {}, (Toleration("gpu", "Exists", "", "NoSchedule"), Toleration("b", "Exists")))
        }
        world.run_start(KIND, "job", placement)
        assert pod_spec(current(world))["tolerations"] == [*own, {"key": "b", "operator": "Exists"}]

    def test_stop_waits_for_the_pods_and_takes_ours_back(self, version: str) -> None:
        world = make(version)
        before = copy.deepcopy(current(world)["spec"])
        world.run_start(KIND, "job", rack("r1"))
        assert [write.says for write in world.run_stop(KIND, "job", drained=False)] == ["suspends the TrainJob"]
        placed = pod_spec(current(world))
        assert placed["nodeSelector"] == {RACK: "r1"}, "nothing is taken back while pods run"
        assert isinstance(KIND.next_stop(current(world), world, drained=False), Wait)
        world.run_stop(KIND, "job")
        after = {key: value for key, value in current(world)["spec"].items() if value != []}
        assert after == before
        assert not current(world)["metadata"].get("annotations")

    def test_stop_again_and_again_writes_nothing(self, version: str) -> None:
        """kueue#15652."""
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        world.run_stop(KIND, "job")
        assert [KIND.next_stop(current(world), world, drained=True) for _ in range(3)] == [Done()] * 3

    def test_next_start_elsewhere(self, version: str) -> None:
        """Golden case 6: the victim resumes on another rack, and once without a rack left over."""
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        world.run_stop(KIND, "job")
        world.run_start(KIND, "job", rack("r2"))
        assert pod_spec(current(world))["nodeSelector"] == {RACK: "r2"}
        world.run_stop(KIND, "job")
        world.run_start(KIND, "job", {"node": PodPlacement(2)})
        assert not any(current(world)["spec"].get(field) for field in ("podSpecOverrides", "podTemplateOverrides"))
        assert isinstance(world.start(KIND, "job", {"node": PodPlacement(2)}), Done)

    def test_other_placement_without_a_restoration_between(self, version: str) -> None:
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        world.run_stop(KIND, "job", drained=False)
        world.run_start(KIND, "job", rack("r2"))
        field = {"v2.0": "podSpecOverrides", "v2.1": "podTemplateOverrides"}.get(version, "runtimePatches")
        assert len(current(world)["spec"][field]) == 1
        assert pod_spec(current(world))["nodeSelector"] == {RACK: "r2"}

    def test_unsuspended_by_somebody_else(self, version: str) -> None:
        world = make(version)
        current(world)["spec"]["suspend"] = False
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        assert step.body[-1] == {"op": "add", "path": "/spec/suspend", "value": True}

    def test_lost_placement_is_noticed(self, version: str) -> None:
        """kueue#11931 (an old CRD drops the field) and golden case 12 (an entry removed behind our back)."""
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        for field in ("podSpecOverrides", "podTemplateOverrides", "runtimePatches"):
            current(world)["spec"].pop(field, None)
        for suspended in (False, True):
            current(world)["spec"]["suspend"] = suspended
            with pytest.raises(Unresolvable, match="written but is not there") as found:
                world.start(KIND, "job", rack("r1"))
            assert found.value.reason == "PlacementLost"
        assert "written but is not there" in KIND.lost_placement(current(world), rack("r1"), world)
        step = KIND.next_stop(current(world), world, drained=True)
        assert isinstance(step, Write)
        assert "removed by somebody else" in step.says
        world.perform(step)
        assert isinstance(KIND.next_stop(current(world), world, drained=True), Done)
        world.run_start(KIND, "job", rack("r1"))
        assert pod_spec(current(world))["nodeSelector"] == {RACK: "r1"}

    @pytest.mark.parametrize("suspended", [False, True])
    def test_lost_placement_is_written_again(self, version: str, suspended: bool) -> None:
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        for field in ("podSpecOverrides", "podTemplateOverrides", "runtimePatches"):
            current(world)["spec"].pop(field, None)
        current(world)["spec"]["suspend"] = suspended
        with pytest.raises(PlacementLost) as found:
            world.start(KIND, "job", rack("r1"))
        assert isinstance(found.value.repair, Write)
        world.perform(found.value.repair)
        assert KIND.is_suspended(current(world))
        assert KIND.lost_placement(current(world), rack("r1"), world) == ""
        world.run_start(KIND, "job", rack("r1"))
        assert pod_spec(current(world))["nodeSelector"] == {RACK: "r1"}
        assert not KIND.is_suspended(current(world))

    def test_selector_that_contradicts_the_template(self, version: str) -> None:
        world = make(version)
        template = world.get(CLUSTER_TRAINING_RUNTIMES, "", "torch")
        assert template is not None
        pod = template["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["nodeSelector"] = {RACK: "r7"}
        with pytest.raises(Unresolvable) as found:
            world.start(KIND, "job", rack("r1"))
        assert found.value.reason == "PlacementConflict"

    def test_running_job_whose_runtime_is_gone_is_still_started(self, version: str) -> None:
        world = make(version)
        world.run_start(KIND, "job", rack("r1"))
        world.drop(CLUSTER_TRAINING_RUNTIMES, "torch")
        assert isinstance(world.start(KIND, "job", rack("r1")), Done)

    def test_runtime_gone_before_the_start(self, version: str) -> None:
        world = make(version)
        world.drop(CLUSTER_TRAINING_RUNTIMES, "torch")
        with pytest.raises(Unresolvable) as found:
            world.start(KIND, "job", rack("r1"))
        assert found.value.reason == "RuntimeNotFound"

    def test_pod_set_that_is_not_there(self, version: str) -> None:
        with pytest.raises(Unresolvable) as found:
            make(version).start(KIND, "job", {"nodes": PodPlacement(1, {RACK: "r1"})})
        assert found.value.reason == "UnknownPodSet"

    def test_start_waits_while_earlier_jobs_are_active(self, version: str) -> None:
        world = make(version)
        child_job_set(world)["status"] = {"replicatedJobsStatus": [{"name": "node", "active": 1}]}
        assert isinstance(world.start(KIND, "job", rack("r1")), Wait)


class TestOthersEntries:
    OTHER = "someone.io/else"

    @pytest.mark.parametrize("version", KEYED)
    def test_keyed_ones_stay_byte_identical(self, version: str) -> None:
        """kueue#14836."""
        jobs = [{"name": "node", "template": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}}]
        other = {
            "manager": self.OTHER,
            "time": "2026-01-01T00:00:00Z",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
        }
        world = make(version, runtimePatches=[copy.deepcopy(other)])
        assert [entry["manager"] for entry in current(world)["spec"]["runtimePatches"]] == [self.OTHER, MANAGER]
        world.run_start(KIND, "job", rack("r1"))
        assert current(world)["spec"]["runtimePatches"][0] == other
        world.run_stop(KIND, "job")
        assert current(world)["spec"]["runtimePatches"] == [other, {"manager": MANAGER}]

    def test_ours_goes_behind_a_later_one_that_would_overrule_it(self) -> None:
        """Tolerations are replaced whole by whoever comes last."""
        world = make("v2.3")
        tolerations = [{"key": "late", "operator": "Exists"}]
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": tolerations}}}}}]
        other = {"manager": self.OTHER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        current(world)["spec"]["runtimePatches"].append(copy.deepcopy(other))
        world.run_start(KIND, "job", rack("r1"))
        entries = current(world)["spec"]["runtimePatches"]
        assert [entry["manager"] for entry in entries] == [self.OTHER, MANAGER]
        assert entries[0] == other
        assert pod_spec(current(world))["tolerations"][0] == tolerations[0]

    def test_time_that_trainer_stamps_changes_nothing(self) -> None:
        world = make("v2.3")
        world.run_start(KIND, "job", rack("r1"))
        current(world)["spec"]["runtimePatches"][0]["time"] = "2026-01-01T00:00:00Z"
        assert isinstance(world.start(KIND, "job", rack("r1")), Done)

    @pytest.mark.parametrize("version", TWO_WRITES)
    def test_those_in_lists_without_keys(self, version: str) -> None:
        field = {"v2.0": "podSpecOverrides", "v2.1": "podTemplateOverrides"}[version]
        other = {
            "targetJobs": [{"name": "other"}],
            **({"serviceAccountName": "a"} if version == "v2.0" else {"spec": {}}),
        }
        world = make(version, **{field: [copy.deepcopy(other)]})
        template = world.get(CLUSTER_TRAINING_RUNTIMES, "", "torch")
        assert template is not None
        template["spec"]["template"]["spec"]["replicatedJobs"].append(
            replicated_job("other", pod_template(container("other")))
        )
        world.run_start(KIND, "job", rack("r1"))
        assert [entry["targetJobs"][0]["name"] for entry in current(world)["spec"][field]] == ["other", "node"]
        assert current(world)["spec"][field][0] == other
        current(world)["spec"][field].append(copy.deepcopy(other))
        world.run_stop(KIND, "job")
        assert current(world)["spec"][field] == [other, other]

    def test_trainer_v2_0_takes_one_target_only_once(self) -> None:
        """Its webhook refuses two entries for one job, and the user's entry is not ours to change."""
        world = make("v2.0", podSpecOverrides=[{"targetJobs": [{"name": "node"}], "serviceAccountName": "a"}])
        with pytest.raises(Unresolvable) as found:
            world.start(KIND, "job", rack("r1"))
        assert (found.value.reason, found.value.field) == (
            "OverrideTaken",
            "spec.podSpecOverrides[0].targetJobs[0].name",
        )
        assert len(world.run_start(KIND, "job", {"node": PodPlacement(2)})) == 1, "without a placement there is no need"


class TestWebhook:
    def test_suspends_and_adds_one_empty_entry(self) -> None:
        world = World(schema=schema("v2.3"))
        _, obj = train_job("torch", suspend=False)
        first = json_patch(obj, KIND.suspend_on_create(obj, world))
        assert first["spec"]["suspend"] is True
        assert first["spec"]["runtimePatches"] == [{"manager": MANAGER}]
        assert KIND.suspend_on_create(first, world) == [], "kueue#15210: another webhook has ours invoked again"

    def test_empties_an_entry_that_a_user_brings(self) -> None:
        world = World(schema=schema("v2.3"))
        _, obj = train_job("torch", runtimePatches=[{"manager": MANAGER, "trainingRuntimeSpec": {"template": {}}}])
        assert json_patch(obj, KIND.suspend_on_create(obj, world))["spec"]["runtimePatches"] == [{"manager": MANAGER}]

    @pytest.mark.parametrize("version", TWO_WRITES)
    def test_lists_without_keys_get_no_entry(self, version: str) -> None:
        _, obj = train_job("torch", suspend=False)
        operations = KIND.suspend_on_create(obj, World(schema=schema(version)))
        assert operations == [{"op": "add", "path": "/spec/suspend", "value": True}]

    def test_unknown_api_is_suspended_all_the_same(self) -> None:
        _, obj = train_job("torch", suspend=False)
        assert len(KIND.suspend_on_create(obj, World())) == 1


class TestRefusals:
    def test_v2_2_0_wants_two_writes(self) -> None:
        """kueue#8296: it looks at the new state only."""
        world = make("v2.2")
        both = world.start(KIND, "job", rack("r1"))
        assert isinstance(both, Write)
        assert both.body[-1]["path"] == "/spec/suspend"
        patch = world.start(KIND, "job", rack("r1"), refused="can only be modified when suspended")
        assert isinstance(patch, Write)
        assert all(operation["path"] != "/spec/suspend" for operation in patch.body)
        world.perform(patch)
        assert [write.says for write in world.run_start(KIND, "job", rack("r1"))] == ["starts the TrainJob"]

    def test_stop_goes_through_the_job_set_when_the_runtime_is_gone(self) -> None:
        """Golden case 10, trainer#3923."""
        world = make("v2.0")
        world.run_start(KIND, "job", rack("r1"))
        child_job_set(world)["spec"]["suspend"] = False
        world.drop(CLUSTER_TRAINING_RUNTIMES, "torch")
        step = KIND.next_stop(current(world), world, drained=False, refused="runtime must be created before")
        assert isinstance(step, Write)
        assert (step.resource, step.name) == (JOB_SETS, "job")
        assert step.body == [{"op": "add", "path": "/spec/suspend", "value": True}]
        assert "runtime must be created before" in step.says
        world.perform(step)
        assert isinstance(KIND.next_stop(current(world), world, drained=False, refused="again"), Wait)
        assert isinstance(KIND.next_stop(current(world), world, drained=True, refused="again"), Done)

    def test_stop_that_trainer_would_undo_from_its_snapshot(self) -> None:
        world = make("v2.3")
        world.run_start(KIND, "job", rack("r1"))
        child_job_set(world)["spec"]["suspend"] = False
        snapshot: Object = {"metadata": {"name": "job-runtime-snapshot"}, "data": {}}
        world.add(CONFIG_MAPS, owned(snapshot, current(world)))
        with pytest.raises(Unresolvable, match="bring the runtime back") as found:
            KIND.next_stop(current(world), world, drained=False, refused="not found")
        assert found.value.reason == "StopRefused"

    def test_restoration_that_is_refused_holds_nothing_up(self) -> None:
        world = make("v2.0")
        world.run_start(KIND, "job", rack("r1"))
        world.run_stop(KIND, "job", drained=False)
        assert isinstance(KIND.next_stop(current(world), world, drained=True, refused="no runtime"), Done)


class TestRebuild:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_children_with_the_key_of_an_earlier_start(self, version: str) -> None:
        world = make(version)
        old = child_job_set(world, nodeSelector={"topology/block": "b1"})
        writes = []
        for _ in range(2):
            step = world.start(KIND, "job", rack("r1"))
            assert isinstance(step, Write)
            writes.append(step)
            world.perform(step)
        assert [write.verb for write in writes] == ["patch", "delete"]
        assert current(world)["spec"]["suspend"] is True
        assert (writes[1].resource, writes[1].uid, writes[1].propagation) == (
            JOB_SETS,
            old["metadata"]["uid"],
            "Foreground",
        )
        world.add(JOB_SETS, {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        assert isinstance(world.start(KIND, "job", rack("r1")), Wait)
        world.drop(JOB_SETS, "job")
        world.drop(JOBS, "job-node-0")
        child_job_set(world, nodeSelector={RACK: "r1"})
        assert [write.says for write in world.run_start(KIND, "job", rack("r1"))] == ["starts the TrainJob"]

    def test_children_with_a_gate_of_an_earlier_start(self) -> None:
        world = make("v2.3")
        child_job_set(world, schedulingGates=[{"name": "queue-manager.io/topology"}])
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        world.perform(step)
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        assert step.verb == "delete"

    def test_same_keys_need_none(self) -> None:
        world = make("v2.3")
        child_job_set(world, nodeSelector={RACK: "r9"})
        assert len(world.run_start(KIND, "job", rack("r1"))) == 1

    def test_finished_children_do_not_matter(self) -> None:
        world = make("v2.3")
        child_job_set(world, nodeSelector={"topology/block": "b1"})
        child = world.get(JOBS, NAMESPACE, "job-node-0")
        assert child is not None
        child["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        assert len(world.run_start(KIND, "job", rack("r1"))) == 1


class TestEditedRuntime:
    def world(self, version: str, *, edited: bool) -> World:
        world = make(version)
        child = child_job_set(world)
        child["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
        template = world.get(CLUSTER_TRAINING_RUNTIMES, "", "torch")
        assert template is not None
        template["metadata"]["creationTimestamp"] = "2026-01-01T09:00:00Z"
        if edited:
            template["metadata"]["generation"] = 2
            jobs = template["spec"]["template"]["spec"]["replicatedJobs"]
            jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/node:2"
        return world

    def steps(self, world: World) -> list[str]:
        found = []
        for _ in range(3):
            step = world.start(KIND, "job", rack("r1"))
            if not isinstance(step, Write):
                break
            found.append(step.verb)
            world.perform(step)
        return found

    @pytest.mark.parametrize("version", ["v2.0", "v2.1", "v2.2"])
    def test_has_the_job_set_made_anew(self, version: str) -> None:
        """trainer#3008: the waiting JobSet has the old image and can't be updated."""
        world = self.world(version, edited=True)
        assert self.steps(world) == ["patch", "delete", "patch"]
        assert current(world)["spec"]["suspend"] is False

    def test_only_once_should_we_be_wrong_about_what_trainer_makes(self) -> None:
        world = self.world("v2.2", edited=True)
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        world.perform(step)
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        assert step.verb == "delete"
        world.drop(JOB_SETS, "job")
        child_job_set(world)["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
        step = world.start(KIND, "job", rack("r1"))
        assert isinstance(step, Write)
        assert step.says == "starts the TrainJob"

    def test_of_which_the_job_set_knows_already(self) -> None:
        world = self.world("v2.2", edited=True)
        template = world.get(CLUSTER_TRAINING_RUNTIMES, "", "torch")
        assert template is not None
        template["metadata"]["managedFields"] = [{"time": "2026-01-01T09:30:00Z"}]
        assert self.steps(world) == ["patch"]

    def test_not_edited(self) -> None:
        assert self.steps(self.world("v2.2", edited=False)) == ["patch"]


class TestStatus:
    def status(self, *conditions: tuple[str, str], jobs: Any = ()) -> Object:
        _, obj = train_job("torch")
        obj["status"] = {
            "conditions": [{"type": kind, "status": value, "message": kind.lower()} for kind, value in conditions],
            "jobsStatus": list(jobs),
        }
        return obj

    def test_finished(self) -> None:
        for kind, outcome in (("Complete", "succeeded"), ("Failed", "failed")):
            found = KIND.finished(self.status(("Suspended", "False"), (kind, "True")))
            assert found is not None
            assert (found.outcome, found.message) == (outcome, kind.lower())

    def test_last_condition_says_nothing(self) -> None:
        """sdk#803: a resumed TrainJob's last condition is Suspended, False; one held has Complete, False."""
        obj = self.status(("Complete", "False"), ("Suspended", "False"))
        assert KIND.finished(obj) is None
        obj["spec"]["suspend"] = False
        assert not KIND.is_suspended(obj)

    def test_suspended_condition_is_not_asked(self) -> None:
        obj = self.status(("Suspended", "True"))
        obj["spec"]["suspend"] = False
        assert not KIND.is_suspended(obj)

    def test_active_by_its_own_status_or_its_job_set(self) -> None:
        assert KIND.is_active(self.status(jobs=[{"name": "node", "active": 1}]))
        assert not KIND.is_active(self.status(jobs=[{"name": "node", "active": 0}]))
        world = make("v2.0")
        assert not KIND.is_active(current(world), world)
        child_job_set(world)["status"] = {"replicatedJobsStatus": [{"name": "node", "active": 1}]}
        assert KIND.is_active(current(world), world)

    def test_ready(self) -> None:
        world = make("v2.0")
        current(world)["spec"]["suspend"] = False
        assert not KIND.pods_ready(current(world), world)
        child = child_job_set(world)
        assert not KIND.pods_ready(current(world), world)
        child["status"] = {"replicatedJobsStatus": [{"name": "node", "ready": 1}]}
        assert KIND.pods_ready(current(world), world)

    def test_pods(self) -> None:
        world = make("v2.0")
        assert KIND.pod_selector(current(world)) == {"jobset.sigs.k8s.io/jobset-name": "job"}
        assert KIND.pod_set_of({"metadata": {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"}}}) == "node"
        assert KIND.pod_set_of({}) == ""
