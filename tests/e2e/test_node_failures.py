"""Nodes that fail under running gangs, and pods that others take away, on the real control plane (issue 5)."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.control_plane.nodes import HOST_LABEL, gpu_fleet
from tests.e2e.product import (
    FLAVOR,
    JOB,
    JOB_SET,
    NODE,
    POD,
    RACK,
    TOPOLOGY,
    Product,
    config,
    container,
    job,
    queue,
    train_job,
    wait_for,
)
from tests.e2e.record import admissions
from tests.e2e.runtimes import job_set, replicated_job
from tests.e2e.test_pinned import planned
from tests.e2e.watching import nodes_of, pods_of, pods_of_job, racks_of

pytestmark = pytest.mark.cluster

ONE_RACK = {"queue-manager.io/required-topology": RACK}
ANYWHERE = {"queue-manager.io/unconstrained-topology": "true"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def prepare(product: Product, racks: int, hosts: int, **failure: str) -> str:
    """Racks of nodes of 8 GPUs; the namespace for a test. A node is unhealthy after 3 s."""
    product.cluster.create_nodes(gpu_fleet(1, racks, hosts))
    settings = {"unhealthyAfter": "3s", "waitForReplacement": "20s", **failure}
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1000), config("Settings", "default", {"nodeFailure": settings}))
    return str(product.cluster.new_namespace())


def power_off(product: Product, name: str) -> None:
    """The machine is gone and its admin says so: Kubernetes ends its pods without asking its kubelet."""
    product.cluster.node_down(name)
    taints = product.client.get(NODE, name)["spec"].get("taints") or []
    product.client.patch(NODE, name, {"spec": {"taints": [*taints, OUT_OF_SERVICE]}})


def power_on(product: Product, name: str) -> None:
    product.client.patch(NODE, name, {"spec": {"taints": None}})
    product.cluster.node_up(name)


def settled(product: Product, namespace: str, name: str, count: int, selector: str) -> list[Object]:
    """The pods of a gang, once so many run and each is where it is planned."""

    def check() -> list[Object] | None:
        pods = [p for p in product.cluster.pods(namespace, selector) if not p["metadata"].get("deletionTimestamp")]
        alive = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        well = len(alive) == count and nodes_of(alive) == sorted(planned(product, namespace, name))
        return alive if well else None

    found: list[Object] = wait_for(check, f"{name} is whole at its places")
    return found


def row_of(product: Product, namespace: str, name: str) -> Any:
    row = product.row(namespace, name)
    assert row is not None
    return row


def test_two_nodes_killed_at_once_under_a_gang_over_two_racks(product: Product) -> None:
    namespace = prepare(product, 2, 3)
    product.client.create(train_job("gang", "team", nodes=4, annotations=ANYWHERE), namespace)
    pods = settled(product, namespace, "gang", 4, pods_of("gang"))
    assert len(racks_of(product, pods)) == 2
    before = planned(product, namespace, "gang")
    dead = [before[0], before[3]]
    for name in dead:
        power_off(product, name)

    def told() -> bool:
        messages = [message for reason, message in product.events(namespace, "gang") if reason == "NodesReplaced"]
        return all(any(name in message for message in messages) for name in dead)

    wait_for(told, "an event names each of the dead nodes")
    pods = settled(product, namespace, "gang", 4, pods_of("gang"))
    after = planned(product, namespace, "gang")
    assert not set(after) & set(dead)
    assert after[1:3] == before[1:3], "who was not on them stays"
    assert row_of(product, namespace, "gang").attempt == 1
    assert admissions(product, namespace, "gang") == 1
    assert product.charged("team") == 32
    for name in dead:
        power_on(product, name)


def test_a_node_killed_under_a_gang_of_one_rack_that_restarts_away_from_it(product: Product) -> None:
    namespace = prepare(product, 2, 3)
    worker = replicated_job("worker", 8, parallelism=2, backoffLimit=0)
    failure = {"maxRestarts": 3}
    product.client.create(job_set("gang", "team", worker, annotations=ONE_RACK, failurePolicy=failure), namespace)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("gang"))
    (rack,) = racks_of(product, pods)
    dead = nodes_of(pods)[0]
    power_off(product, dead)

    def whole_elsewhere() -> bool:
        found = product.cluster.pods(namespace, pods_of("gang"))
        alive = [p for p in found if not p["metadata"].get("deletionTimestamp") and p["status"]["phase"] == "Running"]
        return len(alive) == 2 and dead not in nodes_of(alive) and racks_of(product, alive) == {rack}

    # Kubernetes collects the pods of a machine out of service once in 20 s.
    wait_for(whole_elsewhere, "both pods run in the rack, away from the dead node", 90)
    assert row_of(product, namespace, "gang").attempt == 1
    assert product.charged("team") == 16
    status = product.client.get(JOB_SET, "gang", namespace)["status"]
    assert status.get("restarts", 0) <= 1, "what the failure itself cost, and no more"
    power_on(product, dead)


def test_without_other_nodes_the_gang_queues_again_and_its_limits_are_untouched(product: Product) -> None:
    namespace = prepare(product, 1, 2, waitForReplacement="4s")
    made = job("gang", "team", parallelism=2, gpus=8, annotations=ANYWHERE, backoffLimit=0)
    product.client.create(made, namespace)
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of_job("gang"))
    dead = nodes_of(pods)[0]
    product.cluster.node_down(dead)
    waits = product.wait_state(namespace, "gang", State.RUNNING, reason="WaitingForReplacement")
    assert dead in waits.message
    assert product.explanation(namespace, "gang")["blockers"][0]["node"] == dead
    product.wait_state(namespace, "gang", State.DRAINING, State.WAITING)
    product.cluster.node_up(dead)
    wait_for(lambda: row_of(product, namespace, "gang").attempt == 2, "it starts again when the node is back")
    product.cluster.wait_pods(namespace, 2, selector=pods_of_job("gang"))
    status = product.client.get(JOB, "gang", namespace)["status"]
    assert not status.get("failed"), "suspending counts as no failure"
    assert row_of(product, namespace, "gang").requeues == 0
    assert product.charged("team") == 16


def test_a_node_that_comes_back_in_time_changes_nothing(product: Product) -> None:
    namespace = prepare(product, 1, 2, unhealthyAfter="2s", waitForReplacement="60s")
    product.client.create(train_job("gang", "team", nodes=2, annotations=ANYWHERE), namespace)
    before = {p["metadata"]["uid"] for p in settled(product, namespace, "gang", 2, pods_of("gang"))}
    lost = planned(product, namespace, "gang")[0]
    product.cluster.node_down(lost)
    product.wait_state(namespace, "gang", State.RUNNING, reason="WaitingForReplacement")
    product.cluster.node_up(lost)
    product.wait_event(namespace, "gang", "NodesRecovered")
    assert row_of(product, namespace, "gang").reason == ""
    assert {p["metadata"]["uid"] for p in product.cluster.pods(namespace, pods_of("gang"))} == before


def test_a_cordon_leaves_what_runs_and_a_new_pod_goes_elsewhere(product: Product) -> None:
    namespace = prepare(product, 1, 3)
    product.client.create(train_job("gang", "team", nodes=2, annotations=ANYWHERE), namespace)
    pods = settled(product, namespace, "gang", 2, pods_of("gang"))
    cordoned = planned(product, namespace, "gang")[0]
    product.client.patch(NODE, cordoned, {"spec": {"unschedulable": True}})
    (pod,) = [pod for pod in pods if pod["spec"]["nodeName"] == cordoned]
    assert cordoned in planned(product, namespace, "gang")
    product.client.delete(POD, pod["metadata"]["name"], namespace)
    product.wait_event(namespace, "gang", "NodesReplaced")
    settled(product, namespace, "gang", 2, pods_of("gang"))
    assert cordoned not in planned(product, namespace, "gang")
    assert row_of(product, namespace, "gang").attempt == 1


@pytest.mark.parametrize("mode", ["single", "all"])
def test_a_foreign_pod_that_kube_scheduler_makes_room_for(product: Product, mode: str) -> None:
    namespace = prepare(product, 1, 3)
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"urgent-{mode}"},
        "value": 1_000_000,
    }
    product.client.create(urgent)
    annotations = {**ANYWHERE, "queue-manager.io/disruption-mode": mode}
    product.client.create(train_job("gang", "team", nodes=2, annotations=annotations), namespace)
    settled(product, namespace, "gang", 2, pods_of("gang"))
    taken = planned(product, namespace, "gang")[0]
    spec = {
        "priorityClassName": f"urgent-{mode}",
        "nodeSelector": {HOST_LABEL: taken},
        "containers": [container("main", 8)],
    }
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": spec}
    product.client.create(foreign, product.cluster.new_namespace("foreign"))
    if mode == "all":
        messages = product.wait_event(namespace, "gang", "Evicted")
        assert "kube-scheduler" in messages[0]
        wait_for(lambda: row_of(product, namespace, "gang").attempt == 2, "the whole gang starts again")
    else:
        product.wait_event(namespace, "gang", "NodesReplaced")
    settled(product, namespace, "gang", 2, pods_of("gang"))
    assert taken not in planned(product, namespace, "gang")
    assert row_of(product, namespace, "gang").attempt == (2 if mode == "all" else 1)
    assert row_of(product, namespace, "gang").requeues == 0
    product.client.delete("scheduling.k8s.io/v1/PriorityClass", f"urgent-{mode}")
