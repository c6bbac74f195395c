"""A gang of 512 pods over two racks: each pod at the place of its rank, also when the controller dies half way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.breaker import Breaker, Request, through_breaker
from tests.e2e.product import FLAVOR, TOPOLOGY, Product, job, queue, wait_for
from tests.e2e.record import admissions
from tests.e2e.test_pinned import PREFERRED, planned, rank, seated
from tests.e2e.watching import pods_of_job, racks_of

pytestmark = pytest.mark.cluster

PODS = 512
HALF = "256"


@pytest.fixture
def breakable(
    cluster: ControlPlane, store: Store, database_url: str, tmp_path: Path
) -> Iterator[tuple[Product, Breaker]]:
    """The product; its controller reaches the API server through a breaker."""
    product = Product(cluster, store, database_url, tmp_path)
    with through_breaker(product, tmp_path) as breaker, product.running():
        yield product, breaker


def _lets_the_middle_pod_through(request: Request) -> bool:
    if request.method != "PATCH" or "/pods/" not in request.path:
        return False
    return any(
        entry["path"].startswith("/metadata/annotations") and entry.get("value") == HALF
        for entry in json.loads(request.body)
    )


def test_a_gang_of_512_pods_is_whole_after_the_controller_died_half_way_through_its_gates(
    breakable: tuple[Product, Breaker],
) -> None:
    product, breaker = breakable
    product.cluster.create_nodes(gpu_fleet(1, 2, 36), timeout=60)
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1000))
    namespace = product.cluster.new_namespace()
    breaker.arm(_lets_the_middle_pod_through, "after", product.controller.kill)
    gang = job("gang", "team", parallelism=PODS, gpus=1, annotations=PREFERRED, completionMode="Indexed")
    product.client.create(gang, namespace)
    wait_for(breaker.struck.is_set, "killed half way", 120)
    pods = product.cluster.pods(namespace, pods_of_job("gang"))
    through = {pod["metadata"]["uid"] for pod in pods if not pod["spec"].get("schedulingGates")}
    assert 0 < len(through) < PODS
    assert product.charged("team") == PODS

    product.start_again()
    pods = product.cluster.wait_pods(namespace, PODS, selector=pods_of_job("gang"), timeout=180)
    product.wait_state(namespace, "gang", State.RUNNING)
    assert through <= {pod["metadata"]["uid"] for pod in pods}
    assert seated(pods) == dict(enumerate(planned(product, namespace, "gang")))
    assert all(int(pod["metadata"]["annotations"]["queue-manager.io/slot"]) == rank(pod, PODS) for pod in pods)
    assert len(racks_of(product, pods)) == 2
    assert admissions(product, namespace, "gang") == 1
    assert product.charged("team") == PODS
