"""Golden case 9: a batch/v1 Job, and what its user does to it after it was admitted."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.store.records import State
from tests.control_plane.cluster import pod_phase
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, TOPOLOGY, Product, job, queue
from tests.e2e.watching import catch_up, hold, let_go, names, nodes_of, pods_of_job

pytestmark = pytest.mark.cluster


def _suspend(product: Product, namespace: str, name: str, value: bool) -> None:
    product.client.patch(JOB, name, {"spec": {"suspend": value}}, namespace)


def _running(product: Product, **more: Any) -> str:
    """A namespace in which the Job `four` (four pods of 2 GPUs) runs in queue `team`, which has room for 8 GPUs."""
    product.cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    namespace = product.cluster.new_namespace()
    product.client.create(job("four", "team", parallelism=4, gpus=2, **more), namespace)
    product.wait_state(namespace, "four", State.RUNNING)
    assert nodes_of(product.cluster.wait_pods(namespace, 4)) == ["b1-r1-n1"] * 4
    assert product.charged("team") == 8
    return namespace


def test_suspended_by_its_user_it_is_held_and_lets_others_run(product: Product) -> None:
    namespace = _running(product)
    _suspend(product, namespace, "four", True)
    row = product.wait_state(namespace, "four", State.HELD, reason="SuspendedByUser")
    assert row.admission is None
    assert product.charged("team") == 0
    product.cluster.wait_no_pods(namespace)

    product.client.create(job("other", "team", gpus=8), namespace)
    product.wait_state(namespace, "other", State.RUNNING)
    product.cluster.wait_pods(namespace, 1)
    assert product.row(namespace, "four").state is State.HELD  # type: ignore[union-attr]

    _suspend(product, namespace, "four", False)
    product.wait_state(namespace, "four", State.WAITING, reason="WaitingForQuota")
    product.client.wait(
        lambda: product.client.get(JOB, "four", namespace)["spec"]["suspend"], "suspended again: there is no room"
    )
    product.client.wait(
        lambda: [pod_phase(pod) for pod in product.cluster.pods(namespace)] == ["Running"], "only the other's pod"
    )
    assert product.charged("team") == 8
    product.cluster.finish_pods(namespace, pods_of_job("other"))
    assert product.wait_state(namespace, "four", State.RUNNING).attempt == 2
    product.cluster.wait_pods(namespace, 4, selector=pods_of_job("four"))
    assert product.charged("team") == 8


def test_deleted_while_it_runs_it_is_charged_until_its_pods_are_gone(product: Product) -> None:
    namespace = _running(product)
    pods = product.cluster.pods(namespace)
    hold(product, pods[0])
    product.client.delete(JOB, "four", namespace)
    product.client.create(job("next", "team", gpus=2), namespace)
    product.wait_state(namespace, "four", State.DRAINING, reason="Deleted")
    product.client.wait(
        lambda: names(product.cluster.pods(namespace)) == [pods[0]["metadata"]["name"]], "only the held pod is left"
    )
    catch_up(product)
    assert product.charged("team") == 8
    assert product.wait_state(namespace, "next", State.WAITING)

    let_go(product, pods[0])
    product.wait_state(namespace, "next", State.RUNNING)
    assert product.wait_state(namespace, "four", State.FINISHED).reason == "Deleted"
    product.cluster.wait_pods(namespace, 1)
    assert product.charged("team") == 2


def test_resumed_after_part_of_it_is_done_only_the_rest_is_charged(product: Product) -> None:
    namespace = _running(product, completionMode="Indexed")
    index = pods_of_job("four") + ",batch.kubernetes.io/job-completion-index in ({})"
    product.cluster.finish_pods(namespace, index.format("0,2"))
    product.client.wait(lambda: product.charged("team") == 4, "the finished pods lend their quota")
    product.client.create(job("guest", "team", gpus=4), namespace)
    product.cluster.wait_pods(namespace, 1, selector=pods_of_job("guest"))
    assert product.charged("team") == 8

    _suspend(product, namespace, "four", True)
    product.wait_state(namespace, "four", State.HELD, reason="SuspendedByUser")
    assert product.charged("team") == 4

    _suspend(product, namespace, "four", False)
    product.client.wait(
        lambda: product.row(namespace, "four").attempt == 2,  # type: ignore[union-attr]
        "admitted again beside the guest",
    )
    product.wait_state(namespace, "four", State.RUNNING)
    product.client.wait(
        lambda: [pod_phase(pod) for pod in product.cluster.pods(namespace, index.format("1,3"))] == ["Running"] * 2,
        "the two pods that are left",
    )
    catch_up(product)
    assert product.charged("team") == 8
    spec = product.client.get(JOB, "four", namespace)["spec"]
    assert (spec["suspend"], spec["completions"], spec["parallelism"]) == (False, 4, 4)
    product.cluster.finish_pods(namespace, index.format("1,3"))
    assert product.wait_state(namespace, "four", State.FINISHED).reason == "Succeeded"
    assert product.charged("team") == 4
