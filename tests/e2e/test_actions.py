"""Golden cases of what operators do through the API: move, reprioritise, evict, drain, stop (issue 6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.client import ApiError
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, PRIORITIES, TOPOLOGY, TRAIN_JOB, Product, job, queue, train_job, wait_for
from tests.e2e.watching import pods_of, pods_of_job

pytestmark = pytest.mark.cluster

QUEUE, PRIORITY = "queue-manager.io/queue", "queue-manager.io/priority-class"


@pytest.fixture
def api(store: Store) -> Iterator[TestClient]:
    """The REST API over the product's database."""
    app = create_app(store, registry=CollectorRegistry(), patience=10.0)
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        yield client


def ask(api: TestClient, namespace: str, name: str, action: str, reason: str = "told so", **body: Any) -> Any:
    return api.post(f"/api/v1/workloads/{namespace}/{name}/{action}", json={"reason": reason, **body})


def label(product: Product, kind: str, namespace: str, name: str, key: str = QUEUE) -> str:
    return str((product.client.get(kind, name, namespace)["metadata"].get("labels") or {}).get(key, ""))


def sound(product: Product) -> None:
    """What `db check` proves."""
    assert product.store.check(datetime.now(UTC)) == []


def test_running_jobs_move_to_another_queue_and_run_on_in_the_same_pods(
    product_of_each_trainer: Product, api: TestClient
) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(1, 1, 3))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 24), queue("other", 24), queue("small", 4))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("train", "team", nodes=2), namespace)
    product.client.create(job("batch", "team", gpus=8), namespace)
    for kind, name, selector, gpus in (
        (TRAIN_JOB, "train", pods_of("train"), 16),
        (JOB, "batch", pods_of_job("batch"), 8),
    ):
        product.wait_state(namespace, name, State.RUNNING)
        pods = product.cluster.wait_pods(namespace, gpus // 8, selector=selector)
        charged = product.charged("other")

        # --- refused where it does not fit, and nothing changes
        refused = ask(api, namespace, name, "move", queue="small")
        assert refused.status_code == 409, refused.text
        assert f"{gpus} nvidia.com/gpu of flavor gpus, queue small has 4 left" in refused.json()["detail"]
        assert label(product, kind, namespace, name) == "team"

        # --- moved
        moved = ask(api, namespace, name, "move", "it is theirs", queue="other")
        assert moved.status_code == 200, moved.text
        assert (moved.json()["queue"], moved.json()["state"]) == ("other", "running")
        wait_for(lambda kind=kind, name=name: label(product, kind, namespace, name) == "other", "its label says so")
        assert product.charged("other") == charged + gpus
        [told] = product.wait_event(namespace, name, "Moved")
        assert told == "Moved from queue team to queue other by local: it is theirs"
        product.wait_event(namespace, name, "MoveRefused")
        row = product.row(namespace, name)
        assert row is not None
        assert (row.state, row.attempt) == (State.RUNNING, 1)
        now = product.cluster.pods(namespace, selector)
        assert {p["metadata"]["uid"] for p in now} == {p["metadata"]["uid"] for p in pods}
        history = api.get(f"/api/v1/workloads/{namespace}/{name}/history").json()
        assert [each["action"] for each in history["actions"]] == ["move", "refuse", "move"]
    assert product.charged("team") == 0
    sound(product)

    # --- its user can't move it by the label while it runs, we can
    with pytest.raises(ApiError, match="queue-manager move"):
        product.client.as_user("ann", ["system:masters"]).patch(
            TRAIN_JOB, "train", {"metadata": {"labels": {QUEUE: "team"}}}, namespace
        )


def test_a_waiting_job_moves_and_one_of_another_priority_passes_others(product: Product, api: TestClient) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 8), queue("other", 8))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("runs", "team", nodes=1), namespace)
    product.wait_state(namespace, "runs", State.RUNNING)
    for name in ("first", "second", "third"):
        product.client.create(train_job(name, "team", nodes=1), namespace)
        product.wait_state(namespace, name, State.WAITING)
    assert ask(api, namespace, "third", "move", queue="other").status_code == 200
    product.wait_state(namespace, "third", State.RUNNING)
    wait_for(lambda: label(product, TRAIN_JOB, namespace, "third") == "other", "its label says so")
    assert (product.charged("team"), product.charged("other")) == (8, 8)

    assert ask(api, namespace, "second", "reprioritise", priorityClass="high").status_code == 200
    wait_for(lambda: label(product, TRAIN_JOB, namespace, "second", PRIORITY) == "high", "its label says so")
    [told] = product.wait_event(namespace, "second", "Reprioritised")
    assert told.startswith("Priority class high (1000) in place of none (0) by local")
    product.cluster.wait_pods(namespace, 1, selector=pods_of("runs"))
    product.cluster.finish_pods(namespace, pods_of("runs"))
    product.wait_state(namespace, "second", State.RUNNING)
    product.wait_state(namespace, "first", State.WAITING)

    # --- a later label of its user moves what waits
    product.cluster.wait_pods(namespace, 1, selector=pods_of("third"))
    product.cluster.finish_pods(namespace, pods_of("third"))
    product.wait_state(namespace, "third", State.FINISHED)
    product.client.patch(TRAIN_JOB, "first", {"metadata": {"labels": {QUEUE: "other"}}}, namespace)
    product.wait_state(namespace, "first", State.RUNNING)
    sound(product)


