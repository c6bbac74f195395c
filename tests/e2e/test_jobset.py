"""Golden case 8: JobSets of different pods, ends before all pods end, restarts, and counts."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, JOB_SET, NODE, POD, TOPOLOGY, Product, queue, wait_for
from tests.e2e.record import admissions, on_loan, peak_charge
from tests.e2e.runtimes import job_set, of, replicated_job

pytestmark = pytest.mark.cluster

ROLE = "example.com/role"
HOLD = "test.queue-manager.io/hold"
RESTART = "jobset.sigs.k8s.io/restart-attempt"


def set_finalizers(product: Product, namespace: str, name: str, finalizers: list[str]) -> None:
    """A pod with a finalizer stays terminating after it is deleted."""
    product.client.patch(POD, name, {"metadata": {"finalizers": finalizers}}, namespace)


def test_a_driver_that_succeeds_frees_servers_and_workers_once_their_pods_are_gone(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 4))
    for name in ("b1-r1-n1", "b1-r1-n2"):
        product.client.patch(NODE, name, {"metadata": {"labels": {ROLE: "server"}}})
    product.configure(TOPOLOGY, FLAVOR, queue("team", 21))
    roles = (
        replicated_job("driver", 1, labels={ROLE: "driver"}),
        replicated_job("server", 2, replicas=2, nodeSelector={ROLE: "server"}),
        replicated_job("worker", 4, parallelism=4, labels={ROLE: "worker"}),
    )
    success = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    product.client.create(job_set("train", "team", *roles, successPolicy=success), namespace)
    cluster.wait_pods(namespace, 7)
    assert product.charged("team") == 1 + 2 * 2 + 4 * 4
    servers, workers = (cluster.pods(namespace, of("train", role)) for role in ("server", "worker"))
    assert {pod["spec"]["nodeName"] for pod in servers} <= {"b1-r1-n1", "b1-r1-n2"}
    assert [pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in workers] == ["4"] * 4

    product.client.create(job_set("next", "team", replicated_job("worker", 7, parallelism=3)), namespace)
    product.wait_state(namespace, "next", State.WAITING, reason="WaitingForQuota")
    slow = workers[0]["metadata"]["name"]
    set_finalizers(product, namespace, slow, [*workers[0]["metadata"].get("finalizers", []), HOLD])
    cluster.finish_pods(namespace, of("train", "driver"))
    product.wait_state(namespace, "train", State.DRAINING)

    def only_the_slow_one_lives() -> bool:
        pods = [p for p in cluster.pods(namespace, of("train")) if p["status"]["phase"] == "Running"]
        return [pod["metadata"]["name"] for pod in pods] == [slow]

    wait_for(only_the_slow_one_lives, "the other pods are deleted")
    assert product.charged("team") == 21
    assert product.row(namespace, "next").state is State.WAITING  # type: ignore[union-attr]

    left = product.client.get(POD, slow, namespace)["metadata"]["finalizers"]
    set_finalizers(product, namespace, slow, [name for name in left if name != HOLD])
    row = product.wait_state(namespace, "train", State.FINISHED)
    assert row.reason == "Succeeded"
    cluster.wait_pods(namespace, 3, selector=of("next"))
    assert (product.charged("team"), peak_charge(product, "team")) == (21, 21)


def test_a_restart_keeps_the_admission_and_takes_its_loans_back(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 10))
    roles = (replicated_job("prepare", 2), replicated_job("worker", 4, parallelism=2))
    product.client.create(job_set("train", "team", *roles, failurePolicy={"maxRestarts": 2}), namespace)
    cluster.wait_pods(namespace, 3)
    assert (product.charged("team"), on_loan(product, "team")) == (10, 0)
    cluster.finish_pods(namespace, of("train", "prepare"))
    wait_for(lambda: on_loan(product, "team") == 2, "the finished pod lends its quota")
    assert product.charged("team") == 8

    one = cluster.pods(namespace, of("train", "worker"))[0]["metadata"]["labels"]
    index = "batch.kubernetes.io/job-completion-index"
    cluster.fail_pods(namespace, f"{of('train', 'worker')},{index}={one[index]}")
    cluster.wait_pods(namespace, 3, selector=f"{of('train')},{RESTART}=1")
    wait_for(lambda: (product.charged("team"), on_loan(product, "team")) == (10, 0), "the loan is taken back")
    row = product.wait_state(namespace, "train", State.RUNNING)
    assert (row.attempt, admissions(product, namespace, "train")) == (1, 1)
    assert product.client.get(JOB_SET, "train", namespace)["status"]["restarts"] == 1

    cluster.finish_pods(namespace, of("train"))
    product.wait_state(namespace, "train", State.FINISHED)
    assert (product.charged("team"), on_loan(product, "team"), peak_charge(product, "team")) == (0, 0, 10)


def test_fewer_completions_than_parallelism_are_charged_as_the_pods_they_make(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 6))
    few = replicated_job("worker", 1, replicas=3, parallelism=5, completions=2)
    product.client.create(job_set("few", "team", few), namespace)
    pods = cluster.wait_pods(namespace, 6)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"b1-r1-n1"}
    assert product.charged("team") == 6
    assert [job["spec"]["parallelism"] for job in product.client.list(JOB, namespace)] == [5, 5, 5]
