"""Golden cases of a workload's life after its admission: readiness, run time, a stopped queue, checks (issue 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.kwok import NEVER_READY
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import (
    FLAVOR,
    JOB,
    TOPOLOGY,
    TRAIN_JOB,
    Object,
    Product,
    config,
    job,
    queue,
    train_job,
    wait_for,
)
from tests.e2e.record import recorded
from tests.e2e.runtimes import replicated_job, runtime
from tests.e2e.watching import pods_of, seen_ready

pytestmark = pytest.mark.cluster


@pytest.fixture
def api(store: Store) -> Iterator[TestClient]:
    """The REST API over the product's database, as admins and checks use it."""
    app = create_app(store, registry=CollectorRegistry(), patience=5.0)
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        yield client


def readiness(timeout: str, limit: int) -> Object:
    strategy = {"backoffBaseSeconds": 5, "backoffMaxSeconds": 60, "backoffLimitCount": limit}
    return config("Settings", "default", {"waitForPodsReady": {"timeout": timeout, "requeuingStrategy": strategy}})


def never_ready() -> Object:
    """A runtime whose pods are bound and never start."""
    node = replicated_job("node", 8, ancestor="trainer")
    node["template"]["spec"]["template"]["metadata"] = {"annotations": {NEVER_READY: "true"}}
    return runtime("never-ready", node)


def url(namespace: str, name: str, rest: str = "") -> str:
    return f"/api/v1/workloads/{namespace}/{name}{rest}"


def suspended(product: Product, namespace: str, name: str) -> bool:
    return bool(product.client.get(TRAIN_JOB, name, namespace)["spec"]["suspend"])


def _state_shown(product: Product, namespace: str, name: str) -> str:
    annotations = product.client.get(TRAIN_JOB, name, namespace)["metadata"].get("annotations") or {}
    return str(annotations.get("queue-manager.io/state"))


def test_a_gang_that_never_gets_ready_goes_comes_back_and_is_deactivated_until_an_admin_releases_it(
    product_of_each_trainer: Product, api: TestClient
) -> None:
    product = product_of_each_trainer
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.client.create(never_ready())
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16), readiness("3s", 1))
    namespace = product.cluster.new_namespace()
    with recorded(product, namespace) as record:
        product.client.create(train_job("stuck", "team", nodes=2, runtime="never-ready"), namespace)
        # --- evicted, backs off, tried again
        row = product.wait_state(namespace, "stuck", State.WAITING, reason="Backoff")
        assert {event["object"]["status"]["phase"] for event in record.events()} == {"Pending"}
    assert (row.requeues, product.charged("team")) == (1, 0)
    assert product.cluster.pods(namespace) == []
    [evicted] = product.wait_event(namespace, "stuck", "Evicted")
    assert "not all its pods were ready within 3s" in evicted
    shown = api.get(url(namespace, "stuck")).json()
    assert shown["requeue"]["count"] == 1
    assert product.wait_state(namespace, "stuck", State.RUNNING).attempt == 2

    # --- once too often
    row = product.wait_state(namespace, "stuck", State.DEACTIVATED)
    assert row.reason == "RequeuingLimitExceeded"
    assert suspended(product, namespace, "stuck")
    assert product.cluster.pods(namespace) == []
    assert product.charged("team") == 0
    history = api.get(url(namespace, "stuck", "/history")).json()
    assert [(a["cause"], a["underlyingCause"]) for a in history["admissions"]] == [
        ("PodsReadyTimeout", "WaitForStart"),
        ("Deactivated", "RequeuingLimitExceeded"),
    ]
    wait_for(lambda: _state_shown(product, namespace, "stuck") == "deactivated", "its state is shown on the job")
    metrics = product.metrics()
    assert 'queue_manager_evictions_total{cause="WaitForStart",reason="PodsReadyTimeout"} 1.0' in metrics
    assert 'queue_manager_deactivations_total{cause="RequeuingLimitExceeded"} 1.0' in metrics

    # --- released by an admin
    answer = api.post(url(namespace, "stuck", "/release"), json={"reason": "image is fixed"})
    assert answer.status_code == 200, answer.text
    assert product.wait_state(namespace, "stuck", State.RUNNING).attempt == 3
    [line] = product.store.audit_entries(object=f"workload/{namespace}/stuck")
    assert (line.who, line.action, line.reason) == ("local", "release", "image is fixed")
    product.wait_event(namespace, "stuck", "Released")


