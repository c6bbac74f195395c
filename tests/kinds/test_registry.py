"""Kinds by object, and children that are left to their owner."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from typing import Any

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, TRAIN_JOBS, Object, Resource
from queue_manager.kinds.kind import Kind, PodPlacement, Unresolvable
from queue_manager.kinds.registry import BY_RESOURCE, JOB_KINDS, KINDS, kind_of, managed_ancestor, validate
from tests.kinds.world import (
    World,
    container,
    job,
    job_set,
    owned,
    pod_template,
    replicated_job,
    runtime,
    schema,
    train_job,
)


def family(labels: Any) -> tuple[World, Object]:
    """A TrainJob, its JobSet and the JobSet's Job; the Job comes back."""
    world = World()
    top = world.add(*train_job("torch", metadata={"labels": labels}))
    middle = world.add(JOB_SETS, owned(job_set(name="job")[1], top))
    return world, world.add(JOBS, owned(job(pod_template(container("a")), name="job-node-0")[1], middle))


def test_kinds() -> None:
    assert [kind.resource for kind in JOB_KINDS] == [TRAIN_JOBS, JOB_SETS, JOBS]
    assert [kind.resource.kind for kind in KINDS] == ["TrainJob", "JobSet", "Job", "PodGroup", "Pod"]
    assert BY_RESOURCE[JOBS] is kind_of(job(pod_template())[1])
    assert kind_of({"apiVersion": "batch/v1", "kind": "CronJob"}) is None
    assert kind_of({}) is None


def test_child_of_a_managed_job_is_left_alone() -> None:
    """kueue#2612, #7649: over two owners."""
    world, child = family({"queue-manager.io/queue": "q"})
    found = managed_ancestor(child, world)
    assert found is not None
    assert found["kind"] == "TrainJob"


def test_child_of_unmanaged_jobs_stands_for_itself() -> None:
    world, child = family({})
    assert managed_ancestor(child, world) is None
    assert managed_ancestor(child, world, lambda obj: obj["kind"] == "JobSet") is not None


def test_child_without_an_owner_or_of_another_kind() -> None:
    _, child = job(pod_template())
    assert managed_ancestor(child, World()) is None
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "uid": "u"}}
    assert managed_ancestor(owned(child, owner), World()) is None


def test_owner_that_is_not_seen_yet_or_no_more_counts_as_managed() -> None:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set", "uid": "old"}}
    child = owned(job(pod_template())[1], owner)
    for world in (World(), World(job_set(name="set", metadata={"uid": "new"}))):
        found = managed_ancestor(child, world)
        assert found is not None
        assert (found["kind"], found["metadata"]["uid"]) == ("JobSet", "old")


def test_circle_of_owners_ends() -> None:
    world, child = family({})
    top = next(obj for (resource, _, _), obj in world.objects.items() if resource == TRAIN_JOBS)
    owned(top, child)
    assert managed_ancestor(child, world) is None


GARBAGE: list[Any] = [None, [], {}, "x", -1, 3.5, True, [None], [[]], {"a": None}, [{"name": 1}], {"name": {}}]


def scrambled(value: Any, chance: random.Random) -> Any:
    """The value with one node of it replaced by garbage."""
    paths: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            paths.append((node, key))
            walk(child)

    result = copy.deepcopy(value)
    walk(result)
    parent, key = chance.choice(paths)
    parent[key] = copy.deepcopy(chance.choice(GARBAGE))
    return result


def examples() -> list[tuple[Resource, Object, tuple[Resource, Object]]]:
    template = pod_template(
        container("node", {"cpu": 1}, {"cpu": 2}, ports=[{"hostPort": 1}]),
        initContainers=[container("i", {"cpu": 1}, restartPolicy="Always")],
        tolerations=[{"key": "a"}],
        nodeSelector={"a": "b"},
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        metadata={"annotations": {"queue-manager.io/required-topology": "rack"}},
    )
    jobs = [
        replicated_job("node", template, ancestor="trainer", replicas=1, parallelism=1),
        replicated_job("b", template, depends_on=[("node", "Complete")]),
    ]
    given = runtime("torch", *jobs, policy={"numNodes": 1, "mpi": {"runLauncherAsNode": True}})
    entries = [{"manager": "a/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [jobs[0]]}}}}]
    trainer = {"numNodes": 1, "resourcesPerNode": {"limits": {"cpu": 1}}}
    spec = {"trainer": trainer, "runtimePatches": entries, "podSpecOverrides": [{"targetJobs": [{"name": "node"}]}]}
    status = {"replicatedJobsStatus": [{"name": "node", "succeeded": 1}]}
    whole = job(template, parallelism=2, completions=2, completionMode="Indexed", status={"completedIndexes": "0"})
    sets = job_set(*jobs)
    sets[1]["status"] = status
    return [(*train_job("torch", **spec), given), (*sets, given), (*whole, given)]


@pytest.mark.parametrize("version", ["v2.0", "v2.3"])
def test_malformed_objects_never_crash(version: str) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        for resource, obj, given in examples():
            bad = scrambled({"job": obj, "runtime": given[1]}, chance)
            world = World(schema=schema(version))
            world.objects[(given[0], "", "torch")] = bad["runtime"]
            if isinstance(bad["job"], dict) and isinstance(bad["job"].get("metadata"), dict):
                bad["job"]["metadata"] |= {"name": "job", "namespace": "team", "uid": "u"}
                ask_everything(BY_RESOURCE[resource], bad["job"], world)


def ask_everything(kind: Kind, obj: Object, world: World) -> None:
    """Whatever is asked, the answer is a value or Unresolvable with a message."""
    placement = {"node": PodPlacement(1, {"r": "1"}), "main": PodPlacement(1, {"r": "1"})}
    for call in (
        lambda: kind.resolve(obj, world),
        lambda: kind.suspend_on_create(obj, world),
        lambda: kind.next_start(obj, placement, world),
        lambda: kind.next_stop(obj, world, drained=True),
    ):
        with suppress(Unresolvable):
            call()
    for answer in (kind.finished, kind.is_suspended, kind.is_active, kind.pods_ready, kind.pod_selector):
        answer(obj)
    kind.reclaimable(obj, world)
    validate(obj, world)
