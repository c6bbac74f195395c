"""Kueue's own labels and annotations: they mean what they mean there, ours win, and messages name what was written."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from queue_manager.cluster.port import Object, Resource
from queue_manager.engine.workload import PodSet, SliceLayer, TopologyMode, TopologyRequest
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.annotation_faults import Finding, Severity
from queue_manager.kinds.annotations import max_run_time
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.fields import written_as
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import PRIORITY_CLASS_LABEL, QUEUE_LABEL, Kind, Unresolvable
from queue_manager.kinds.registry import validate
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.world import (
    VERSIONS,
    World,
    container,
    job,
    job_set,
    pod_template,
    replicated_job,
    runtime,
    schema,
    train_job,
)

KUEUE, OURS = "kueue.x-k8s.io/", "queue-manager.io/"
RACK, BLOCK, HOST = "topology/rack", "topology/block", "kubernetes.io/hostname"
READING = World(kueue_keys=True)
TEMPLATE_PATH = "spec.template.metadata.annotations"


def noted(prefix: str = KUEUE, **annotations: str) -> dict[str, Any]:
    return {"annotations": {prefix + key.replace("_", "-"): value for key, value in annotations.items()}}


def labelled(prefix: str = KUEUE, **labels: str) -> dict[str, Any]:
    return {"labels": {prefix + key.replace("_", "-"): value for key, value in labels.items()}}


def pods(**annotations: str) -> Any:
    return pod_template(container("a"), metadata=noted(**annotations))


def of_job(template: Any, metadata: Any = None, *, kueue_keys: bool = True) -> PodSet:
    _, obj = job(template, parallelism=8, metadata=metadata)
    return JobKind().resolve(obj, World(kueue_keys=kueue_keys)).pod_groups[0].pod_sets[0]


def by_name(kind: Kind, obj: Object, world: World) -> dict[str, PodSet]:
    return {p.name: p for group in kind.resolve(obj, world).pod_groups for p in group.pod_sets}


SLICED = {"podset_slice_required_topology": RACK, "podset_slice_size": "4"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"podset_required_topology": RACK}, TopologyRequest(TopologyMode.REQUIRED, RACK)),
        ({"podset_preferred_topology": RACK}, TopologyRequest(TopologyMode.PREFERRED, RACK)),
        ({"podset_unconstrained_topology": "true"}, TopologyRequest(TopologyMode.UNCONSTRAINED)),
        ({"podset_unconstrained_topology": "1"}, TopologyRequest(TopologyMode.UNCONSTRAINED)),
        ({"podset_unconstrained_topology": "false"}, None),
        (SLICED, TopologyRequest(TopologyMode.UNCONSTRAINED, "", (SliceLayer(RACK, 4),))),
        (
            {"podset_required_topology": BLOCK, **SLICED},
            TopologyRequest(TopologyMode.REQUIRED, BLOCK, (SliceLayer(RACK, 4),)),
        ),
        (
            {
                "podset_slice_required_topology_constraints": json.dumps(
                    [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]
                )
            },
            TopologyRequest(TopologyMode.UNCONSTRAINED, "", (SliceLayer(RACK, 4), SliceLayer(HOST, 2))),
        ),
    ],
)
def test_topology_of_a_pod_template(given: dict[str, str], wanted: TopologyRequest | None) -> None:
    assert of_job(pods(**given)).topology == wanted
    assert of_job(pods(**given), kueue_keys=False).topology is None


def test_group_of_pod_sets_of_a_job_set() -> None:
    driver = replicated_job("driver", pods(podset_required_topology=BLOCK, podset_group_name="crew"))
    workers = replicated_job("workers", pods(podset_required_topology=BLOCK, podset_group_name="crew"), parallelism=4)
    other = replicated_job("other", pod_template(container("a")))
    _, obj = job_set(driver, workers, other)
    found = by_name(JobSetKind(), obj, World(kueue_keys=True))
    request = TopologyRequest(TopologyMode.REQUIRED, BLOCK)
    assert [(p.name, p.podset_group, p.topology) for p in found.values()] == [
        ("driver", "crew", request),
        ("workers", "crew", request),
        ("other", "", None),
    ]
    left_alone = by_name(JobSetKind(), obj, World())
    assert all((p.podset_group, p.topology) == ("", None) for p in left_alone.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_topology_of_a_runtime(version: str) -> None:
    template = runtime("torch", replicated_job("node", pods(podset_required_topology=RACK), ancestor="trainer"))
    _, obj = train_job("torch", trainer={"numNodes": 4})
    found = by_name(TrainJobKind(), obj, World(template, schema=schema(version), kueue_keys=True))
    assert found["node"].topology == TopologyRequest(TopologyMode.REQUIRED, RACK)
    assert by_name(TrainJobKind(), obj, World(template, schema=schema(version)))["node"].topology is None


def patched(metadata: Any) -> tuple[Resource, Object]:
    """A TrainJob that gives the pods of job `node` these metadata."""
    jobs = [{"name": "node", "template": {"spec": {"template": {"metadata": metadata}}}}]
    patch = {"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    return train_job("torch", runtimePatches=[patch])


@pytest.mark.parametrize(
    ("of_runtime", "of_patch", "wanted"),
    [
        ({}, noted(podset_required_topology=RACK), TopologyRequest(TopologyMode.REQUIRED, RACK)),
        (
            noted(podset_required_topology=BLOCK),
            noted(podset_required_topology=RACK),
            TopologyRequest(TopologyMode.REQUIRED, RACK),
        ),
        (
            noted(OURS, preferred_topology=BLOCK),
            noted(podset_required_topology=RACK),
            TopologyRequest(TopologyMode.PREFERRED, BLOCK),
        ),
    ],
)
def test_topology_in_a_patch_of_a_train_job_counts_once_it_is_merged(
    of_runtime: Any, of_patch: Any, wanted: TopologyRequest
) -> None:
    pods_of_runtime = pod_template(container("a"), metadata=of_runtime)
    template = runtime("torch", replicated_job("node", pods_of_runtime, ancestor="trainer"))
    world = World(template, schema=schema("v2.3"), kueue_keys=True)
    assert by_name(TrainJobKind(), patched(of_patch)[1], world)["node"].topology == wanted


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (
            {"preferred_topology": BLOCK},
            {"podset_required_topology": RACK},
            TopologyRequest(TopologyMode.PREFERRED, BLOCK),
        ),
        (
            {"slice_topology": HOST, "slice_size": "2"},
            {"podset_required_topology": BLOCK, **SLICED},
            TopologyRequest(TopologyMode.REQUIRED, BLOCK, (SliceLayer(HOST, 2),)),
        ),
    ],
)
def test_our_keys_win(ours: dict[str, str], theirs: dict[str, str], wanted: TopologyRequest) -> None:
    metadata = {"annotations": {**noted(**theirs)["annotations"], **noted(OURS, **ours)["annotations"]}}
    assert of_job(pod_template(container("a"), metadata=metadata)).topology == wanted


def test_our_labels_and_numbers_win() -> None:
    metadata = {
        "labels": labelled(queue_name="theirs", priority_class="low")["labels"] | {QUEUE_LABEL: "ours"},
        "annotations": {KUEUE + "job-min-parallelism": "2", OURS + "min-count": "3", OURS + "max-run-time": "1h"},
    }
    metadata["labels"][KUEUE + "max-exec-time-seconds"] = "60"
    _, obj = job(pod_template(container("a")), parallelism=8, metadata=metadata)
    labels = kueue_keys.labels_of(obj, READING)
    assert (labels[QUEUE_LABEL], labels[PRIORITY_CLASS_LABEL]) == ("ours", "low")
    assert max_run_time(kueue_keys.of_job(obj, READING)) == 3600 * 10**6
    assert of_job(pod_template(container("a")), metadata).min_count == 3


def test_queue_and_priority_class() -> None:
    _, obj = job(pod_template(container("a")), metadata=labelled(queue_name="team", priority_class="high"))
    labels = kueue_keys.labels_of(obj, READING)
    assert (labels[QUEUE_LABEL], labels[PRIORITY_CLASS_LABEL]) == ("team", "high")
    assert written_as(labels, QUEUE_LABEL) == KUEUE + "queue-name"
    assert QUEUE_LABEL not in kueue_keys.labels_of(obj, World())


@pytest.mark.parametrize("labels", [None, {}, {KUEUE + "queue-name": ""}])
def test_who_names_no_queue_has_none(labels: dict[str, str] | None) -> None:
    _, obj = job(pod_template(container("a")), metadata={"labels": labels})
    assert QUEUE_LABEL not in kueue_keys.labels_of(obj, READING)


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob"])
def test_longest_run_time_of_any_kind(kind: str) -> None:
    _, obj = job(pod_template(container("a")), metadata=labelled(max_exec_time_seconds="90"))
    obj["kind"] = kind
    assert max_run_time(kueue_keys.of_job(obj, READING)) == 90 * 10**6
    assert max_run_time(kueue_keys.of_job(obj, World())) is None


def test_fewer_pods_of_a_job_alone() -> None:
    metadata = noted(job_min_parallelism="3")
    assert of_job(pod_template(container("a")), metadata).min_count == 3
    assert of_job(pod_template(container("a")), metadata, kueue_keys=False).min_count is None
    _, obj = job_set(replicated_job("a", pod_template(container("a")), parallelism=4), metadata=metadata)
    assert by_name(JobSetKind(), obj, World(kueue_keys=True))["a"].min_count is None
    assert validate(obj, World(kueue_keys=True)) == []


def test_on_the_job_itself_topology_says_nothing() -> None:
    metadata = noted(podset_required_topology=RACK)
    _, obj = job(pod_template(container("a")), parallelism=8, metadata=metadata)
    resolved = JobKind().resolve(obj, World(kueue_keys=True))
    assert (resolved.topology, resolved.pod_groups[0].pod_sets[0].topology) == (None, None)
    field = f"metadata.annotations[{KUEUE}podset-required-topology]"
    assert validate(obj, READING) == [Finding(field, "has a meaning on pod templates only", Severity.WARNING)]
    assert validate(obj, World()) == []


def errors(obj: Object, world: World = READING) -> list[tuple[str, str]]:
    return [(finding.field, finding.message) for finding in validate(obj, world) if finding.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        (
            {"podset_required_topology": "a rack"},
            "podset-required-topology",
            "must be a node label key such as topology/rack, not 'a rack'",
        ),
        (
            {"podset_unconstrained_topology": "yes"},
            "podset-unconstrained-topology",
            "must be true or false, not 'yes'",
        ),
        (
            {"podset_required_topology": RACK, "podset_preferred_topology": BLOCK},
            "podset-required-topology",
            f"can't stand beside {KUEUE}podset-preferred-topology",
        ),
        (
            {"podset_slice_required_topology": RACK},
            "podset-slice-required-topology",
            f"needs {TEMPLATE_PATH}[{KUEUE}podset-slice-size] beside it",
        ),
        (
            {"podset_slice_size": "4"},
            "podset-slice-size",
            f"needs {TEMPLATE_PATH}[{KUEUE}podset-slice-required-topology] beside it",
        ),
        (
            {"podset_slice_required_topology": f"{BLOCK},{RACK}", "podset_slice_size": "4"},
            "podset-slice-required-topology",
            f"must be a node label key such as topology/rack, not '{BLOCK},{RACK}'",
        ),
        (
            {"podset_slice_required_topology": RACK, "podset_slice_size": "0"},
            "podset-slice-size",
            "must be a whole number of at least 1, not '0'",
        ),
        (
            {**SLICED, "podset_slice_required_topology_constraints": json.dumps([{"topology": HOST, "size": 2}])},
            "podset-slice-required-topology-constraints",
            f"can't stand beside {KUEUE}podset-slice-required-topology",
        ),
        ({"podset_group_name": "a b"}, "podset-group-name", "must be a name of at most 63 characters, not 'a b'"),
    ],
)
def test_bad_values_are_named_as_they_were_written(given: dict[str, str], key: str, message: str) -> None:
    _, obj = job(pods(**given), parallelism=8)
    assert errors(obj) == [(f"{TEMPLATE_PATH}[{KUEUE}{key}]", message)]
    assert errors(obj, World()) == []
    with pytest.raises(Unresolvable) as caught:
        JobKind().resolve(obj, World(kueue_keys=True))
    assert caught.value.field == f"{TEMPLATE_PATH}[{KUEUE}{key}]"


@pytest.mark.parametrize(
    "text", ["rack", "[]", "{}", "[1]", '[{"topology": "a"}]', '[{"topology": "a", "size": "4"}]', "[" * 100_000]
)
def test_slice_layers_that_are_no_list_of_levels_and_sizes(text: str) -> None:
    _, obj = job(pods(podset_slice_required_topology_constraints=text), parallelism=8)
    ((field, message),) = errors(obj)
    assert field == f"{TEMPLATE_PATH}[{KUEUE}podset-slice-required-topology-constraints]"
    assert message.startswith('must be a list such as [{"topology": "topology/rack", "size": 8}], not ')


@pytest.mark.parametrize(
    ("metadata", "field", "message"),
    [
        (
            labelled(max_exec_time_seconds="soon"),
            f"metadata.labels[{KUEUE}max-exec-time-seconds]",
            "must be a whole number of at least 1, not 'soon'",
        ),
        (
            noted(job_min_parallelism="9"),
            f"metadata.annotations[{KUEUE}job-min-parallelism]",
            "must not be above spec.parallelism (8), but is 9",
        ),
        (
            labelled(queue_name="a queue"),
            f"metadata.labels[{KUEUE}queue-name]",
            "must be a name, not 'a queue'",
        ),
    ],
)
def test_bad_values_on_the_job(metadata: Any, field: str, message: str) -> None:
    _, obj = job(pod_template(container("a")), parallelism=8, metadata=metadata)
    assert errors(obj) == [(field, message)]


def test_bad_values_inside_a_job_set_and_in_what_a_train_job_patches() -> None:
    key = f"metadata.annotations[{KUEUE}podset-required-topology]"
    _, obj = job_set(
        replicated_job("a", pod_template(container("a"))), replicated_job("b", pods(podset_required_topology="?"))
    )
    assert [field for field, _ in errors(obj)] == [f"spec.replicatedJobs[1].template.spec.template.{key}"]
    _, obj = patched(noted(podset_required_topology="?"))
    where = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template"
    assert [field for field, _ in errors(obj)] == [f"{where}.{key}"]
    _, obj = train_job(
        "torch", podTemplateOverrides=[{"targetJobs": [], "metadata": noted(podset_required_topology="?")}]
    )
    assert [field for field, _ in errors(obj)] == [f"spec.podTemplateOverrides[0].{key}"]


@pytest.mark.parametrize("spoiled", [{"metadata": 7}, {"spec": {"template": 3}}, {"spec": {"replicatedJobs": [4]}}])
def test_what_can_not_be_read_is_a_finding_and_no_crash(spoiled: Any) -> None:
    for _, obj in (job(pods(podset_group_name="a")), job_set(replicated_job("a", pods(podset_group_name="a")))):
        assert isinstance(validate({**obj, **spoiled}, READING), list)


def test_objects_stay_as_they_are_and_their_starts_write_nothing_of_it() -> None:
    metadata = {**labelled(queue_name="team", max_exec_time_seconds="60"), **noted(job_min_parallelism="2")}
    resource, obj = job(pods(podset_required_topology=RACK), parallelism=8, metadata=metadata)
    before = copy.deepcopy(obj)
    world = World((resource, obj), kueue_keys=True)
    JobKind().resolve(obj, world)
    assert obj["metadata"]["labels"] == before["metadata"]["labels"]
    assert obj["spec"] == before["spec"]
    world.run_start(JobKind(), "job", {})
    started = world.get(resource, "team", "job")
    assert started is not None
    assert started["spec"]["suspend"] is False
    assert started["spec"]["template"] == before["spec"]["template"]
    assert not any(key.startswith(OURS) for key in started["metadata"]["annotations"])


def test_what_is_kept_of_them_is_plain_text() -> None:
    pod_set = of_job(pods(podset_required_topology=RACK, podset_group_name="crew", **SLICED))
    assert pod_set.topology is not None
    texts = (pod_set.topology.level, pod_set.topology.slices[0].level, pod_set.podset_group)
    assert [type(text) for text in texts] == [str, str, str]