def test_readiness_is_seen_and_its_loss_ends_the_admission(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    settings = readiness("60s", 5)
    settings["spec"]["waitForPodsReady"]["recoveryTimeout"] = "2s"
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16), settings)
    namespace = product.cluster.new_namespace()
    for kind, obj in ((TRAIN_JOB, train_job("train", "team", nodes=1)), (JOB, job("batch", "team", gpus=8))):
        name = obj["metadata"]["name"]
        product.client.create(obj, namespace)
        wait_for(lambda name=name: seen_ready(product, namespace, name), f"{kind} is ready")
    # The pods of the Job are unready from now on, though they run.
    [pod] = [p for p in product.cluster.pods(namespace) if p["metadata"]["name"].startswith("batch-")]
    conditions = [{**c, "status": "False"} if c["type"] == "Ready" else c for c in pod["status"]["conditions"]]
    product.client.patch(
        "v1/Pod", pod["metadata"]["name"], {"status": {"conditions": conditions}}, namespace, subresource="status"
    )
    [evicted] = product.wait_event(namespace, "batch", "Evicted")
    assert "its pods were ready and then some were not for 2s" in evicted
    row = product.row(namespace, "train")
    assert row is not None
    assert row.state is State.RUNNING


def test_run_time_is_used_up_over_a_suspension_and_a_resumption(product: Product, api: TestClient) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    namespace = product.cluster.new_namespace()
    limit = {"queue-manager.io/max-run-time": "15s"}
    product.client.create(train_job("long", "team", nodes=2, annotations=limit), namespace)
    product.wait_state(namespace, "long", State.RUNNING)
    product.cluster.wait_pods(namespace, 2)
    product.client.patch(TRAIN_JOB, "long", {"spec": {"suspend": True}}, namespace)
    row = product.wait_state(namespace, "long", State.HELD)
    used = row.past_run_time
    assert 0 < used < 15_000_000
    assert api.get(url(namespace, "long")).json()["runTime"] == {"limit": 15.0, "used": used / 1e6, "until": None}
    product.client.patch(TRAIN_JOB, "long", {"spec": {"suspend": False}}, namespace)
    assert product.wait_state(namespace, "long", State.RUNNING).attempt == 2
    row = product.wait_state(namespace, "long", State.DEACTIVATED)
    assert row.reason == "MaximumExecutionTimeExceeded"
    assert 15_000_000 <= row.past_run_time < 20_000_000
    assert suspended(product, namespace, "long")
    assert product.charged("team") == 0
    [told] = product.wait_event(namespace, "long", "Deactivated")
    assert "its max-run-time is 15s" in told


def test_a_bad_run_time_is_refused_by_name(product: Product) -> None:
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    namespace = product.cluster.new_namespace()
    bad = {"queue-manager.io/max-run-time": "an hour"}
    with pytest.raises(Exception, match=r"max-run-time\]: must be a duration such as 90m or 36h"):
        product.client.create(train_job("bad", "team", nodes=1, annotations=bad), namespace)


def test_a_queue_that_is_stopped_and_drained_is_empty_until_it_goes_on(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("a", "team", nodes=2), namespace)
    product.wait_state(namespace, "a", State.RUNNING)
    product.cluster.wait_pods(namespace, 2)
    product.configure(queue("team", 16, stopPolicy="HoldAndDrain"))
    row = product.wait_state(namespace, "a", State.WAITING, reason="Inactive")
    assert "stopped" in row.message
    assert product.cluster.pods(namespace) == []
    assert product.charged("team") == 0
    [admission] = product.store.history(row.uid).admissions
    assert admission.cause == "ClusterQueueStopped"
    product.wait_event(namespace, "a", "Evicted")
    product.client.create(train_job("b", "team", nodes=1), namespace)
    product.wait_state(namespace, "b", State.WAITING, reason="Inactive")
    product.configure(queue("team", 16))
    assert product.wait_state(namespace, "a", State.RUNNING).attempt == 2
    product.cluster.wait_pods(namespace, 2, selector=pods_of("a"))


