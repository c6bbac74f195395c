"""JobSet's exclusive placement is taken over when a job is created."""

from __future__ import annotations

from typing import Any

from queue_manager.kinds.annotations import EXCLUSIVE_TOPOLOGY, JOB_SET_EXCLUSIVE
from queue_manager.kinds.exclusive import BY_NODE_SELECTOR
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.world import World, container, job_set, json_patch, pod_template, replicated_job, schema, train_job

POOL = "cloud.google.com/gke-nodepool"


def created(obj: Any, kind: Any = JobSetKind(), version: str = "v2.3") -> Any:  # noqa: B008 - has no state
    """The object after our webhook, which finds nothing more to do then."""
    world = World(schema=schema(version))
    after = json_patch(obj, kind.suspend_on_create(obj, world))
    assert kind.suspend_on_create(after, world) == []
    return after


def annotated(annotations: Any, *jobs: Any) -> Any:
    entries = jobs or (replicated_job("a", pod_template(container("a"))),)
    return job_set(*entries, metadata={"annotations": annotations})[1]


def test_the_annotation_of_a_job_set_becomes_ours_and_the_others_stay() -> None:
    after = created(annotated({JOB_SET_EXCLUSIVE: POOL, "example.com/a": "b"}))
    assert after["metadata"]["annotations"] == {EXCLUSIVE_TOPOLOGY: POOL, "example.com/a": "b"}


def test_that_of_a_replicated_job_stays_with_it_and_means_the_same() -> None:
    jobs = [replicated_job(name, pod_template(container(name)), replicas=2) for name in ("a", "b")]
    jobs[1]["template"]["metadata"] = {"annotations": {JOB_SET_EXCLUSIVE: POOL}}
    before = annotated({}, *jobs)
    after = created(before)
    assert after["spec"]["replicatedJobs"][1]["template"]["metadata"]["annotations"] == {EXCLUSIVE_TOPOLOGY: POOL}
    world = World()
    assert JobSetKind().resolve(after, world).pod_groups == JobSetKind().resolve(before, world).pod_groups
    assert [p.exclusive for p in JobSetKind().resolve(after, world).pod_groups[0].pod_sets] == ["", POOL]


def test_ours_counts_where_both_stand() -> None:
    after = created(annotated({JOB_SET_EXCLUSIVE: POOL, EXCLUSIVE_TOPOLOGY: "rack"}))
    assert after["metadata"]["annotations"] == {EXCLUSIVE_TOPOLOGY: "rack"}


def test_nodes_that_somebody_labels_for_each_job_and_values_that_are_no_label_are_left_alone() -> None:
    for given in ({JOB_SET_EXCLUSIVE: POOL, BY_NODE_SELECTOR: "true"}, {JOB_SET_EXCLUSIVE: "not a label"}):
        assert created(annotated(given))["metadata"]["annotations"] == given


def test_what_a_train_job_patches_into_its_job_set_is_said_on_the_train_job() -> None:
    job = replicated_job("node", None)
    job["template"] = {"metadata": {"annotations": {JOB_SET_EXCLUSIVE: "rack"}}}
    template = {"metadata": {"annotations": {JOB_SET_EXCLUSIVE: POOL}}, "spec": {"replicatedJobs": [job]}}
    patch = {"manager": "example.com/me", "trainingRuntimeSpec": {"template": template}}
    after = created(train_job("torch", runtimePatches=[patch])[1], TrainJobKind())
    assert after["metadata"]["annotations"] == {EXCLUSIVE_TOPOLOGY: POOL}
    found = after["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]
    assert found["metadata"]["annotations"] == {}
    assert found["spec"]["replicatedJobs"][0]["template"]["metadata"]["annotations"] == {EXCLUSIVE_TOPOLOGY: "rack"}
