"""Golden cases 6 and 7: who has to go goes as a whole, is charged until the last pod is gone, and comes back."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.cluster import pod_phase
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import (
    FLAVOR,
    JOB_SET,
    NODE,
    PRIORITIES,
    RACK,
    TOPOLOGY,
    TRAIN_JOB,
    Product,
    config,
    queue,
    train_job,
)
from tests.e2e.watching import catch_up, hold, let_go, names, nodes_of, placed_by_label, pods_of, racks_of

pytestmark = pytest.mark.cluster

LOW, HIGH = ({"queue-manager.io/priority-class": name} for name in ("low", "high"))
REQUIRED, PREFERRED = ({f"queue-manager.io/{mode}-topology": RACK} for mode in ("required", "preferred"))
WITHIN_QUEUE = {"withinClusterQueue": "LowerPriority"}


def test_a_victim_counts_until_its_last_pod_is_gone_and_resumes_elsewhere(product_of_each_trainer: Product) -> None:
    product = product_of_each_trainer
    nodes = gpu_fleet(1, 2, 2)
    product.cluster.create_nodes(nodes[:2])
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 16, preemption=WITHIN_QUEUE))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("low", "team", nodes=2, labels=LOW, annotations=PREFERRED), namespace)
    product.wait_state(namespace, "low", State.RUNNING)
    pods = product.cluster.wait_pods(namespace, 2)
    assert [labels[RACK] for labels in placed_by_label(pods)] == ["b1-r1", "b1-r1"]
    children = product.client.get(JOB_SET, "low", namespace)["metadata"]["uid"]

    # --- preempted: suspended whole, charged until the last pod is gone
    hold(product, pods[1])
    product.client.create(train_job("high", "team", nodes=2, labels=HIGH, annotations=REQUIRED), namespace)
    product.wait_state(namespace, "low", State.DRAINING, reason="InClusterQueue")
    product.client.wait(
        lambda: (
            [(pod["metadata"]["name"], pod_phase(pod)) for pod in product.cluster.pods(namespace)]
            == [(pods[1]["metadata"]["name"], "Terminating")]
        ),
        "only the held pod is left",
    )
    assert product.client.get(TRAIN_JOB, "low", namespace)["spec"]["suspend"] is True
    catch_up(product)
    assert product.wait_state(namespace, "high", State.WAITING).reason == "WaitingForPreemptedWorkloads"
    assert product.wait_state(namespace, "low", State.DRAINING)
    assert product.charged("team") == 16
    assert product.client.get(TRAIN_JOB, "high", namespace)["spec"]["suspend"] is True
    assert names(product.cluster.pods(namespace)) == [pods[1]["metadata"]["name"]]

    let_go(product, pods[1])
    product.wait_state(namespace, "high", State.RUNNING)
    assert racks_of(product, product.cluster.wait_pods(namespace, 2, selector=pods_of("high"))) == {"b1-r1"}
    product.wait_state(namespace, "low", State.WAITING, reason="WaitingForQuota")
    assert product.charged("team") == 16
    preempted = product.wait_event(namespace, "low", "Preempted")
    assert len(preempted) == 1
    assert f"{namespace}/high" in preempted[0]

    # --- resumes in another rack, with the children it had
    product.cluster.create_nodes(nodes[2:])
    product.configure(queue("team", 32, preemption=WITHIN_QUEUE))
    assert product.wait_state(namespace, "low", State.RUNNING).attempt == 2
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("low"))
    assert racks_of(product, pods) == {"b1-r2"}
    assert product.client.get(JOB_SET, "low", namespace)["metadata"]["uid"] == children
    assert product.charged("team") == 32

    # --- preempted again, resumes where no rack holds it: nothing may be left of the rack it had
    product.client.patch(NODE, "b1-r1-n1", {"spec": {"unschedulable": True}})
    product.client.create(train_job("urgent", "team", nodes=1, labels=HIGH), namespace)
    product.wait_state(namespace, "urgent", State.RUNNING)
    [urgent] = nodes_of(product.cluster.wait_pods(namespace, 1, selector=pods_of("urgent")))
    product.wait_state(namespace, "low", State.WAITING)
    product.client.delete(TRAIN_JOB, "high", namespace)
    assert product.wait_state(namespace, "low", State.RUNNING, timeout=60).attempt == 3
    pods = product.cluster.wait_pods(namespace, 2, selector=pods_of("low"))
    assert nodes_of(pods) == sorted({"b1-r1-n2", "b1-r2-n1", "b1-r2-n2"} - {urgent})
    assert placed_by_label(pods) == [{}, {}]
    assert product.client.get(JOB_SET, "low", namespace)["metadata"]["uid"] != children
    assert product.charged("team") == 24


def test_the_owner_takes_borrowed_quota_back(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 2, 2))
    product.configure(TOPOLOGY, FLAVOR, config("Cohort", "lab"))
    for name in ("borrower", "owner"):
        product.configure(queue(name, 16, cohort="lab", preemption={"reclaimWithinCohort": "Any"}))
    namespace = product.cluster.new_namespace()
    for name in ("older", "newer"):
        product.client.create(train_job(name, "borrower", nodes=2, annotations=REQUIRED), namespace)
        product.wait_state(namespace, name, State.RUNNING)
    product.cluster.wait_pods(namespace, 4)
    assert (product.charged("borrower"), product.charged("owner")) == (32, 0)

    product.client.create(train_job("mine", "owner", nodes=2, annotations=REQUIRED), namespace)
    product.wait_state(namespace, "mine", State.RUNNING)
    victim = product.wait_state(namespace, "newer", State.WAITING)
    kept = product.row(namespace, "older")
    assert kept is not None
    assert (kept.state, kept.attempt, victim.attempt) == (State.RUNNING, 1, 1)
    assert (product.charged("borrower"), product.charged("owner")) == (16, 16)
    pods = product.cluster.wait_pods(namespace, 4)
    assert len(set(nodes_of(pods))) == 4
    assert product.cluster.pods(namespace, pods_of("newer")) == []
    product.wait_event(namespace, "newer", "Preempted")

    product.cluster.finish_pods(namespace, pods_of("mine"))
    assert product.wait_state(namespace, "newer", State.RUNNING).attempt == 2
    product.cluster.wait_pods(namespace, 2, selector=pods_of("newer"))
    assert (product.charged("borrower"), product.charged("owner")) == (32, 0)
