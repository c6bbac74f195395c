"""Gangs that no single rack holds: each pod is let through to the node of its rank, whatever made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.client import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.fixtures import require_binaries
from tests.control_plane.nodes import gpu_fleet, node
from tests.e2e.product import FLAVOR, JOB, POD, RACK, TOPOLOGY, TRAIN_JOB, Product, job, queue, train_job
from tests.e2e.record import admissions
from tests.e2e.runtimes import job_set, replicated_job
from tests.e2e.watching import catch_up, nodes_of, pods_of, pods_of_job, racks_of

pytestmark = pytest.mark.cluster

GATE, SLOT = "queue-manager.io/topology", "queue-manager.io/slot"
INDEX, REPLICA = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
PREFERRED = {"queue-manager.io/preferred-topology": RACK}
ANYWHERE = {"queue-manager.io/unconstrained-topology": "true"}


def planned(product: Product, namespace: str, name: str) -> list[str]:
    """The host of each slot as it was admitted, in the order of ranks."""
    row = product.row(namespace, name)
    assert row is not None
    assert row.admission is not None
    [pod_set] = row.admission.admission.pod_sets
    assert pod_set.pinned
    assert pod_set.domains is not None
    return [domain.values[-1] for domain in pod_set.domains for _ in range(domain.count)]


def slot(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][SLOT])


def rank(pod: Object, size: int) -> int:
    labels = pod["metadata"]["labels"]
    return int(labels.get(REPLICA, "0")) * size + int(labels[INDEX])


def pinned_to(pod: Object) -> list[str]:
    """The nodes that each term of a pod's required affinity names."""
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [term["matchFields"] for term in terms["nodeSelectorTerms"]]
    return [name for [field] in fields for name in field["values"]]


def seated(pods: list[Object]) -> dict[int, str]:
    """Slot -> node, and that each pod was sent exactly there."""
    assert all(pinned_to(pod) == [pod["spec"]["nodeName"]] for pod in pods)
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)
    found = {slot(pod): pod["spec"]["nodeName"] for pod in pods}
    assert len(found) == len(pods)
    return found


def racks(product: Product, pods: list[Object], size: int) -> list[str]:
    """The rack of each pod, in the order of ranks."""
    ordered = sorted(pods, key=lambda pod: rank(pod, size))
    return [next(iter(racks_of(product, [pod]))) for pod in ordered]


def prepare(product: Product, hosts: int = 4, quota: int = 1000) -> str:
    """Two racks of so many nodes; the namespace for a test."""
    product.cluster.create_nodes(gpu_fleet(1, 2, hosts))
    product.configure(TOPOLOGY, FLAVOR, queue("team", quota))
    return str(product.cluster.new_namespace())


@pytest.fixture(params=["v2.0 (real)", "v2.1", "v2.3"])
def product_of_each_generation(
    request: pytest.FixtureRequest, store: Store, database_url: str, tmp_path: Path
) -> Iterator[Product]:
    """The product beside a Trainer of each generation of the TrainJob API."""
    if request.param == "v2.1":
        require_binaries()
        with (
            ControlPlane.start(tmp_path / "v2.1", trainer="stand-in", stand_in_generation="v2.1") as alone,
            Product(alone, store, database_url, tmp_path).running() as running,
        ):
            yield running
        return
    cluster = request.getfixturevalue("cluster" if "real" in request.param else "cluster_stand_in")
    with Product(cluster, store, database_url, tmp_path).running() as running:
        yield running


