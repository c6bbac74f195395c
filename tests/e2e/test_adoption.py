"""What ran before our first start goes on and is charged; what is started behind our back later is stopped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.client import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, TOPOLOGY, TRAIN_JOB, Product, install, job, queue, train_job
from tests.e2e.record import annotated
from tests.e2e.watching import names, pods_of, pods_of_job

pytestmark = pytest.mark.cluster


Install = Callable[[], Product]


@pytest.fixture
def install_product(cluster: ControlPlane, store: Store, database_url: str, tmp_path: Path) -> Install:
    """Installs the product, configured and not yet started: from then on no job is made without its webhook."""
    cluster.create_nodes(gpu_fleet(1, 2, 2))

    def installed() -> Product:
        product = Product(cluster, store, database_url, tmp_path)
        product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
        return product

    return installed


def _suspended(product: Product, kind: str, name: str, namespace: str) -> bool:
    return bool(product.client.get(kind, name, namespace)["spec"]["suspend"])


def _starts_by_itself(product: Product, namespace: str) -> bool:
    try:
        path = product.client.path(JOB, namespace=namespace)
        return not product.client.request("POST", path, job("probe", "team"), query={"dryRun": "All"})["spec"][
            "suspend"
        ]
    except ApiError:
        return False


def test_jobs_that_ran_before_the_first_start_are_charged_even_over_quota(
    cluster: ControlPlane, install_product: Install
) -> None:
    namespace = cluster.new_namespace()
    cluster.client.create(train_job("train", "team", nodes=2), namespace)
    cluster.client.create(job("batch", "team", parallelism=2, gpus=4), namespace)
    pods = names(cluster.wait_pods(namespace, 4))
    product = install_product()

    with product.running():
        for name in ("train", "batch"):
            product.wait_state(namespace, name, State.RUNNING)
        assert product.charged("team") == 24
        product.wait_event(namespace, "train", "Adopted")
        assert [reason for reason, _ in product.events(namespace, "train")] == ["Adopted"]
        product.client.create(job("later", "team"), namespace)
        product.wait_state(namespace, "later", State.WAITING, reason="WaitingForQuota")
        assert names(product.cluster.wait_pods(namespace, 4)) == pods

        # Over quota nothing starts; what was adopted is followed to its end like what was admitted.
        product.cluster.finish_pods(namespace, pods_of_job("batch"))
        product.wait_state(namespace, "batch", State.FINISHED)
        assert product.charged("team") == 16
        assert product.wait_state(namespace, "later", State.WAITING)
        product.cluster.finish_pods(namespace, pods_of("train"))
        product.wait_state(namespace, "later", State.RUNNING)
        assert product.charged("team") == 1


def test_only_the_first_start_adopts(install_product: Install) -> None:
    product = install_product()
    namespace = product.cluster.new_namespace()
    with product.running():
        pass
    # Now nothing of ours runs; the API server takes a moment to notice that no webhook is registered.
    product.client.wait(partial(_starts_by_itself, product, namespace), "jobs can be made without us")
    product.client.create(train_job("train", "team", nodes=1), namespace)
    product.client.create(job("batch", "team", gpus=32), namespace)
    product.client.wait(lambda: len(product.cluster.pods(namespace)) == 2, "both have pods")

    install(product.cluster)
    with product.running():
        product.wait_state(namespace, "batch", State.WAITING, reason="ExceedsMaxQuota")
        assert product.wait_state(namespace, "train", State.RUNNING).attempt == 1
        assert product.client.get(JOB, "batch", namespace)["spec"]["suspend"] is True
        product.cluster.wait_no_pods(namespace, selector=pods_of_job("batch"))
        assert product.charged("team") == 8
        annotated(product, TRAIN_JOB, namespace, "train", "running", "Admitted to queue team")


def test_a_job_unsuspended_without_an_admission_is_suspended_on_sight(product_of_each_trainer: Product) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(1, 2, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 4))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("train", "team", nodes=1), namespace)
    product.client.create(job("batch", "team", gpus=8), namespace)
    for name, kind in (("train", TRAIN_JOB), ("batch", JOB)):
        product.wait_state(namespace, name, State.WAITING, reason="ExceedsMaxQuota")
        version = product.client.patch(kind, name, {"spec": {"suspend": False}}, namespace)["metadata"]["generation"]
        product.client.wait(partial(_suspended, product, kind, name, namespace), f"{name} is suspended again")
        assert product.client.get(kind, name, namespace)["metadata"]["generation"] == version + 1
    product.cluster.wait_no_pods(namespace)
    assert product.charged("team") == 0
    for name in ("train", "batch"):
        assert product.wait_state(namespace, name, State.WAITING).attempt == 0
