"""Golden cases 1 and 3: a gang waits whole, holds nothing, and starts whole."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from queue_manager.engine.workload import GroupPolicy
from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, TOPOLOGY, TRAIN_JOB, Product, queue, train_job
from tests.e2e.watching import nodes_of, pods_of

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

    enough = datetime.now(UTC)
    product.configure(queue("team", 64))
    row = product.wait_state(namespace, "big", State.STARTING, State.RUNNING)
    assert row.admission is not None
    assert row.admission.admitted_at - enough < timedelta(seconds=2)
    product.cluster.wait_pods(namespace, 8)
    assert product.charged("team") == 64


def test_100_nodes_are_one_gang_and_the_next_waits_for_all_of_them(product_of_each_trainer: Product) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(2, 5, 5))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 400))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("first", "team", nodes=100, gpus=4), namespace)

    row = product.wait_state(namespace, "first", State.RUNNING)
    [group] = row.pod_groups
    total = sum(pod_set.count for pod_set in group.pod_sets)
    assert (group.policy, group.minimum or total, total) == (GroupPolicy.GANG, 100, 100)
    assert row.attempt == 1
    assert product.charged("team") == 400

    product.client.create(train_job("second", "team", nodes=100, gpus=4), namespace)
    product.wait_state(namespace, "second", State.WAITING, reason="WaitingForQuota")
    pods = product.cluster.wait_pods(namespace, 100, selector=pods_of("first"), timeout=90)
    assert set(Counter(nodes_of(pods)).values()) == {2}
    assert product.cluster.pods(namespace, pods_of("second")) == []
    assert product.charged("team") == 400

    product.cluster.finish_pods(namespace, pods_of("first"))
    product.wait_state(namespace, "second", State.RUNNING, timeout=60)
    assert product.charged("team") == 400
    product.cluster.wait_pods(namespace, 100, selector=pods_of("second"), timeout=90)