def test_a_train_job_over_two_racks_runs_in_the_order_of_ranks_and_again_after_it_was_suspended(
    product_of_each_generation: Product,
) -> None:
    product = product_of_each_generation
    namespace = prepare(product)
    product.client.create(train_job("gang", "team", nodes=6, annotations=PREFERRED), namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of("gang"))
    product.wait_state(namespace, "gang", State.RUNNING)
    assert seated(pods) == dict(enumerate(planned(product, namespace, "gang")))
    assert all(slot(pod) == rank(pod, 6) for pod in pods)
    assert racks(product, pods, 6) == ["b1-r1"] * 4 + ["b1-r2"] * 2
    assert not any(RACK in (pod["spec"].get("nodeSelector") or {}) for pod in pods)

    # Its user suspends it, and lets it run again: a second start with the same keys and gates.
    product.client.patch(TRAIN_JOB, "gang", {"spec": {"suspend": True}}, namespace)
    product.wait_state(namespace, "gang", State.HELD)
    product.cluster.wait_no_pods(namespace)
    product.client.patch(TRAIN_JOB, "gang", {"spec": {"suspend": False}}, namespace)
    again = product.cluster.wait_pods(namespace, 6, selector=pods_of("gang"))
    product.wait_state(namespace, "gang", State.RUNNING)
    assert seated(again) == dict(enumerate(planned(product, namespace, "gang")))
    assert {pod["metadata"]["uid"] for pod in pods}.isdisjoint(pod["metadata"]["uid"] for pod in again)


def test_a_start_that_fits_one_rack_after_one_that_did_not_has_no_gate_left(product_of_each_trainer: Product) -> None:
    """JobSet never takes a gate away from a child Job: it is made anew (workloads.md D4)."""
    product = product_of_each_trainer
    namespace = prepare(product, hosts=2)
    product.client.create(train_job("gang", "team", nodes=3, annotations=PREFERRED), namespace)
    pods = product.cluster.wait_pods(namespace, 3, selector=pods_of("gang"))
    assert len(racks_of(product, pods)) == 2
    product.wait_state(namespace, "gang", State.RUNNING)
    product.client.patch(TRAIN_JOB, "gang", {"spec": {"suspend": True}}, namespace)
    product.wait_state(namespace, "gang", State.HELD)
    product.cluster.wait_no_pods(namespace)
    labels = {"topology.queue-manager.io/block": "b1", RACK: "b1-r3"}
    product.cluster.create_nodes(
        node(f"b1-r3-n{n}", labels=labels, resources={"nvidia.com/gpu": "8"}) for n in range(1, 4)
    )
    catch_up(product)
    product.client.patch(TRAIN_JOB, "gang", {"spec": {"suspend": False}}, namespace)
    pods = product.cluster.wait_pods(namespace, 3, selector=pods_of("gang"), timeout=60)
    assert racks_of(product, pods) == {"b1-r3"}
    assert all(pod["spec"]["nodeSelector"][RACK] == "b1-r3" for pod in pods)
    assert not any(SLOT in pod["metadata"]["annotations"] for pod in pods)


def test_a_job_set_over_two_racks_ranks_its_pods_through_its_child_jobs(product: Product) -> None:
    namespace = prepare(product)
    workers = replicated_job("workers", 8, replicas=3, parallelism=2)
    gang = job_set("gang", "team", workers)
    gang["metadata"]["annotations"] = PREFERRED
    product.client.create(gang, namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of("gang"))
    product.wait_state(namespace, "gang", State.RUNNING)
    assert seated(pods) == dict(enumerate(planned(product, namespace, "gang")))
    assert all(slot(pod) == rank(pod, 2) for pod in pods)
    assert racks(product, pods, 2) == ["b1-r1"] * 4 + ["b1-r2"] * 2


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_batch_job_over_two_racks(product: Product, mode: str) -> None:
    namespace = prepare(product)
    gang = job("gang", "team", parallelism=6, gpus=8, annotations=PREFERRED, completionMode=mode)
    # Two alternatives of the user: each has to hold ours as well, and an affinity to pods stays.
    gang["spec"]["template"]["spec"]["affinity"] = AFFINITY
    product.client.create(gang, namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of_job("gang"))
    product.wait_state(namespace, "gang", State.RUNNING)
    assert {slot(pod): pod["spec"]["nodeName"] for pod in pods} == dict(enumerate(planned(product, namespace, "gang")))
    assert all(set(pinned_to(pod)) == {pod["spec"]["nodeName"]} and len(pinned_to(pod)) == 2 for pod in pods)
    assert all(pod["spec"]["affinity"]["podAffinity"] == AFFINITY["podAffinity"] for pod in pods)
    if mode == "Indexed":
        assert all(slot(pod) == rank(pod, 6) for pod in pods)


