"""Pod groups of Trainer v2.4 (a stand-in) and of Kubernetes 1.37: the levels are seen on the nodes of the pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.client import VALIDATING_WEBHOOK, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import BLOCK_LABEL, gpu_fleet
from tests.control_plane.trainer_stand_in_groups import ON_SUSPEND, POD_GROUP, WORKLOAD
from tests.e2e.product import (
    BLOCK,
    FLAVOR,
    HOST,
    NODE,
    PRIORITIES,
    RACK,
    RUNTIME,
    TRAIN_JOB,
    Object,
    Product,
    config,
    job,
    queue,
    train_job,
    wait_for,
)
from tests.e2e.runtimes import of, replicated_job, runtime
from tests.e2e.watching import catch_up, foreign_pod, pods_of_job

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
ZONES = {"b1": "z1", "b2": "z1", "b3": "z2", "b4": "z2"}
TOPOLOGY = config("Topology", "racks", {"levels": [{"nodeLabel": key} for key in (ZONE, BLOCK, RACK, HOST)]})
LOW = {"queue-manager.io/priority-class": "low"}
HIGH = {"queue-manager.io/priority-class": "high"}


def fleet() -> list[Object]:
    """Two zones of two blocks of two racks of two nodes with 8 GPUs."""
    nodes = gpu_fleet(4, 2, 2)
    for node in nodes:
        node["metadata"]["labels"][ZONE] = ZONES[node["metadata"]["labels"][BLOCK_LABEL]]
    return nodes


@pytest.fixture
def product_groups(cluster_groups: ControlPlane, store: Store, database_url: str, tmp_path: Path) -> Iterator[Product]:
    """Controller and webhook where there are PodGroups."""
    with Product(cluster_groups, store, database_url, tmp_path).running() as running:
        prepared(running)
        yield running


def prepared(product: Product) -> Product:
    product.cluster.create_nodes(fleet())
    preemption = {"withinClusterQueue": "LowerPriority"}
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 1000, preemption=preemption))
    return product


def key(name: str) -> Object:
    return {"topology": [{"key": name}]}


def with_scheduling(product: Product, name: str, scheduling: Object, *jobs: Object, **more: Any) -> None:
    """A runtime with this `spec.scheduling`; one trainer job unless told."""
    made = runtime(name, *(jobs or (replicated_job("node", 8, ancestor="trainer"),)), **more)
    made["spec"]["scheduling"] = scheduling
    product.client.create(made)


def domains(product: Product, pods: list[Object], level: str) -> set[str]:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in product.client.list(NODE)}
    return {labels[pod["spec"]["nodeName"]][level] for pod in pods}


def taken(product: Product, *nodes: str) -> None:
    """Foreign pods fill these nodes."""
    for node in nodes:
        foreign_pod(product, node, 8)
    catch_up(product)


def groups(product: Product, namespace: str) -> dict[str, Object]:
    """PodGroups by the template they were made from."""
    found = product.client.list(POD_GROUP, namespace)
    return {(group["spec"].get("workloadRef") or {}).get("templateName", ""): group for group in found}


def conditions(group: Object) -> Mapping[str, str]:
    return {c["type"]: c["status"] for c in group.get("status", {}).get("conditions", [])}


def test_level_1_whole_train_job_in_one_zone(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    # Three whole nodes are left in the first zone, six in the second; the four pods need one zone.
    taken(product, "b1-r1-n1", "b1-r1-n2", "b1-r2-n1", "b2-r1-n1", "b2-r2-n1", "b3-r1-n1", "b4-r1-n1")
    scheduling = {"schedulingPolicy": {"gang": {}}, "schedulingConstraints": key(ZONE), "disruptionMode": {"all": {}}}
    with_scheduling(product, "ddp", scheduling)
    product.client.create(train_job("train", "team", nodes=4, runtime="ddp"), namespace)
    pods = product.cluster.wait_pods(namespace, 4)
    assert domains(product, pods, ZONE) == {"z2"}
    (row,) = [product.wait_state(namespace, "train", State.RUNNING)]
    (group,) = row.pod_groups
    assert (group.policy.value, group.minimum, group.disruption.value) == ("gang", 4, "all")
    (found,) = groups(product, namespace).values()
    assert found["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {found["metadata"]["name"]}
    product.client.wait(
        lambda: conditions(groups(product, namespace)["train"])["PodGroupInitiallyScheduled"] == "True", "placed"
    )


def test_level_2_initializer_free_launcher_and_workers_in_one_block(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    taken(product, "b1-r1-n1", "b1-r2-n1", "b2-r1-n1", "b2-r2-n1", "b3-r1-n1", "b3-r2-n1")
    entries = [
        {"targetReplicatedJobs": ["dataset-initializer"], "schedulingPolicy": {"basic": {}}},
        {"targetReplicatedJobs": ["launcher", "node"], "schedulingConstraints": key(BLOCK)},
    ]
    jobs = (
        replicated_job("dataset-initializer", 0, ancestor="dataset-initializer"),
        replicated_job("launcher", 8, ancestor="trainer", after=["dataset-initializer"]),
        replicated_job("node", 8, after=["dataset-initializer"]),
    )
    made = runtime("mpi", *jobs)
    made["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI"}}
    made["spec"]["scheduling"] = {"replicatedJobs": entries}
    product.client.create(made)
    product.client.create(train_job("train", "team", nodes=3, runtime="mpi"), namespace)
    product.cluster.wait_pods(namespace, 1, selector=of("train", "dataset-initializer"))
    row = product.wait_state(namespace, "train", State.RUNNING)
    assert [(group.policy.value, group.minimum) for group in row.pod_groups] == [("basic", None), ("gang", 4)]
    assert groups(product, namespace)["launcher-node"]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
    product.cluster.finish_pods(namespace, of("train", "dataset-initializer"))
    launcher = product.cluster.wait_pods(namespace, 1, selector=of("train", "launcher"))
    workers = product.cluster.wait_pods(namespace, 3, selector=of("train", "node"))
    assert domains(product, [*launcher, *workers], BLOCK) == {"b4"}


def test_level_3_child_job_in_one_rack(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    taken(product, *(f"b{block}-r{rack}-n1" for block in range(1, 5) for rack in (1, 2) if (block, rack) != (3, 2)))
    each = {"schedulingConstraints": key(RACK), "disruptionMode": {"all": {}}}
    with_scheduling(product, "slices", {"replicatedJobs": [{"targetReplicatedJobs": ["node"], "job": each}]})
    product.client.create(train_job("train", "team", nodes=2, runtime="slices"), namespace)
    pods = product.cluster.wait_pods(namespace, 2)
    assert domains(product, pods, RACK) == {"b3-r2"}
    assert groups(product, namespace)["node-0"]["spec"]["schedulingConstraints"] == key(RACK)

    # No rack is left: it waits, and nothing of it is charged.
    product.client.create(train_job("next", "team", nodes=2, runtime="slices"), namespace)
    row = product.wait_state(namespace, "next", State.WAITING, reason="TopologyPlacementFailed")
    assert RACK in row.message
    assert product.charged("team") == 16


@pytest.mark.parametrize("on_suspend", ["delete", "keep"])
def test_evicted_and_started_again(product_groups: Product, on_suspend: str) -> None:
    product, cluster, namespace = product_groups, product_groups.cluster, product_groups.cluster.new_namespace()
    taken(product, *(f"b{b}-r{r}-n{n}" for b in range(2, 5) for r in (1, 2) for n in (1, 2)))
    scheduling = {"schedulingConstraints": key(RACK)}
    with_scheduling(product, "rack", scheduling, annotations={ON_SUSPEND: on_suspend})
    product.client.create(train_job("train", "team", nodes=2, runtime="rack", labels=LOW), namespace)
    first = cluster.wait_pods(namespace, 2, selector=of("train"))
    assert len(domains(product, first, RACK)) == 1
    (before,) = groups(product, namespace).values()

    for name in ("one", "two"):
        product.client.create(train_job(name, "team", nodes=2, runtime="rack", labels=HIGH), namespace)
    for name in ("one", "two"):
        cluster.wait_pods(namespace, 2, selector=of(name), timeout=60)
    product.wait_state(namespace, "train", State.WAITING)

    def own() -> list[Object]:
        return [group for group in product.client.list(POD_GROUP, namespace) if of_train(group)]

    def of_train(group: Object) -> bool:
        return any(owner["name"] == "train" for owner in group["metadata"]["ownerReferences"])

    if on_suspend == "delete":
        wait_for(lambda: not own(), "its group is deleted")
    assert product.charged("team") == 32

    cluster.finish_pods(namespace, of("one"))
    again = cluster.wait_pods(namespace, 2, selector=of("train"), timeout=60)
    assert len(domains(product, again, RACK)) == 1
    (after,) = own()
    assert (after["metadata"]["uid"] == before["metadata"]["uid"]) == (on_suspend == "keep")
    row = product.wait_state(namespace, "train", State.RUNNING)
    assert row.attempt == 2
    assert row.message == ""
    assert len([w for w in product.client.list(WORKLOAD, namespace) if of_train(w)]) == 1


def test_gang_whose_pods_are_let_through_one_by_one(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    taken(product, *(f"b{block}-r{rack}-n1" for block in range(1, 5) for rack in (1, 2)))
    with_scheduling(product, "gang", {"schedulingConstraints": key(ZONE)})
    # Exact nodes: the pods are made with a gate, and kube-scheduler counts them once they are let through.
    anywhere = {"queue-manager.io/unconstrained-topology": "true"}
    product.client.create(train_job("train", "team", nodes=4, runtime="gang", annotations=anywhere), namespace)
    row = product.wait_state(namespace, "train", State.STARTING, State.RUNNING)
    assert row.admission is not None
    (assignment,) = row.admission.admission.pod_sets
    planned = sorted(domain.values[-1] for domain in assignment.domains or ())
    pods = product.cluster.wait_pods(namespace, 4)
    assert len(domains(product, pods, ZONE)) == 1
    if assignment.pinned:
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == planned


def limit(product: Product, namespace: str, name: str, scheduling: Object, *jobs: Object, **spec: Any) -> Object:
    """The TrainJob of a runtime that can't be, once it is held."""
    with_scheduling(product, name, scheduling, *jobs)
    if spec:
        product.client.patch(RUNTIME, name, {"spec": spec})
    product.client.create(train_job(name, "team", nodes=2, runtime=name), namespace)
    product.wait_state(namespace, name, State.HELD)

    def told() -> Object | None:
        row = product.row(namespace, name)
        stored = product.client.get(TRAIN_JOB, name, namespace)
        says = stored["metadata"].get("annotations", {}).get("queue-manager.io/message")
        # The row may name the runtime, and the TrainJob Trainer's snapshot of it: that comes a moment later.
        return {"reason": row.reason, "message": says, "suspend": stored["spec"]["suspend"]} if row and says else None

    found: Object = wait_for(told, f"the TrainJob {name} says why it is held")
    assert found["suspend"] is True
    return found


