"""JobSet: pod sets, start, stop, loans."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.engine.workload import PodSet, Toleration
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Done, PodPlacement, Unresolvable, Wait, Write
from tests.kinds.world import (
    NAMESPACE,
    World,
    container,
    job,
    job_set,
    json_patch,
    owned,
    pod_template,
    replicated_job,
)

KIND = JobSetKind()
RACK = "topology/rack"


def tpu_example() -> Any:
    """The article's: 4 replicas of 2 pods of 4 chips, selectors of the user, host network."""
    template = pod_template(
        container("main", None, {"google.com/tpu": 4}, securityContext={"privileged": True}),
        hostNetwork=True,
        nodeSelector={"gke-tpu-accelerator": "tpu-v5-lite-podslice", "gke-tpu-topology": "2x4"},
    )
    return replicated_job("workers", template, replicas=4, parallelism=2, completions=2, backoffLimit=0)


def pod_sets(*jobs: Any, **spec: Any) -> dict[str, PodSet]:
    resource, obj = job_set(*jobs, **spec)
    resolved = KIND.resolve(obj, World((resource, obj)))
    return {pod_set.name: pod_set for pod_set in resolved.pod_groups[0].pod_sets}


def place(name: str) -> dict[str, PodPlacement]:
    return {"a": PodPlacement(1, {RACK: name}, (Toleration("gpu", "Exists"),)), "b": PodPlacement(1, {RACK: name})}


def make() -> World:
    first = pod_template(
        container("a"), tolerations=[{"key": "own", "operator": "Exists"}], nodeSelector={"gpu": "h100"}
    )
    return World(job_set(replicated_job("a", first), replicated_job("b", pod_template(container("b")))))


def current(world: World) -> Object:
    found = world.get(JOB_SETS, NAMESPACE, "set")
    assert found is not None
    return found


def pod(world: World, index: int) -> Any:
    return current(world)["spec"]["replicatedJobs"][index]["template"]["spec"]["template"]


def child(world: World, name: str, **spec: Any) -> Object:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": name}
    _, found = job(pod_template(container(name), **spec), name=f"set-{name}-0", metadata={"labels": labels})
    return world.add(JOBS, owned(found, current(world)))


class TestPodSets:
    def test_article(self) -> None:
        found = pod_sets(tpu_example(), failurePolicy={"maxRestarts": 3})["workers"]
        assert (found.count, found.requests) == (8, {"google.com/tpu": 4})
        assert found.node_selector == {"gke-tpu-accelerator": "tpu-v5-lite-podslice", "gke-tpu-topology": "2x4"}

    def test_different_templates(self) -> None:
        """Golden case 8: driver, parameter servers and workers."""
        found = pod_sets(
            replicated_job("driver", pod_template(container("d", {"cpu": 1}))),
            replicated_job("ps", pod_template(container("p", {"memory": "1Gi"})), replicas=2, parallelism=3),
            replicated_job("workers", pod_template(container("w", {"gpu/x": 1})), parallelism=8, completions=3),
        )
        assert {name: pod_set.count for name, pod_set in found.items()} == {"driver": 1, "ps": 6, "workers": 3}

    def test_no_replicas(self) -> None:
        assert pod_sets(replicated_job("a", pod_template(container("a")), replicas=0))["a"].count == 0

    def test_in_order_is_an_order_of_starts_only(self) -> None:
        jobs = [replicated_job(name, pod_template(container(name))) for name in "ab"]
        found = pod_sets(*jobs, startupPolicy={"startupPolicyOrder": "InOrder"})
        assert [pod_set.stages for pod_set in found.values()] == [(0, 0), (0, 0)]

    def test_depends_on_complete(self) -> None:
        found = pod_sets(
            replicated_job("init", pod_template(container("i"))),
            replicated_job("work", pod_template(container("w")), depends_on=[("init", "Complete")]),
        )
        assert [pod_set.stages for pod_set in found.values()] == [(0, 0), (1, 1)]

    @pytest.mark.parametrize("jobs", [[], None])
    def test_none(self, jobs: Any) -> None:
        _, obj = job_set()
        obj["spec"]["replicatedJobs"] = jobs
        with pytest.raises(Unresolvable) as found:
            KIND.resolve(obj, World())
        assert found.value.reason == "NoReplicatedJobs"


