"""Golden case 5: a required rack is one that really has the nodes, not one whose sum of free GPUs looks good."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, GPU, JOB, POD, RACK, TOPOLOGY, Product, container, job, queue, train_job, wait_for
from tests.e2e.watching import (
    catch_up,
    foreign_pod,
    nodes_of,
    placed_by_label,
    pods_of,
    pods_of_job,
    racks_of,
    seen_ready,
)

pytestmark = pytest.mark.cluster

ONE_RACK = {"queue-manager.io/required-topology": RACK}


def test_a_gang_goes_to_the_rack_that_has_whole_nodes_for_it(product_of_each_trainer: Product) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(1, 4, 3))
    # Free: r1 12 in halves, r2 16 but one whole node, r3 16 in two whole nodes, r4 24.
    in_use = {"b1-r1-n1": 4, "b1-r1-n2": 4, "b1-r1-n3": 4, "b1-r2-n1": 4, "b1-r2-n2": 4, "b1-r3-n1": 8}
    foreign = {node: foreign_pod(product, node, gpus) for node, gpus in in_use.items()}
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1000))
    namespace = product.cluster.new_namespace()
    catch_up(product)

    def start(name: str) -> None:
        product.client.create(train_job(name, "team", nodes=2, annotations=ONE_RACK), namespace)

    start("first")
    product.wait_state(namespace, "first", State.RUNNING)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("first"))
    assert nodes_of(pods) == ["b1-r3-n2", "b1-r3-n3"]
    assert [labels[RACK] for labels in placed_by_label(pods)] == ["b1-r3", "b1-r3"]

    start("second")
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("second"))
    assert racks_of(product, pods) == {"b1-r4"}

    # 36 GPUs are free now, three nodes of them whole, but no two in one rack.
    start("third")
    row = product.wait_state(namespace, "third", State.WAITING, reason="TopologyPlacementFailed")
    assert RACK in row.message
    assert product.explanation(namespace, "third")["blockers"][0]["type"] == "Topology"
    assert product.charged("team") == 32
    assert product.cluster.pods(namespace, pods_of("third")) == []

    gone = foreign["b1-r2-n1"]["metadata"]
    product.client.delete(POD, gone["name"], gone["namespace"], grace_seconds=0)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("third"))
    assert nodes_of(pods) == ["b1-r2-n1", "b1-r2-n3"]
    assert product.charged("team") == 48


def test_pods_that_kube_scheduler_spread_count_where_they_are(product: Product) -> None:
    nodes = gpu_fleet(1, 2, 2)
    product.cluster.create_nodes(nodes[:2])
    quotas = [{"name": GPU, "nominalQuota": 100}, {"name": "cpu", "nominalQuota": 1000}]
    group = {"coveredResources": [GPU, "cpu"], "flavors": [{"name": "gpus", "resources": quotas}]}
    product.configure(TOPOLOGY, FLAVOR, queue("team", 100, resourceGroups=[group]))
    namespace = product.cluster.new_namespace()
    halves = job("halves", "team", parallelism=2, gpus=4)
    # With processors asked for, the least loaded node is another one for the second pod.
    main = container("main", 4)
    main["resources"]["requests"] = {"cpu": "24"}
    halves["spec"]["template"]["spec"]["containers"] = [main]
    product.client.create(halves, namespace)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of_job("halves"))
    wait_for(lambda: seen_ready(product, namespace, "halves"), "the controller sees where they run")
    assert nodes_of(pods) == ["b1-r1-n1", "b1-r1-n2"], "kube-scheduler did not spread: the case proves nothing"

    # Eight GPUs are free in the rack, and by our own plan they were on one node.
    product.client.create(job("whole", "team", gpus=8, annotations=ONE_RACK), namespace)
    product.wait_state(namespace, "whole", State.WAITING, reason="TopologyPlacementFailed")
    assert product.client.get(JOB, "whole", namespace)["spec"]["suspend"] is True
    assert product.charged("team") == 8

    product.cluster.create_nodes(nodes[2:])
    product.wait_state(namespace, "whole", State.RUNNING)
    assert racks_of(product, product.cluster.wait_pods(namespace, 1, selector=pods_of_job("whole"))) == {"b1-r2"}
    assert product.charged("team") == 16