def test_limits_are_said_on_the_train_job(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    gang = {"schedulingPolicy": {"gang": {}}}
    each = {"targetReplicatedJobs": ["part"], "job": {"schedulingConstraints": key(RACK)}}
    found = limit(product, namespace, "replicas", {"replicatedJobs": [each]}, replicated_job("part", 1, replicas=3))
    assert found["reason"] == "PodGroupPerReplica"
    assert "spec.scheduling.replicatedJobs[0].job" in found["message"]
    assert "1.38" in found["message"]

    names = [f"part-{number}" for number in range(9)]
    entries = [{"targetReplicatedJobs": [name]} for name in names]
    parts = [replicated_job(name, 1) for name in names]
    found = limit(product, namespace, "nine", {"replicatedJobs": entries}, *parts)
    assert found["reason"] == "TooManyPodGroups"
    assert "9 pod groups" in found["message"]

    found = limit(product, namespace, "both", {**gang, "replicatedJobs": [{"targetReplicatedJobs": ["node"]}]})
    assert (found["reason"], "exclude each other" in found["message"]) == ("SchedulingConflict", True)
    found = limit(product, namespace, "minimum", {"schedulingPolicy": {"gang": {"minCount": 2}}})
    assert (found["reason"], "schedulingPolicy.gang.minCount" in found["message"]) == ("MinimumGiven", True)
    found = limit(product, namespace, "policy", gang, podGroupPolicy={"coscheduling": {}})
    assert (found["reason"], "spec.podGroupPolicy" in found["message"]) == ("SchedulingConflict", True)
    jobs = (replicated_job("launcher", 1), replicated_job("node", 1, ancestor="trainer"))
    found = limit(product, namespace, "left", {"replicatedJobs": [{"targetReplicatedJobs": ["node"]}]}, *jobs)
    assert "launcher is the target of no entry" in found["message"]
    assert product.charged("team") == 0


def test_num_nodes_edited_under_a_gang(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    product.configure(queue("team", 8))
    with_scheduling(product, "gang", {"schedulingConstraints": key(RACK)})
    product.client.create(train_job("train", "team", nodes=2, runtime="gang"), namespace)
    product.wait_state(namespace, "train", State.WAITING)
    # Trainer's own webhook refuses the edit; it is away for a moment.
    webhook = product.client.get(VALIDATING_WEBHOOK, "validator.trainer.kubeflow.org")
    with pytest.raises(ApiError, match="numNodes"):
        product.client.patch(TRAIN_JOB, "train", {"spec": {"trainer": {"numNodes": 1}}}, namespace)
    product.client.delete(VALIDATING_WEBHOOK, "validator.trainer.kubeflow.org")

    def resized(nodes: int) -> bool:
        try:
            product.client.patch(TRAIN_JOB, "train", {"spec": {"trainer": {"numNodes": nodes}}}, namespace)
        except ApiError as error:
            # The API server goes on asking a webhook for a moment after it is deleted.
            if error.status != 403:
                raise
            return False
        return True

    wait_for(lambda: resized(1), "numNodes is edited")
    row = product.wait_state(namespace, "train", State.HELD, reason="GangSizeChanged")
    assert row.message.startswith("spec.trainer.numNodes: it was 2 and is 1 now")
    wait_for(lambda: resized(2), "numNodes is set back")
    product.wait_state(namespace, "train", State.WAITING)
    del webhook["metadata"]["resourceVersion"], webhook["metadata"]["uid"]
    product.client.create(webhook)


def test_group_of_a_job_made_by_kubernetes_itself(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    taken(product, *(f"b{b}-r{r}-n1" for b in range(1, 5) for r in (1, 2) if (b, r) != (2, 1)))
    scheduling = {"schedulingPolicy": {"gang": {}}, "schedulingConstraints": key(RACK)}
    product.client.create(job("gang", "team", parallelism=2, gpus=8, scheduling=scheduling), namespace)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of_job("gang"))
    assert domains(product, pods, RACK) == {"b2-r1"}
    row = product.wait_state(namespace, "gang", State.RUNNING)
    (group,) = row.pod_groups
    assert (group.policy.value, group.minimum) == ("gang", 2)


def test_group_that_comes_after_the_admission(product_groups: Product) -> None:
    product, namespace = product_groups, product_groups.cluster.new_namespace()
    taken(product, *(f"b{b}-r{r}-n1" for b in range(1, 5) for r in (1, 2)))
    spread = job("spread", "team", parallelism=2, gpus=8)
    spread["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "whatever"}
    product.client.create(spread, namespace)
    # Its pods wait in kube-scheduler for the group that they name.
    product.cluster.wait_pods(namespace, 2, selector=pods_of_job("spread"), phase="Pending")
    row = product.wait_state(namespace, "spread", State.RUNNING)
    assert row.admission is not None
    assert len({domain.values[2] for p in row.admission.admission.pod_sets for domain in p.domains or ()}) == 2
    group: Object = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "whatever"},
        "spec": {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": key(RACK)},
    }
    product.client.create(group, namespace)
    row = product.wait_state(namespace, "spread", State.WAITING, reason="TopologyPlacementFailed")
    assert row.pod_groups[0].topology is not None
    assert row.pod_groups[0].topology.level == RACK
    messages = product.wait_event(namespace, "spread", "Evicted")
    assert "PodGroup whatever wants its pods in one" in messages[0]
    assert product.charged("team") == 0


def test_where_kubernetes_has_no_pod_groups_the_levels_hold_all_the_same(product_stand_in: Product) -> None:
    product = prepared(product_stand_in)
    namespace = product.cluster.new_namespace()
    assert not product.client.serves(POD_GROUP)
    taken(product, *(f"b{b}-r{r}-n1" for b in range(1, 5) for r in (1, 2) if (b, r) != (3, 2)))
    with_scheduling(product, "rack", {"schedulingConstraints": key(RACK)})
    product.client.create(train_job("train", "team", nodes=2, runtime="rack"), namespace)
    pods = product.cluster.wait_pods(namespace, 2)
    assert domains(product, pods, RACK) == {"b3-r2"}
    product.cluster.finish_pods(namespace)
    product.wait_state(namespace, "train", State.FINISHED)
