"""Elastic Jobs: the gate in their template, pods let through one by one, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, PODS, Object
from queue_manager.engine.workload import PodSet
from queue_manager.kinds.annotation_faults import Severity, validate
from queue_manager.kinds.batch_job import POD_SET, JobKind
from queue_manager.kinds.gates import GATE, INDEX_LABEL, is_held_back, let_through, next_ones, release
from queue_manager.kinds.kind import Done, PodPlacement, Unresolvable
from tests.kinds.world import NAMESPACE, World, container, job, job_set, owned, pod_template, replicated_job

KIND = JobKind()
ELASTIC = {"annotations": {"queue-manager.io/elastic": "true"}}
OTHER_GATE = {"name": "example.com/other"}


def world_of(**spec: Any) -> World:
    template = pod_template(container("main", {"cpu": 1}), schedulingGates=[OTHER_GATE])
    return World(job(template, metadata=ELASTIC, **spec))


def the_job(world: World) -> Object:
    return world.objects[(JOBS, NAMESPACE, "job")]


def gates(obj: Object) -> list[str]:
    return [gate["name"] for gate in obj["spec"]["template"]["spec"].get("schedulingGates", [])]


def pod_set(world: World) -> PodSet:
    return KIND.resolve(the_job(world), world).pod_groups[0].pod_sets[0]


def pod(name: str, *, gated: bool = True, phase: str = "Pending", index: str = "", **metadata: Any) -> Object:
    labels = {INDEX_LABEL: index} if index else {}
    spec = {"schedulingGates": [OTHER_GATE, {"name": GATE}]} if gated else {}
    whole = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": labels, **metadata}
    return {"metadata": whole, "spec": spec, "status": {"phase": phase}}


def names(pods: Any) -> list[str]:
    return [found["metadata"]["name"] for found in pods]


def test_its_template_gets_the_gate_for_the_run_and_loses_it_afterwards() -> None:
    world = world_of(parallelism=2)
    placement = {POD_SET: PodPlacement(2, {"gpu": "h100"})}
    world.run_start(KIND, "job", placement)
    assert gates(the_job(world)) == ["example.com/other", GATE]
    assert pod_set(world).elastic
    world.run_stop(KIND, "job")
    assert gates(the_job(world)) == ["example.com/other"]
    world.run_start(KIND, "job", placement)
    assert gates(the_job(world)) == ["example.com/other", GATE]


def test_another_size_while_it_runs_needs_no_write() -> None:
    world = world_of(parallelism=2)
    placement = {POD_SET: PodPlacement(2)}
    world.run_start(KIND, "job", placement)
    the_job(world)["spec"]["parallelism"] = 5
    assert isinstance(world.start(KIND, "job", placement), Done)
    assert pod_set(world).count == 5
    world.run_stop(KIND, "job")
    assert the_job(world)["spec"]["parallelism"] == 5


def test_a_job_that_runs_without_the_gate_is_not_elastic() -> None:
    """It was adopted, or marked while it ran: its pods would run before they are admitted."""
    world = world_of(parallelism=2)
    the_job(world)["spec"]["suspend"] = False
    assert not pod_set(world).elastic


def test_pods_that_are_held_back_are_not_waited_for() -> None:
    world = world_of(parallelism=3, status={"active": 3, "ready": 2})
    world.run_start(KIND, "job", {POD_SET: PodPlacement(3)})
    assert not KIND.pods_ready(the_job(world), world)
    world.add(PODS, owned(pod("c"), the_job(world)))
    assert KIND.pods_ready(the_job(world), world)


def test_as_many_pods_are_let_through_as_are_admitted_lowest_index_first() -> None:
    pods = [pod("d", index="10"), pod("b", index="2"), pod("c", index="3"), pod("a", index="0", gated=False)]
    assert names(next_ones(pods, 3)) == ["b", "c"]
    assert names(next_ones(pods, 1)) == []
    assert release(pods[1]).body == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-b"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


def test_a_pod_counts_until_it_is_gone_and_as_soon_as_it_was_let_through() -> None:
    pods = [
        pod("terminating", gated=False, phase="Running", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("done", gated=False, phase="Succeeded"),
        pod("sent"),
        pod("new", creationTimestamp="2026-01-01T00:00:01Z"),
        pod("old", creationTimestamp="2026-01-01T00:00:00Z"),
        pod("going", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    assert names(let_through(pods, ["uid-sent"])) == ["terminating", "sent"]
    assert names(next_ones(pods, 3, ["uid-sent"])) == ["old"]
    assert not is_held_back(pods[0])


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"queue-manager.io/elastic": "yes"}, "must be true"),
        ({"queue-manager.io/elastic": "true", "queue-manager.io/min-count": "1"}, "can't stand beside min-count"),
    ],
)
def test_a_mistake_is_refused(annotations: dict[str, str], says: str) -> None:
    [finding] = validate(job(pod_template(container("a")), metadata={"annotations": annotations})[1])
    assert finding.severity is Severity.ERROR
    assert says in finding.message
    assert finding.field == "metadata.annotations[queue-manager.io/elastic]"


@pytest.mark.parametrize("where", ["job", "template"])
def test_slices_are_refused(where: str) -> None:
    slices = {"queue-manager.io/slice-topology": "rack", "queue-manager.io/slice-size": "2"}
    own = {**ELASTIC["annotations"], **(slices if where == "job" else {})}
    template = pod_template(container("a"), metadata={"annotations": slices if where == "template" else {}})
    world = World(job(template, metadata={"annotations": own}))
    [finding] = validate(the_job(world))
    assert "can't stand beside slice-topology" in finding.message
    with pytest.raises(Unresolvable, match="can't stand beside slices"):
        pod_set(world)


def test_other_kinds_are_refused() -> None:
    obj = job_set(replicated_job("a", pod_template(container("a"))), metadata=ELASTIC)[1]
    [finding] = validate(obj)
    assert "a JobSet can't change its size while it runs" in finding.message
    template = pod_template(container("a"), metadata=ELASTIC)
    [finding] = validate(job(template)[1])
    assert "belongs on the Job" in finding.message
