"""Plain pods of one group on the real API server: admitted whole, and stopped whole."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, POD, PRIORITIES, RACK, TOPOLOGY, Product, container, job, queue
from tests.e2e.watching import catch_up, hold, let_go, names, racks_of

pytestmark = pytest.mark.cluster

GROUP = "queue-manager.io/pod-group"


def plain(name: str, group: str, size: int) -> Object:
    """A gated pod of a group that wants one rack."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"queue-manager.io/queue": "team", "queue-manager.io/priority-class": "low", GROUP: group},
            "annotations": {
                "queue-manager.io/pod-group-size": str(size),
                "queue-manager.io/required-topology": RACK,
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": "queue-manager.io/admission"}],
            "containers": [container("main", 4)],
        },
    }


def test_a_group_of_plain_pods_runs_whole_in_one_rack_and_is_stopped_whole(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 2, 4))
    within = {"withinClusterQueue": "LowerPriority"}
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 32, preemption=within))
    namespace = product.cluster.new_namespace()

    for number in range(7):
        product.client.create(plain(f"g-{number}", "g", 8), namespace)
    product.wait_state(namespace, "g", State.HELD, reason="PodsMissing")

    def message() -> str:
        row = product.row(namespace, "g")
        return row.message if row else ""

    product.client.wait(lambda: message() == "7 of 8 pods exist", "seven pods are counted")
    catch_up(product)
    assert all(pod["spec"].get("schedulingGates") for pod in product.cluster.pods(namespace))
    assert product.charged("team") == 0

    product.client.create(plain("g-7", "g", 8), namespace)
    pods = product.cluster.wait_pods(namespace, 8)
    assert len(racks_of(product, pods)) == 1
    product.wait_state(namespace, "g", State.RUNNING)
    assert product.charged("team") == 32

    # --- preempted: its pods are deleted, and its quota moves when the last one is gone
    hold(product, pods[0])
    urgent = job("urgent", "team", gpus=8, parallelism=4, labels={"queue-manager.io/priority-class": "high"})
    product.client.create(urgent, namespace)
    product.wait_state(namespace, "g", State.DRAINING)
    left = [pods[0]["metadata"]["name"]]
    product.client.wait(lambda: names(product.cluster.pods(namespace)) == left, "only the held pod is left")
    catch_up(product)
    assert product.client.get(JOB, "urgent", namespace)["spec"]["suspend"] is True
    assert product.charged("team") == 32
    let_go(product, pods[0])
    product.wait_state(namespace, "urgent", State.RUNNING)
    row = product.wait_state(namespace, "g", State.HELD, reason="PodsMissing")
    assert row.message.startswith("0 of 8 pods exist")
    assert product.client.find(POD, "g-1", namespace) is None
