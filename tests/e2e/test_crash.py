"""Golden case 11: the controller dies (SIGKILL) between commit, write and confirmation, and is started again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.breaker import Breaker, Request, When, through_breaker
from tests.e2e.product import FLAVOR, PRIORITIES, RACK, TOPOLOGY, TRAIN_JOB, Product, queue, train_job, wait_for
from tests.e2e.watching import pods_of, racks_of

pytestmark = pytest.mark.cluster

ONE_RACK = {"queue-manager.io/required-topology": RACK}


@pytest.fixture
def breakable(
    cluster_of_each_trainer: ControlPlane, store: Store, database_url: str, tmp_path: Path
) -> Iterator[tuple[Product, Breaker]]:
    """The product; its controller reaches the API server through a breaker."""
    cluster = cluster_of_each_trainer
    product = Product(cluster, store, database_url, tmp_path)
    with through_breaker(product, tmp_path) as breaker:
        cluster.create_nodes(gpu_fleet(1, 2, 2))
        product.configure(TOPOLOGY, FLAVOR, *PRIORITIES)
        with product.running():
            yield product, breaker


def _suspends(name: str, value: bool) -> Callable[[Request], bool]:
    """Our write that sets `spec.suspend` of a TrainJob; it is the last one of a start."""

    def match(request: Request) -> bool:
        return _patches(request, name) and any(
            operation.get("path") == "/spec/suspend" and operation.get("value") is value
            for operation in json.loads(request.body)
        )

    return match


def _places(name: str) -> Callable[[Request], bool]:
    """Our first write of a start: it carries the placement."""
    return lambda request: _patches(request, name) and RACK.encode() in request.body


def _patches(request: Request, name: str) -> bool:
    return (
        request.method == "PATCH"
        and request.path.split("?")[0].endswith(f"/trainjobs/{name}")
        and request.headers["content-type"] == "application/json-patch+json"
    )


def _killed_at(product: Product, breaker: Breaker, match: Callable[[Request], bool], when: When) -> None:
    breaker.arm(match, when, product.controller.kill)


def _admissions(product: Product, uid: str) -> int:
    with product.store.engine.connect() as connection:
        query = text("SELECT count(*) FROM admissions WHERE workload_uid = :uid")
        return int(connection.execute(query, {"uid": uid}).scalar_one())


MOMENTS: tuple[tuple[str, When], ...] = (
    ("places", "before"),
    ("places", "after"),
    ("unsuspends", "before"),
    ("unsuspends", "after"),
)


def test_killed_around_the_writes_of_a_start_it_admits_once(breakable: tuple[Product, Breaker]) -> None:
    product, breaker = breakable
    product.configure(queue("team", 16))
    namespace = product.cluster.new_namespace()
    # Once more at each moment; with the API of one write "places" and "unsuspends" are the same request.
    for number, (what, when) in enumerate(MOMENTS):
        name = f"job-{number}"
        match = _places(name) if what == "places" else _suspends(name, False)
        _killed_at(product, breaker, match, when)
        product.client.create(train_job(name, "team", nodes=2, annotations=ONE_RACK), namespace)
        wait_for(breaker.struck.is_set, f"killed {when} it {what}")
        row = product.row(namespace, name)
        assert row is not None
        assert (row.state, row.attempt) == (State.STARTING, 1)
        assert product.charged("team") == 16
        if when == "before":
            assert product.client.get(TRAIN_JOB, name, namespace)["spec"]["suspend"] is True

        product.start_again()
        row = product.wait_state(namespace, name, State.RUNNING)
        assert row.attempt == 1
        assert _admissions(product, row.uid) == 1
        assert product.charged("team") == 16
        pods = product.cluster.wait_pods(namespace, 2, selector=pods_of(name))
        assert row.admission is not None
        assert racks_of(product, pods) == {row.admission.admission.pod_sets[0].selector[RACK]}

        product.cluster.finish_pods(namespace, pods_of(name))
        product.wait_state(namespace, name, State.FINISHED)
        assert product.charged("team") == 0


def test_killed_around_the_write_of_an_eviction_it_evicts_once(breakable: tuple[Product, Breaker]) -> None:
    product, breaker = breakable
    product.configure(queue("team", 16, preemption={"withinClusterQueue": "LowerPriority"}))
    moments: tuple[When, ...] = ("before", "after")
    for when in moments:
        namespace = product.cluster.new_namespace()
        low, high = ({"queue-manager.io/priority-class": name} for name in ("low", "high"))
        product.client.create(train_job("low", "team", nodes=2, labels=low), namespace)
        product.cluster.wait_pods(namespace, 2)
        product.wait_state(namespace, "low", State.RUNNING)

        _killed_at(product, breaker, _suspends("low", True), when)
        product.client.create(train_job("high", "team", nodes=2, labels=high), namespace)
        wait_for(breaker.struck.is_set, f"killed {when} the eviction")
        assert product.wait_state(namespace, "low", State.DRAINING)
        assert product.wait_state(namespace, "high", State.WAITING)
        assert product.charged("team") == 16

        product.start_again(lease_lapsed=when == "after")
        row = product.wait_state(namespace, "high", State.RUNNING)
        assert _admissions(product, row.uid) == 1
        product.cluster.wait_pods(namespace, 2, selector=pods_of("high"))
        row = product.wait_state(namespace, "low", State.WAITING)
        assert (row.attempt, _admissions(product, row.uid)) == (1, 1)
        assert product.charged("team") == 16
        for name in ("low", "high"):
            product.client.delete(TRAIN_JOB, name, namespace)
            product.wait_state(namespace, name, State.FINISHED)


def test_killed_around_the_write_of_a_label_row_and_job_say_the_same_in_the_end(
    breakable: tuple[Product, Breaker],
) -> None:
    product, breaker = breakable
    product.configure(queue("team", 16), queue("other", 16))
    namespace = product.cluster.new_namespace()
    key = "queue-manager.io/queue"
    product.client.create(train_job("runs", "team", nodes=2), namespace)
    product.wait_state(namespace, "runs", State.RUNNING)
    product.client.create(train_job("waits", "team", nodes=3), namespace)
    product.wait_state(namespace, "waits", State.WAITING)
    target = {"runs": "team", "waits": "team"}
    moments: tuple[When, ...] = ("before", "after")
    for when in moments:
        for name in ("runs", "waits"):
            target[name] = "other" if target[name] == "team" else "team"

            def relabels(request: Request, name: str = name) -> bool:
                wanted = request.method == "PATCH" and request.path.split("?")[0].endswith(f"/trainjobs/{name}")
                return wanted and b'"labels"' in request.body

            _killed_at(product, breaker, relabels, when)
            row = product.row(namespace, name)
            assert row is not None
            arguments = {"queue": target[name], "force": name == "waits"}
            product.store.instruct(
                row.uid, Wish.MOVE, arguments, who="eve", reason="x", source="test", now=datetime.now(UTC)
            )
            wait_for(breaker.struck.is_set, f"killed {when} the label of {name}")
            row = product.row(namespace, name)
            assert row is not None
            assert row.queue == target[name]
            product.start_again()
            wait_for(lambda name=name: not product.row(namespace, name).relabels, "its label is written")  # type: ignore[union-attr]
            labels = product.client.get(TRAIN_JOB, name, namespace)["metadata"]["labels"]
            row = product.row(namespace, name)
            assert row is not None
            assert labels[key] == row.queue == row.local_queue == target[name]
        assert product.charged(target["runs"]) == 16
        row = product.row(namespace, "runs")
        assert row is not None
        assert (row.state, row.attempt) == (State.RUNNING, 1)
        assert product.store.check(datetime.now(UTC)) == []