def test_a_local_queue_that_is_drained_stops_its_own_jobs_alone(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16))
    namespace = product.cluster.new_namespace()
    for name in ("stopped", "open"):
        product.configure(config("LocalQueue", name, {"queue": "team"}, namespace))
        product.client.create(train_job(f"in-{name}", name, nodes=1), namespace)
        product.wait_state(namespace, f"in-{name}", State.RUNNING)
    product.configure(config("LocalQueue", "stopped", {"queue": "team", "stopPolicy": "HoldAndDrain"}, namespace))
    row = product.wait_state(namespace, "in-stopped", State.WAITING, reason="Inactive")
    assert [a.cause for a in product.store.history(row.uid).admissions] == ["LocalQueueStopped"]
    assert product.charged("team") == 8
    other = product.row(namespace, "in-open")
    assert other is not None
    assert (other.state, other.attempt) == (State.RUNNING, 1)
    product.configure(config("LocalQueue", "stopped", {"queue": "team"}, namespace))
    assert product.wait_state(namespace, "in-stopped", State.RUNNING).attempt == 2


def test_a_check_answers_ready_retry_and_rejected_by_put(product: Product, api: TestClient) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 16, admissionChecks=[{"name": "dataset-cached"}]))
    namespace = product.cluster.new_namespace()
    product.client.create(train_job("a", "team", nodes=2), namespace)
    product.wait_state(namespace, "a", State.RESERVED)
    assert product.charged("team") == 16
    assert suspended(product, namespace, "a")
    explanation = api.get(url(namespace, "a", "/explanation")).json()
    assert explanation["message"] == "check dataset-cached is Pending: nothing has answered yet"
    assert api.put(url(namespace, "a", "/checks/dataset"), json={"state": "Ready"}).status_code == 404

    def answer(**body: Any) -> Any:
        found = api.put(url(namespace, "a", "/checks/dataset-cached"), json=body)
        assert found.status_code == 200, found.text
        return found.json()

    # --- Retry: the quota is free at once, and it is reserved again later
    assert answer(state="Retry", message="cache is full", requeueAfter=8)["state"] == "Retry"
    product.client.create(train_job("other", "team", nodes=1), namespace)
    row = product.wait_state(namespace, "a", State.WAITING, reason="Backoff")
    assert "cache is full" in row.message
    product.wait_state(namespace, "other", State.RESERVED)
    product.client.delete(TRAIN_JOB, "other", namespace)
    assert product.wait_state(namespace, "a", State.RESERVED).attempt == 2
    # --- Rejected: out of the queue until an admin releases it
    answer(state="Rejected", message="no such dataset")
    row = product.wait_state(namespace, "a", State.DEACTIVATED)
    assert (row.reason, product.charged("team")) == ("AdmissionCheck", 0)
    assert api.post(url(namespace, "a", "/release"), json={"reason": "dataset is there now"}).status_code == 200
    assert product.wait_state(namespace, "a", State.RESERVED).attempt == 3
    # --- Ready: it starts; the same answer again changes nothing
    first = answer(state="Ready", message="3 TB cached")
    product.wait_state(namespace, "a", State.RUNNING)
    assert answer(state="Ready", message="3 TB cached") == first
    product.cluster.wait_pods(namespace, 2)
    product.cluster.finish_pods(namespace, pods_of("a"))
    product.wait_state(namespace, "a", State.FINISHED)
    assert [
        a["underlyingCause"] or a["cause"] for a in api.get(url(namespace, "a", "/history")).json()["admissions"]
    ] == [
        "AdmissionCheck",
        "AdmissionCheck",
        "Succeeded",
    ]