class TestStart:
    def test_one_write(self) -> None:
        world = make()
        writes = world.run_start(KIND, "set", place("r1"))
        assert [write.says for write in writes] == ["starts the JobSet with its placement"]
        assert pod(world, 0)["spec"]["nodeSelector"] == {"gpu": "h100", RACK: "r1"}
        assert [entry["key"] for entry in pod(world, 0)["spec"]["tolerations"]] == ["own", "gpu"]
        assert pod(world, 1)["spec"]["nodeSelector"] == {RACK: "r1"}
        assert "affinity" not in pod(world, 1)["spec"], "JobSet allows no change of it"
        assert isinstance(world.start(KIND, "set", place("r1")), Done)

    def test_labels_and_annotations_of_the_pods(self) -> None:
        world = make()
        before = copy.deepcopy(current(world)["spec"])
        placement = {"a": PodPlacement(1, labels={"x": "1"}, annotations={"y": "2"})}
        world.run_start(KIND, "set", placement)
        assert pod(world, 0)["metadata"] == {"labels": {"x": "1"}, "annotations": {"y": "2"}}
        assert isinstance(world.start(KIND, "set", placement), Done)
        world.run_stop(KIND, "set")
        del current(world)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]
        assert current(world)["spec"] == before

    def test_refused_once_takes_two(self) -> None:
        world = make()
        step = world.start(KIND, "set", place("r1"), refused="no")
        assert isinstance(step, Write)
        assert step.says == "writes the placement into the suspended JobSet"
        world.perform(step)
        assert [write.says for write in world.run_start(KIND, "set", place("r1"))] == ["starts the JobSet"]

    def test_stop_restores_exactly_what_the_user_gave(self) -> None:
        world = make()
        before = copy.deepcopy(current(world)["spec"])
        world.run_start(KIND, "set", place("r1"))
        assert [write.says for write in world.run_stop(KIND, "set", drained=False)] == ["suspends the JobSet"]
        assert pod(world, 1)["spec"]["nodeSelector"] == {RACK: "r1"}
        world.run_stop(KIND, "set")
        assert current(world)["spec"] == before
        assert not current(world)["metadata"]["annotations"]
        assert isinstance(KIND.next_stop(current(world), world, drained=True), Done)

    def test_start_elsewhere_without_a_restoration_between(self) -> None:
        world = make()
        before = copy.deepcopy(current(world)["spec"])
        world.run_start(KIND, "set", place("r1"))
        world.run_stop(KIND, "set", drained=False)
        world.run_start(KIND, "set", {"a": PodPlacement(1, {"topology/block": "b2"})})
        assert pod(world, 0)["spec"]["nodeSelector"] == {"gpu": "h100", "topology/block": "b2"}
        assert "nodeSelector" not in pod(world, 1)["spec"]
        world.run_stop(KIND, "set")
        assert current(world)["spec"] == before

    def test_pod_sets_do_not_change_with_the_placement(self) -> None:
        world = make()
        before = KIND.resolve(current(world), world)
        world.run_start(KIND, "set", place("r1"))
        assert KIND.resolve(current(world), world) == before

    def test_unsuspended_by_somebody_else(self) -> None:
        world = make()
        current(world)["spec"]["suspend"] = False
        step = world.start(KIND, "set", place("r1"))
        assert isinstance(step, Write)
        assert step.body[-1] == {"op": "add", "path": "/spec/suspend", "value": True}

    def test_conflict_with_the_users_selector(self) -> None:
        with pytest.raises(Unresolvable) as found:
            make().start(KIND, "set", {"a": PodPlacement(1, {"gpu": "a100"})})
        assert found.value.field == "spec.replicatedJobs[0].template.spec.template.spec.nodeSelector.gpu"

    def test_stale_children_are_made_anew_one_by_one(self) -> None:
        world = make()
        for name in "ab":
            child(world, name, nodeSelector={"topology/block": "b1"})
        writes = world.run_start(KIND, "set", place("r1"))
        assert [(write.verb, write.name) for write in writes] == [
            ("patch", "set"),
            ("delete", "set-a-0"),
            ("delete", "set-b-0"),
            ("patch", "set"),
        ]
        assert current(world)["spec"]["suspend"] is False

    def test_waits_for_a_stale_child_to_be_gone(self) -> None:
        world = make()
        found = child(world, "a", nodeSelector={"topology/block": "b1"})
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        step = world.start(KIND, "set", place("r1"))
        assert isinstance(step, Write)
        world.perform(step)
        assert isinstance(world.start(KIND, "set", place("r1")), Wait)

    def test_webhook(self) -> None:
        _, obj = job_set(suspend=False)
        assert json_patch(obj, KIND.suspend_on_create(obj, World()))["spec"]["suspend"] is True
        assert KIND.suspend_on_create(job_set()[1], World()) == []


