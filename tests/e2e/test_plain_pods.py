"""Groups of plain pods on the real control plane: admitted whole, in one rack, stopped by deletion, made whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queue_manager.store.records import State, Wish
from tests.control_plane.client import Object
from tests.control_plane.cluster import pod_phase
from tests.control_plane.kwok import FAIL_AFTER
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, HOST, POD, PRIORITIES, RACK, TOPOLOGY, Product, container, queue, train_job
from tests.e2e.watching import catch_up, hold, let_go, names, nodes_of, racks_of

pytestmark = pytest.mark.cluster

LONG = 60.0
GROUP = "queue-manager.io/pod-group"
WITHIN_QUEUE = {"withinClusterQueue": "LowerPriority"}
URGENT = "jobset.sigs.k8s.io/jobset-name=urgent"


def plain(name: str, group: str, size: int, *, gpus: int = 8, priority: str = "low", **annotations: str) -> Object:
    """A pod as its user writes it: with our gate."""
    labels = {"queue-manager.io/queue": "team", "queue-manager.io/priority-class": priority, GROUP: group}
    notes = {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"queue-manager.io/pod-group-size": str(size), **notes},
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": "queue-manager.io/admission"}],
            "containers": [container("main", gpus)],
        },
    }


def of(group: str) -> str:
    return f"{GROUP}={group}"


def running(product: Product, namespace: str, selector: str) -> list[Object]:
    return [pod for pod in product.cluster.pods(namespace, selector) if pod_phase(pod) == "Running"]


def configure(product: Product, gpus: int, **spec: Any) -> str:
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", gpus, **spec))
    return product.cluster.new_namespace()


def test_eight_pods_start_together_in_one_rack_and_seven_of_them_not_at_all(product: Product) -> None:
    nodes = gpu_fleet(1, 2, 8)
    product.cluster.create_nodes(nodes)
    namespace = configure(product, 128)
    for number in range(7):
        product.client.create(plain(f"g-{number}", "g", 8, required_topology=RACK), namespace)
    row = product.wait_state(namespace, "g", State.HELD, reason="PodsMissing", timeout=LONG)
    product.client.wait(lambda: product.row(namespace, "g").message == "7 of 8 pods exist", str(row), timeout=LONG)
    catch_up(product)
    assert running(product, namespace, of("g")) == []
    assert product.charged("team") == 0
    assert product.explanation(namespace, "g")["blockers"][0]["message"] == "7 of 8 pods exist"

    product.client.create(plain("g-7", "g", 8, required_topology=RACK), namespace)
    row = product.wait_state(namespace, "g", State.RUNNING, timeout=LONG)
    product.client.wait(lambda: len(running(product, namespace, of("g"))) == 8, "all run", timeout=LONG)
    pods = running(product, namespace, of("g"))
    assert len(racks_of(product, pods)) == 1
    assert len(set(nodes_of(pods))) == 8
    assert (row.kind, product.charged("team")) == ("PodGroup", 64)
    product.client.wait(
        lambda: (
            product.client.get(POD, "g-0", namespace)["metadata"]["annotations"]["queue-manager.io/state"] == "running"
        ),
        "its pods say so",
    )

    product.cluster.finish_pods(namespace, of("g"))
    row = product.wait_state(namespace, "g", State.FINISHED, timeout=LONG)
    assert row.message == "8 of 8 pods succeeded"
    assert product.charged("team") == 0
    assert product.store.check(datetime.now(UTC)) == []


def test_a_preemptor_waits_until_the_last_pod_of_the_group_is_deleted_and_the_group_comes_back_with_new_pods(
    product: Product,
) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    namespace = configure(product, 16, preemption=WITHIN_QUEUE)
    for number in range(2):
        product.client.create(plain(f"g-{number}", "g", 2), namespace)
    uid = product.wait_state(namespace, "g", State.RUNNING, timeout=LONG).uid
    product.client.wait(lambda: len(running(product, namespace, of("g"))) == 2, "both run", timeout=LONG)
    held = product.client.get(POD, "g-1", namespace)
    hold(product, held)

    high = {"queue-manager.io/priority-class": "high"}
    product.client.create(train_job("urgent", "team", nodes=2, labels=high), namespace)
    product.wait_state(namespace, "g", State.DRAINING, reason="InClusterQueue", timeout=LONG)
    product.client.wait(
        lambda: names(product.cluster.pods(namespace, of("g"))) == ["g-1"], "only the held pod is left", timeout=LONG
    )
    catch_up(product)
    assert product.wait_state(namespace, "urgent", State.WAITING).reason == "WaitingForPreemptedWorkloads"
    assert product.charged("team") == 16

    let_go(product, held)
    product.wait_state(namespace, "urgent", State.RUNNING, timeout=LONG)
    row = product.wait_state(namespace, "g", State.HELD, reason="PodsMissing", timeout=LONG)
    assert row.message.startswith("0 of 2 pods exist")

    for number in range(2, 4):
        product.client.create(plain(f"g-{number}", "g", 2), namespace)
    product.wait_state(namespace, "g", State.WAITING, reason="WaitingForQuota", timeout=LONG)
    product.client.wait(lambda: len(running(product, namespace, URGENT)) == 2, "the other one runs", timeout=LONG)
    product.cluster.finish_pods(namespace, URGENT)
    row = product.wait_state(namespace, "g", State.RUNNING, timeout=LONG)
    assert (row.uid, row.attempt) == (uid, 2)
    product.client.wait(lambda: len(running(product, namespace, of("g"))) == 2, "both run", timeout=LONG)


def test_a_pod_that_failed_is_replaced_at_its_place_and_one_too_many_stays_behind_its_gate(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 2, 2))
    namespace = configure(product, 64)
    for number in range(3):
        product.client.create(plain(f"g-{number}", "g", 4, unconstrained_topology="true"), namespace)
    failing = plain("g-3", "g", 4, unconstrained_topology="true")
    failing["metadata"]["annotations"][FAIL_AFTER] = "3s"
    product.client.create(failing, namespace)
    product.wait_state(namespace, "g", State.RUNNING, timeout=LONG)
    product.client.wait(
        lambda: product.client.get(POD, "g-3", namespace)["status"].get("phase") == "Failed", "it fails", timeout=LONG
    )
    place = product.client.get(POD, "g-3", namespace)["spec"]["nodeName"]
    assert product.charged("team") == 32

    product.client.create(plain("g-4", "g", 4, unconstrained_topology="true"), namespace)
    product.client.wait(lambda: len(running(product, namespace, of("g"))) == 4, "it is replaced", timeout=LONG)
    assert product.client.get(POD, "g-4", namespace)["spec"]["nodeName"] == place
    product.client.create(plain("g-5", "g", 4, unconstrained_topology="true"), namespace)
    assert "others have them" in product.wait_event(namespace, "g-5", "NoPlace")[0]
    assert product.client.get(POD, "g-5", namespace)["spec"]["schedulingGates"]

    row = product.row(namespace, "g")
    assert row is not None
    product.cluster.finish_pods(namespace, of("g"))
    product.client.wait(
        lambda: product.store.get_workloads([row.uid])[0].state is State.FINISHED, "it ends", timeout=LONG
    )
    assert product.store.get_workloads([row.uid])[0].message == "4 of 4 pods succeeded"


def test_a_group_that_is_held_by_a_person_loses_its_pods_and_waits_for_its_release(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    namespace = configure(product, 16)
    for number in range(2):
        product.client.create(plain(f"g-{number}", "g", 2), namespace)
    row = product.wait_state(namespace, "g", State.RUNNING, timeout=LONG)
    now = datetime.now(UTC)
    assert product.store.instruct(row.uid, Wish.HOLD, {}, who="eve", reason="why", source="test", now=now)
    product.wait_state(namespace, "g", State.HELD, reason="HeldByOperator", timeout=LONG)
    assert product.cluster.pods(namespace, of("g")) == []
    for number in range(2, 4):
        product.client.create(plain(f"g-{number}", "g", 2), namespace)
    catch_up(product)
    assert product.wait_state(namespace, "g", State.HELD).reason == "HeldByOperator"
    now = datetime.now(UTC)
    assert product.store.instruct(row.uid, Wish.RELEASE, {}, who="eve", reason="now", source="test", now=now)
    product.wait_state(namespace, "g", State.RUNNING, timeout=LONG)
    assert HOST not in (product.client.get(POD, "g-2", namespace)["spec"].get("nodeSelector") or {})
