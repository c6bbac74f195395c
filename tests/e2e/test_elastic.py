"""A running elastic Job grows when its queue has room and shrinks as its pods go; no pod runs that is not admitted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.control_plane.cluster import pod_phase
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, TOPOLOGY, Product, job, queue
from tests.e2e.watching import catch_up, hold, let_go, pods_of_job

pytestmark = pytest.mark.cluster

GATE = "queue-manager.io/elastic"
LONG = 90.0


def _resize(product: Product, namespace: str, size: int) -> None:
    product.client.patch(JOB, "e", {"spec": {"parallelism": size}}, namespace)


def _pods(product: Product, namespace: str) -> list[Object]:
    return list(product.cluster.pods(namespace, pods_of_job("e")))


def _held_back(pod: Object) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))


def _wait_sizes(product: Product, namespace: str, running: int, held_back: int) -> None:
    """Until so many pods run and so many are held back; never more run than are charged."""

    def check() -> bool:
        pods = _pods(product, namespace)
        through = [pod for pod in pods if not _held_back(pod)]
        # The ledger is asked after the pods: it may be ahead of them, never behind.
        assert len(through) <= product.charged("team")
        assert all(pod["spec"].get("nodeName") is None for pod in pods if _held_back(pod))
        sizes = [pod_phase(pod) for pod in through].count("Running"), len(pods) - len(through)
        return sizes == (running, held_back)

    product.client.wait(check, f"{running} pods run, {held_back} are held back", timeout=LONG)


def test_a_resize_up_waits_for_quota_and_a_resize_down_frees_it_as_pods_go(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    namespace = product.cluster.new_namespace()
    annotations = {"queue-manager.io/elastic": "true"}
    product.client.create(job("e", "team", parallelism=2, completions=50, annotations=annotations), namespace)
    product.client.create(job("other", "team", gpus=5), namespace)
    product.wait_state(namespace, "e", State.RUNNING, timeout=LONG)
    product.wait_state(namespace, "other", State.RUNNING, timeout=LONG)
    _wait_sizes(product, namespace, 2, 0)

    _resize(product, namespace, 5)
    row = product.wait_state(namespace, "e", State.RUNNING, reason="WaitingForQuota", timeout=LONG)
    assert "3 more pods wait: 2 nvidia.com/gpu short" in row.message
    assert product.explanation(namespace, "e")["blockers"][0]["missing"] == 2
    _wait_sizes(product, namespace, 2, 3)
    catch_up(product)
    _wait_sizes(product, namespace, 2, 3)

    product.client.delete(JOB, "other", namespace)
    _wait_sizes(product, namespace, 5, 0)
    assert product.charged("team") == 5
    assert "Grows in queue team" in product.wait_event(namespace, "e", "Resized")[0]

    pods = _pods(product, namespace)
    for pod in pods:
        hold(product, pod)
    _resize(product, namespace, 1)
    product.client.wait(
        lambda: sum("deletionTimestamp" in pod["metadata"] for pod in _pods(product, namespace)) == 4,
        "four pods are asked to end",
        timeout=LONG,
    )
    catch_up(product)
    assert product.charged("team") == 5
    for pod in pods:
        let_go(product, pod)
    product.client.wait(lambda: product.charged("team") == 1, "charged for the pod that is left", timeout=LONG)
    assert len(_pods(product, namespace)) == 1
    assert product.store.check(datetime.now(UTC)) == []
