"""Golden case 4: the admin's policy on the runtime holds for TrainJobs that give no more than a count and a queue."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import (
    FLAVOR,
    GPU,
    NODE,
    RACK,
    RUNTIME,
    TOPOLOGY,
    Object,
    Product,
    queue,
    train_job,
)
from tests.e2e.record import has_snapshots
from tests.e2e.runtimes import of, replicated_job, runtime

pytestmark = pytest.mark.cluster

POOL = "example.com/pool"
TEAM = "example.com/team"


def policy(gpus: int, pool: str, team: str) -> Object:
    """A runtime that says what a node of a training needs, where it may run, and that it stays in one rack."""
    node = replicated_job("node", gpus, ancestor="trainer", labels={TEAM: team}, nodeSelector={POOL: pool})
    return runtime("policy", node, annotations={"queue-manager.io/required-topology": RACK})


def only_a_count(name: str) -> Object:
    """A TrainJob whose user says nothing of resources."""
    job = train_job(name, "team", nodes=4, runtime="policy")
    del job["spec"]["trainer"]["resourcesPerNode"]
    return job


@pytest.fixture
def product(product_of_each_trainer: Product) -> Product:
    """Four racks of four nodes. Two nodes of b2-r1 are in pool a, in b1 one a rack: room for 4 pods of 4 GPUs in one
    rack is in b2-r1 alone. Pool b is rack b2-r2."""
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(2, 2, 4))
    pools = {
        "a": ("b1-r1-n1", "b1-r2-n1", "b2-r1-n1", "b2-r1-n2"),
        "b": ("b2-r2-n1", "b2-r2-n2", "b2-r2-n3", "b2-r2-n4"),
    }
    for pool, names in pools.items():
        for name in names:
            product.client.patch(NODE, name, {"metadata": {"labels": {POOL: pool}}})
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    product.client.create(policy(4, "a", "llm"))
    return product


def test_resources_labels_places_and_topology_come_from_the_runtime(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    product.client.create(only_a_count("first"), namespace)
    pods = cluster.wait_pods(namespace, 4)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"b2-r1-n1", "b2-r1-n2"}
    assert {pod["metadata"]["labels"][TEAM] for pod in pods} == {"llm"}
    assert {pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in pods} == {"4"}
    assert product.charged("team") == 16

    product.client.create(only_a_count("second"), namespace)
    product.wait_state(namespace, "second", State.WAITING, reason="WaitingForQuota")
    edited = policy(8, "b", "vision")
    edited["metadata"]["resourceVersion"] = product.client.get(RUNTIME, "policy")["metadata"]["resourceVersion"]
    product.client.replace(edited)

    snapshots = has_snapshots(product)
    if not snapshots:
        # Trainer would make the pods of the runtime as it is now: what waits has to follow it.
        row = product.wait_state(namespace, "second", State.WAITING, reason="ExceedsMaxQuota")
        assert "16 nvidia.com/gpu short" in row.message
        product.configure(queue("team", 32))
        product.wait_state(namespace, "second", State.WAITING, reason="WaitingForQuota")
    assert [pod["metadata"]["uid"] for pod in cluster.pods(namespace, of("first"))] == [
        pod["metadata"]["uid"] for pod in pods
    ]
    assert product.charged("team") == 16

    cluster.finish_pods(namespace, of("first"))
    later = cluster.wait_pods(namespace, 4, selector=of("second"))
    nodes = {pod["spec"]["nodeName"] for pod in later}
    labels = {pod["metadata"]["labels"][TEAM] for pod in later}
    resources = {pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in later}
    if snapshots:
        assert (nodes, labels, resources) == ({"b2-r1-n1", "b2-r1-n2"}, {"llm"}, {"4"})
        assert product.charged("team") == 16
    else:
        assert nodes == {"b2-r2-n1", "b2-r2-n2", "b2-r2-n3", "b2-r2-n4"}
        assert (labels, resources) == ({"vision"}, {"8"})
        assert product.charged("team") == 32