class TestStatus:
    def status(self, *conditions: str, **jobs: dict[str, int]) -> Object:
        _, obj = job_set(
            replicated_job("init", pod_template(container("i")), replicas=2, parallelism=3),
            replicated_job("work", pod_template(container("w")), depends_on=[("init", "Complete")], replicas=2),
            suspend=False,
        )
        obj["status"] = {
            "conditions": [{"type": kind, "status": "True", "message": "said"} for kind in conditions],
            "replicatedJobsStatus": [{"name": name, **counts} for name, counts in jobs.items()],
        }
        return obj

    def test_loan_of_finished_jobs(self) -> None:
        world = World()
        assert KIND.reclaimable(self.status(init={"succeeded": 1}, work={}), world) == {"init": 3}
        assert KIND.reclaimable(self.status(init={"succeeded": 2}, work={"active": 2}), world) == {"init": 6}
        assert KIND.reclaimable(self.status(), world) == {}

    def test_no_loan_while_a_restart_may_be_on_its_way(self) -> None:
        """D11, kueue#14609."""
        assert KIND.reclaimable(self.status(init={"succeeded": 2}, work={"failed": 1}), World()) == {}
        assert KIND.reclaimable(self.status("RestartingJobSet", init={"succeeded": 2}), World()) == {}

    def test_loan_is_in_the_pod_sets_of_a_job_that_queues_again(self) -> None:
        obj = self.status(init={"succeeded": 2}, work={})
        resolved = KIND.resolve(obj, World())
        assert [pod_set.reclaimed for pod_set in resolved.pod_groups[0].pod_sets] == [6, 0]

    def test_ready_leaves_out_those_whose_turn_has_not_come(self) -> None:
        assert not KIND.pods_ready(self.status())
        assert not KIND.pods_ready(self.status(init={"ready": 1}, work={}))
        assert KIND.pods_ready(self.status(init={"ready": 2}, work={}))
        assert not KIND.pods_ready(self.status(init={"succeeded": 2}, work={}))
        assert KIND.pods_ready(self.status(init={"succeeded": 2}, work={"ready": 1, "succeeded": 1}))

    def test_active_and_finished(self) -> None:
        assert KIND.is_active(self.status(init={"active": 1}))
        assert not KIND.is_active(self.status(init={"active": 0}))
        assert KIND.finished(self.status("Suspended")) is None
        for kind, outcome in (("Completed", "succeeded"), ("Failed", "failed")):
            found = KIND.finished(self.status(kind))
            assert found is not None
            assert (found.outcome, found.message) == (outcome, "said")