def test_an_evicted_job_comes_back_after_its_pause(product: Product, api: TestClient) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("a", "team", nodes=1), namespace)
    product.wait_state(namespace, "a", State.RUNNING)
    product.cluster.wait_pods(namespace, 1)
    assert ask(api, namespace, "a", "evict", "node work", requeueAfter=6).status_code == 200
    row = product.wait_state(namespace, "a", State.WAITING, reason="Backoff")
    assert product.charged("team") == 0
    assert product.client.get(TRAIN_JOB, "a", namespace)["spec"]["suspend"] is True
    [told] = product.wait_event(namespace, "a", "Evicted")
    assert told.startswith("Stopped by local: node work. It queues again with its old place in time, not before ")
    until = row.not_before
    row = product.wait_state(namespace, "a", State.RUNNING)
    assert row.attempt == 2
    assert row.admission is not None
    assert until is not None
    assert row.admission.admitted_at >= until
    [first, _] = api.get(f"/api/v1/workloads/{namespace}/a/history").json()["admissions"]
    assert (first["cause"], first["message"]) == ("EvictedByOperator", told)
    sound(product)


@pytest.mark.parametrize(("path", "what"), [("flavors/gpus", "flavor gpus"), ("queues/team", "queue team")])
def test_what_is_drained_is_empty_until_that_is_undone_whatever_is_applied(
    product: Product, api: TestClient, path: str, what: str
) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("a", "team", nodes=2), namespace)
    product.wait_state(namespace, "a", State.RUNNING)
    product.cluster.wait_pods(namespace, 2)
    answer = api.post(f"/api/v1/{path}/stop", json={"policy": "HoldAndDrain", "reason": "new cables"})
    assert answer.status_code == 200, answer.text
    product.wait_state(namespace, "a", State.WAITING)
    [told] = product.wait_event(namespace, "a", "Evicted")
    assert told.startswith(f"Stopped because {what} is stopped (HoldAndDrain) by local since ")
    assert "new cables" in told
    assert (product.cluster.pods(namespace), product.charged("team")) == ([], 0)
    product.configure(FLAVOR, queue("team", 8))
    product.client.create(train_job("b", "team", nodes=1), namespace)
    row = product.wait_state(namespace, "b", State.WAITING)
    wait_for(lambda: "new cables" in (product.row(namespace, "b") or row).message, "b says why it waits")
    product.configure(queue("team", 16))
    assert api.post(f"/api/v1/{path}/stop", json={"policy": "None", "reason": "done"}).status_code == 200
    assert product.wait_state(namespace, "a", State.RUNNING).attempt == 2
    sound(product)
