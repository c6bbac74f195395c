"""Pinned pod sets: the gate in the pod template, in each kind and generation, and over several starts."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, TRAIN_JOBS
from queue_manager.kinds.batch_job import POD_SET, JobKind
from queue_manager.kinds.gates import GATE, TOPOLOGY_GATE
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Done, PodPlacement, Write
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds import test_jobset, test_trainjob_start
from tests.kinds.world import NAMESPACE, VERSIONS, World, container, job, pod_template

PINNED = {"node": PodPlacement(2, {"gpu": "h100"}, gates=(TOPOLOGY_GATE,))}
ONE_RACK = {"node": PodPlacement(2, {"gpu": "h100", "topology/rack": "r1"})}
OURS = [{"name": TOPOLOGY_GATE}]
OTHER = {"name": "example.com/other"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_train_job_carries_the_gate_in_our_entry_while_it_runs(version: str) -> None:
    kind, world = TrainJobKind(), test_trainjob_start.make(version)
    writes = world.run_start(kind, "job", PINNED)
    assert len(writes) == (2 if version in test_trainjob_start.TWO_WRITES else 1)
    obj = world.objects[(TRAIN_JOBS, NAMESPACE, "job")]
    assert test_trainjob_start.pod_spec(obj) == {"nodeSelector": {"gpu": "h100"}, "schedulingGates": OURS}
    assert isinstance(world.start(kind, "job", PINNED), Done)
    assert kind.lost_placement(obj, PINNED, world) == ""
    world.run_stop(kind, "job")
    assert OURS[0]["name"] not in str(world.objects[(TRAIN_JOBS, NAMESPACE, "job")]["spec"])


def test_an_entry_that_loses_the_gate_is_a_lost_placement() -> None:
    kind, world = TrainJobKind(), test_trainjob_start.make("v2.3")
    world.run_start(kind, "job", PINNED)
    obj = world.objects[(TRAIN_JOBS, NAMESPACE, "job")]
    del test_trainjob_start.pod_spec(obj)["schedulingGates"]
    assert kind.lost_placement(obj, PINNED, world)


@pytest.mark.parametrize("version", VERSIONS)
def test_children_of_a_train_job_are_made_anew_only_where_the_next_start_has_no_gate(version: str) -> None:
    kind, world = TrainJobKind(), test_trainjob_start.make(version)
    test_trainjob_start.child_job_set(world, schedulingGates=OURS, nodeSelector={"gpu": "h100"})
    assert deleted(world.run_start(kind, "job", PINNED)) == []
    world = test_trainjob_start.make(version)
    test_trainjob_start.child_job_set(world, schedulingGates=OURS, nodeSelector={"gpu": "h100"})
    assert deleted(world.run_start(kind, "job", ONE_RACK)) == [JOB_SETS]


def test_children_of_a_job_set_are_made_anew_only_where_the_next_start_has_no_gate() -> None:
    kind = JobSetKind()
    for placement, gone in ((PINNED, []), (ONE_RACK, [JOBS])):
        world = test_jobset.make()
        test_jobset.child(world, "a", schedulingGates=OURS, nodeSelector={"gpu": "h100"})
        assert deleted(world.run_start(kind, "set", {"a": placement["node"]})) == gone


def test_a_job_set_has_the_gate_in_the_template_of_the_pinned_pod_set_alone_and_loses_it_afterwards() -> None:
    kind, world = JobSetKind(), test_jobset.make()
    before = test_jobset.pod(world, 0)
    world.run_start(kind, "set", {"a": PINNED["node"], "b": ONE_RACK["node"]})
    assert test_jobset.pod(world, 0)["spec"]["schedulingGates"] == OURS
    assert "schedulingGates" not in test_jobset.pod(world, 1)["spec"]
    assert isinstance(world.start(kind, "set", {"a": PINNED["node"], "b": ONE_RACK["node"]}), Done)
    world.run_stop(kind, "set")
    assert test_jobset.pod(world, 0) == before


@pytest.mark.parametrize("elastic", [False, True])
def test_a_batch_job_has_the_gate_beside_its_users_and_the_selector_as_affinity(elastic: bool) -> None:
    metadata: Any = {"annotations": {"queue-manager.io/elastic": "true"}} if elastic else None
    template = pod_template(container("main", {"cpu": 1}), schedulingGates=[OTHER])
    kind, world = JobKind(), World(job(template, metadata=metadata, parallelism=2))
    world.run_start(kind, "job", {POD_SET: PINNED["node"]})
    spec = pod_spec(world)
    assert spec["schedulingGates"] == [OTHER, *([{"name": GATE}] if elastic else []), *OURS]
    [term] = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "gpu", "operator": "In", "values": ["h100"]}]
    assert isinstance(world.start(kind, "job", {POD_SET: PINNED["node"]}), Done)
    world.run_stop(kind, "job")
    assert pod_spec(world)["schedulingGates"] == [OTHER]
    assert "affinity" not in pod_spec(world)


def pod_spec(world: World) -> Any:
    return world.objects[(JOBS, NAMESPACE, "job")]["spec"]["template"]["spec"]


def deleted(writes: list[Write]) -> list[Any]:
    return [write.resource for write in writes if write.verb == "delete"]
