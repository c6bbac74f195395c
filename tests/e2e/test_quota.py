"""Golden cases 1 and 3: a gang waits whole, holds nothing, and starts whole."""

from __future__ import annotations

import time

import pytest

from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, TOPOLOGY, TRAIN_JOB, Product, queue, train_job

pytestmark = pytest.mark.cluster


def test_64_gpus_wait_for_the_last_one_and_hold_nothing(product_of_each_trainer: Product) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet())
    product.configure(TOPOLOGY, FLAVOR, queue("team", 63))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("big", "team", nodes=8), namespace)

    row = product.wait_state(namespace, "big", State.WAITING, reason="ExceedsMaxQuota")
    assert product.client.get(TRAIN_JOB, "big", namespace)["spec"]["suspend"] is True
    blocker = product.explanation(namespace, "big")["blockers"][0]
    assert (blocker["requested"], blocker["available"], blocker["missing"]) == (64, 63, 1)
    assert "1 nvidia.com/gpu short" in row.message
    assert product.charged("team") == 0
    assert product.cluster.pods(namespace) == []

    product.configure(queue("team", 64))
    started = time.monotonic()
    product.wait_state(namespace, "big", State.STARTING, State.RUNNING, timeout=2)
    assert time.monotonic() - started < 2
    product.cluster.wait_pods(namespace, 8)
    assert product.charged("team") == 64