AFFINITY: Mapping[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]},
                {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "Exists"}]},
            ]
        }
    },
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": RACK, "labelSelector": {"matchLabels": {"a": "b"}}}}
        ]
    },
}


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_pod_that_another_actor_deletes_comes_back_to_its_own_slot(product: Product, mode: str) -> None:
    namespace = prepare(product)
    gang = job("gang", "team", parallelism=6, gpus=8, annotations=PREFERRED, completionMode=mode, backoffLimit=3)
    product.client.create(gang, namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of_job("gang"))
    row = product.wait_state(namespace, "gang", State.RUNNING)
    before = seated(pods)
    victim = next(pod for pod in pods if slot(pod) == 4)
    product.client.delete(POD, victim["metadata"]["name"], namespace)

    def came_back() -> bool:
        found = [p for p in product.cluster.pods(namespace, pods_of_job("gang")) if p["spec"].get("nodeName")]
        alive = [p for p in found if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]]
        uids = {pod["metadata"]["uid"] for pod in alive}
        return len(alive) == 6 and victim["metadata"]["uid"] not in uids and seated(alive) == before

    product.client.wait(came_back, "six pods run again, each in its slot", timeout=60)
    assert product.row(namespace, "gang").attempt == row.attempt  # type: ignore[union-attr]
    assert admissions(product, namespace, "gang") == 1
    assert product.charged("team") == 48
    assert product.store.check(datetime.now(UTC)) == []


def test_more_pods_than_were_admitted_stay_behind_the_gate_and_their_user_is_told(product: Product) -> None:
    namespace = prepare(product)
    product.client.create(job("gang", "team", parallelism=3, completions=9, gpus=8, annotations=ANYWHERE), namespace)
    product.cluster.wait_pods(namespace, 3, selector=pods_of_job("gang"))
    product.wait_state(namespace, "gang", State.RUNNING)
    product.client.patch(JOB, "gang", {"spec": {"parallelism": 4}}, namespace)

    def told() -> list[Object]:
        found = product.client.list("v1/Event", namespace)
        return [e for e in found if e["involvedObject"]["kind"] == "Pod" and e["reason"] == "NoPlace"]

    product.client.wait(told, "an event on the pod")
    assert "is admitted with 3 pods of main" in told()[0]["message"]
    pods = product.cluster.pods(namespace, pods_of_job("gang"))
    assert len(nodes_of(pod for pod in pods if pod["spec"].get("nodeName"))) == 3
    [left] = [pod for pod in pods if not pod["spec"].get("nodeName")]
    assert left["metadata"]["name"] == told()[0]["involvedObject"]["name"]
    assert left["spec"]["schedulingGates"] == [{"name": GATE}]


def test_suspending_and_resuming_uses_up_no_restart_and_no_backoff(product: Product) -> None:
    namespace = prepare(product, hosts=2)
    workers = replicated_job("workers", 8, replicas=2, parallelism=1)
    gang = job_set("gang", "team", workers, failurePolicy={"maxRestarts": 0})
    gang["metadata"]["annotations"] = ANYWHERE
    product.client.create(gang, namespace)
    once = job("once", "team", parallelism=2, gpus=8, annotations=ANYWHERE, backoffLimit=0)
    product.client.create(once, namespace)
    names = {"gang": "jobset.x-k8s.io/v1alpha2/JobSet", "once": JOB}
    for _ in range(3):
        product.cluster.wait_pods(namespace, 4, timeout=60)
        for name, kind in names.items():
            product.wait_state(namespace, name, State.RUNNING)
            product.client.patch(kind, name, {"spec": {"suspend": True}}, namespace)
        for name in names:
            product.wait_state(namespace, name, State.HELD)
        product.cluster.wait_no_pods(namespace)
        for name, kind in names.items():
            product.client.patch(kind, name, {"spec": {"suspend": False}}, namespace)
    pods = product.cluster.wait_pods(namespace, 4, timeout=60)
    assert product.client.get(names["gang"], "gang", namespace)["status"].get("restarts", 0) == 0
    assert product.client.get(JOB, "once", namespace)["status"].get("failed", 0) == 0
    assert all(pinned_to(pod) == [pod["spec"]["nodeName"]] for pod in pods)
