"""Golden case 2: initialisers and workers of one TrainJob are admitted once, run one after another, charged once."""

from __future__ import annotations

import pytest

from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, TOPOLOGY, Object, Product, queue, train_job
from tests.e2e.record import admissions, alive_together, peak_charge, recorded
from tests.e2e.runtimes import of, replicated_job, runtime

pytestmark = pytest.mark.cluster

INITIALISERS = ("dataset-initializer", "model-initializer")


def staged_runtime() -> Object:
    """Data, then the model, each by a pod with one GPU, then the workers: in a row, as Trainer's own runtimes are."""
    data, model = INITIALISERS
    return runtime(
        "staged",
        replicated_job(data, 1, ancestor=data),
        replicated_job(model, 1, ancestor=model, after=[data]),
        replicated_job("node", 8, ancestor="trainer", after=[model]),
    )


@pytest.fixture
def product(product_of_each_trainer: Product) -> Product:
    """Nodes for 128 GPUs, so that the queue's 64 are what is short."""
    product_of_each_trainer.cluster.create_nodes(gpu_fleet(1, 2, 8))
    product_of_each_trainer.configure(TOPOLOGY, FLAVOR, queue("team", 64))
    product_of_each_trainer.client.create(staged_runtime())
    return product_of_each_trainer


def test_initialisers_run_first_and_the_quota_of_the_workers_is_enough(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    with recorded(product, namespace) as record:
        product.client.create(train_job("tune", "team", nodes=8, runtime="staged"), namespace)
        for name in INITIALISERS:
            cluster.wait_pods(namespace, 1, selector=of("tune", name))
            assert product.charged("team") == 64
            cluster.finish_pods(namespace, of("tune", name))
        workers = cluster.wait_pods(namespace, 8, selector=of("tune", "node"))
        assert len({pod["spec"]["nodeName"] for pod in workers}) == 8
        assert product.charged("team") == 64

        cluster.finish_pods(namespace, of("tune", "node"))
        row = product.wait_state(namespace, "tune", State.FINISHED)
        assert (row.attempt, admissions(product, namespace, "tune")) == (1, 1)
        assert (product.charged("team"), peak_charge(product, "team")) == (0, 64)
        assert all(len(moment) <= 1 for moment in alive_together(record))


def test_two_with_initialisers_run_one_after_the_other(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    with recorded(product, namespace) as record:
        for name in ("first", "second"):
            product.client.create(train_job(name, "team", nodes=8, runtime="staged"), namespace)
            product.wait_state(namespace, name, State.STARTING, State.RUNNING, State.WAITING)
        cluster.wait_pods(namespace, 1, selector=of("first"))
        row = product.wait_state(namespace, "second", State.WAITING, reason="WaitingForQuota")
        assert "64 nvidia.com/gpu" in row.message
        for running in ("first", "second"):
            for name in INITIALISERS:
                cluster.wait_pods(namespace, 1, selector=of(running, name))
                cluster.finish_pods(namespace, of(running, name))
            cluster.wait_pods(namespace, 8, selector=of(running, "node"))
            assert product.charged("team") == 64
            cluster.finish_pods(namespace, of(running, "node"))
            product.wait_state(namespace, running, State.FINISHED)

        assert (product.charged("team"), peak_charge(product, "team")) == (0, 64)
        moments = alive_together(record)
        assert frozenset({("second", "node")}) in moments
        assert all(len({job for job, _ in moment}) <= 1 for moment in moments)
