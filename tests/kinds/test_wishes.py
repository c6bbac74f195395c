"""Annotations about the places of replicas: on the job, on a replicated job, on a pod template, on a runtime."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.engine.workload import Apart, PodSet, TopologyMode, TopologyRequest
from queue_manager.kinds.annotation_faults import Severity, validate
from queue_manager.kinds.annotations import topology_request
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.fields import View
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Resolved, Unresolvable
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.test_trainer_runtimes import schema, torch
from tests.kinds.world import World, container, job, job_set, pod_template, replicated_job, train_job

RACK, ZONE = "topology/rack", "topology.kubernetes.io/zone"
JOB_SET_KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def noted(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in annotations.items()}}


def of_job_set(metadata: Any, of_job: Any = None, of_pods: Any = None) -> dict[str, PodSet]:
    pods = pod_template(container("m"), **({"metadata": of_pods} if of_pods else {}))
    workers = replicated_job("workers", pods, replicas=4, parallelism=2, completions=2)
    if of_job:
        workers["template"]["metadata"] = of_job
    driver = replicated_job("driver", pod_template(container("d")))
    resource, obj = job_set(workers, driver, metadata=metadata)
    resolved = JobSetKind().resolve(obj, World((resource, obj)))
    return {pod_set.name: pod_set for pod_set in resolved.pod_groups[0].pod_sets}


def test_a_child_job_is_a_replica() -> None:
    found = of_job_set({})
    assert {name: (p.count, p.replica_size) for name, p in found.items()} == {"workers": (8, 2), "driver": (1, 1)}
    assert all(p.distinct is None and p.exclusive == "" for p in found.values())


def test_all_pods_of_a_job_are_one_replica() -> None:
    _, obj = job(pod_template(container("a")), parallelism=4, metadata=noted(exclusive_topology=RACK))
    pod_set = JobKind().resolve(obj, World()).pod_groups[0].pod_sets[0]
    assert (pod_set.replica_size, pod_set.exclusive) == (0, RACK)


def test_on_the_job_it_speaks_of_all_pod_sets() -> None:
    found = of_job_set(noted(spread_topology=ZONE, exclusive_topology=RACK))
    assert [p.distinct for p in found.values()] == [Apart(ZONE), Apart(ZONE)]
    assert [p.exclusive for p in found.values()] == [RACK, RACK]


def test_on_a_pod_template_it_speaks_of_that_pod_set_and_counts_before_the_job() -> None:
    found = of_job_set(noted(spread_topology=ZONE), of_pods=noted(spread_topology=RACK, exclusive_topology=RACK))
    assert found["workers"].distinct == Apart(RACK, "workers")
    assert found["driver"].distinct == Apart(ZONE)
    assert [p.exclusive for p in found.values()] == [RACK, ""]


def test_the_annotation_of_job_set_means_the_same() -> None:
    both = of_job_set({"annotations": {JOB_SET_KEY: RACK}})
    assert [p.exclusive for p in both.values()] == [RACK, RACK]
    one = of_job_set({}, of_job={"annotations": {JOB_SET_KEY: RACK}})
    assert [p.exclusive for p in one.values()] == [RACK, ""]
    ours_first = of_job_set({"annotations": {JOB_SET_KEY: RACK, **noted(exclusive_topology=ZONE)["annotations"]}})
    assert ours_first["workers"].exclusive == ZONE


class TestOfARuntime:
    def resolve(self, kind: TrainJobKind, policy: Any, wish: Any) -> Resolved:
        template = torch()
        template[1]["metadata"].update(policy)
        resource, obj = train_job("torch-distributed", metadata=wish)
        return kind.resolve(obj, World(template, (resource, obj), schema=schema("v2.3")))

    def test_stands_above_the_jobs_wish(self) -> None:
        wish = noted(exclusive_topology=ZONE, spread_topology=ZONE)
        resolved = self.resolve(TrainJobKind(), noted(exclusive_topology=RACK), wish)
        pod_set = resolved.pod_groups[0].pod_sets[0]
        assert (pod_set.exclusive, pod_set.distinct) == (RACK, Apart(ZONE))
        assert resolved.messages == (
            "metadata.annotations[queue-manager.io/exclusive-topology] is not followed: "
            f"ClusterTrainingRuntime/torch-distributed says {RACK}",
        )

    def test_unless_the_settings_let_users_override_it(self) -> None:
        kind = TrainJobKind(frozenset({"exclusive-topology"}))
        resolved = self.resolve(kind, noted(exclusive_topology=RACK), noted(exclusive_topology=ZONE))
        assert resolved.pod_groups[0].pod_sets[0].exclusive == ZONE
        assert resolved.messages == ()

    def test_the_annotation_of_its_job_set_counts(self) -> None:
        template = torch()
        template[1]["spec"]["template"]["metadata"] = {"annotations": {JOB_SET_KEY: RACK}}
        resource, obj = train_job("torch-distributed")
        resolved = TrainJobKind().resolve(obj, World(template, (resource, obj), schema=schema("v2.3")))
        assert resolved.pod_groups[0].pod_sets[0].exclusive == RACK


def test_balanced_is_a_part_of_the_request() -> None:
    metadata = View({"metadata": noted(preferred_topology=RACK, balanced="true")})["metadata"]
    assert topology_request(metadata) == TopologyRequest(TopologyMode.PREFERRED, RACK, balanced=True)


@pytest.mark.parametrize(
    ("annotations", "key", "message"),
    [
        ({"spread_topology": "a rack"}, "spread-topology", "must be a node label key such as topology/rack"),
        ({"exclusive_topology": ""}, "exclusive-topology", "must be a node label key such as topology/rack"),
        ({"balanced": "yes", "preferred_topology": RACK}, "balanced", "must be true, not 'yes'"),
        ({"balanced": "true"}, "balanced", "needs queue-manager.io/preferred-topology or"),
        ({"balanced": "true", "unconstrained_topology": "true"}, "balanced", "needs queue-manager.io/preferred-topo"),
    ],
)
def test_bad_values_are_refused_and_hold_the_job(annotations: dict[str, str], key: str, message: str) -> None:
    resource, obj = job_set(replicated_job("a", pod_template(container("a"))), metadata=noted(**annotations))
    found = validate(obj)
    assert [(one.field, one.severity) for one in found] == [
        (f"metadata.annotations[queue-manager.io/{key}]", Severity.ERROR)
    ]
    assert found[0].message.startswith(message)
    with pytest.raises(Unresolvable, match="annotations") as error:
        JobSetKind().resolve(obj, World((resource, obj)))
    assert error.value.reason == "BadAnnotation"


def test_a_job_has_nothing_to_spread() -> None:
    _, obj = job(pod_template(container("a")), parallelism=4, metadata=noted(spread_topology=RACK))
    assert [one.severity for one in validate(obj)] == [Severity.WARNING]
    assert "a Job is one replica" in validate(obj)[0].message
