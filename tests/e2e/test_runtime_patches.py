"""Golden case 12: the newer Trainer's `runtimePatches`, where every manager has its entry (played by the stand-in)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import VALIDATING_WEBHOOK, ApiError
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, PRIORITIES, RACK, TOPOLOGY, TRAIN_JOB, Object, Product, queue, train_job, wait_for
from tests.e2e.record import admissions, recorded, told
from tests.e2e.runtimes import of

pytestmark = pytest.mark.cluster

OURS = "queue-manager.io/manager"
TEAM = "example.com/team"
TRAINERS_WEBHOOK = "validator.trainer.kubeflow.org"


def other_manager() -> Object:
    """An entry of somebody else, with what our own entries have and what they don't."""
    template = {"metadata": {"labels": {TEAM: "vision"}}, "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    return {
        "manager": "policy.example.com/defaults",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def entry(train_job: Object, manager: str) -> Object | None:
    """A manager's entry in a TrainJob."""
    entries = train_job["spec"].get("runtimePatches", [])
    found: list[Object] = [one for one in entries if one["manager"] == manager]
    assert len(found) < 2, "a manager has one entry"
    return found[0] if found else None


def node_selector(train_job: Object) -> Object:
    """What our entry says of the nodes; {} while it is empty."""
    found = (entry(train_job, OURS) or {}).get("trainingRuntimeSpec") or {}
    if not found:
        return {}
    (job,) = found["template"]["spec"]["replicatedJobs"]
    selector: Object = job["template"]["spec"]["template"]["spec"]["nodeSelector"]
    return selector


def without_ours(train_job: Object) -> list[Object]:
    """The list as somebody leaves it who takes us for a leftover."""
    return [one for one in train_job["spec"]["runtimePatches"] if one["manager"] != OURS]


@contextmanager
def nobody_validates(product: Product) -> Iterator[None]:
    """Trainer's webhook is away for a moment: it lets nobody change the patches of what runs."""
    webhook = product.client.get(VALIDATING_WEBHOOK, TRAINERS_WEBHOOK)
    product.client.delete(VALIDATING_WEBHOOK, TRAINERS_WEBHOOK)
    try:
        yield
    finally:
        del webhook["metadata"]["resourceVersion"], webhook["metadata"]["uid"]
        product.client.create(webhook)


def take_away(product: Product, namespace: str, name: str) -> None:
    """Removes our entry from a TrainJob that was started."""

    def removed() -> bool:
        entries = without_ours(product.client.get(TRAIN_JOB, name, namespace))
        try:
            patched = product.client.patch(TRAIN_JOB, name, {"spec": {"runtimePatches": entries}}, namespace)
        except ApiError as error:
            # The API server goes on asking a webhook for a moment after it is deleted.
            if error.status != 403:
                raise
            return False
        return entry(patched, OURS) is None

    with nobody_validates(product):
        wait_for(removed, "our entry is removed")


@pytest.fixture
def patched(request: pytest.FixtureRequest) -> Product:
    """Two racks of two nodes, and quota for one job. By the real Trainer where a newer one is given from outside."""
    product: Product = request.getfixturevalue("product" if "QM_TRAINER_BINARY" in os.environ else "product_stand_in")
    product.cluster.create_nodes(gpu_fleet(1, 2, 2))
    preemption = {"withinClusterQueue": "LowerPriority"}
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 16, preemption=preemption))
    return product


def low_priority() -> Object:
    """A TrainJob of two nodes in one rack, with another manager's entry."""
    labels = {"queue-manager.io/priority-class": "low"}
    in_one_rack = {"queue-manager.io/required-topology": RACK}
    patches = [other_manager()]
    return train_job("train", "team", nodes=2, labels=labels, annotations=in_one_rack, runtimePatches=patches)


def test_one_write_starts_it_in_its_place_and_the_others_entry_is_left_as_it_was(patched: Product) -> None:
    product, cluster, namespace = patched, patched.cluster, patched.cluster.new_namespace()
    with recorded(product, namespace, TRAIN_JOB) as record:
        created = product.client.create(low_priority(), namespace)
        pods = cluster.wait_pods(namespace, 2)
        racks = {pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods}
        assert len(racks) == 1
        assert {pod["metadata"]["labels"][TEAM] for pod in pods} == {"vision"}

        states = record.states("train")
        assert (states[0]["spec"]["suspend"], node_selector(states[0])) == (True, {})
        assert entry(states[0], OURS) is not None
        placed = [state for state in states if node_selector(state)]
        started = [state for state in states if not state["spec"]["suspend"]]
        assert placed[0] is started[0]
        assert {node_selector(started[0])[RACK]} == racks

        high = train_job("high", "team", nodes=2, labels={"queue-manager.io/priority-class": "high"})
        product.client.create(high, namespace)
        cluster.wait_pods(namespace, 2, selector=of("high"))
        wait_for(lambda: not node_selector(product.client.get(TRAIN_JOB, "train", namespace)), "our entry is emptied")
        stopped = product.client.get(TRAIN_JOB, "train", namespace)
        assert stopped["spec"]["suspend"] is True
        assert entry(stopped, OURS) is not None
        manager = other_manager()["manager"]
        as_created = json.dumps(entry(created, manager))
        assert "time" in as_created
        assert {json.dumps(entry(state, manager)) for state in record.states("train")} == {as_created}


def test_an_entry_removed_before_any_pod_runs_is_written_again(patched: Product) -> None:
    product, cluster, namespace = patched, patched.cluster, patched.cluster.new_namespace()
    # No pod can come up: the quota of the namespace forbids it.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    product.client.create(quota, namespace)
    product.client.wait_object("v1/ResourceQuota", "none", namespace, lambda found: found.get("status", {}).get("hard"))
    product.client.create(low_priority(), namespace)
    product.wait_state(namespace, "train", State.RUNNING)
    before = node_selector(product.client.get(TRAIN_JOB, "train", namespace))
    assert before

    take_away(product, namespace, "train")
    told(product, namespace, "train", "PlacementLost", "written again")
    wait_for(lambda: node_selector(product.client.get(TRAIN_JOB, "train", namespace)) == before, "it is there again")
    product.client.delete("v1/ResourceQuota", "none", namespace)
    pods = cluster.wait_pods(namespace, 2, timeout=60)
    assert {pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods} == {before[RACK]}
    row = product.wait_state(namespace, "train", State.RUNNING)
    assert (row.attempt, admissions(product, namespace, "train"), product.charged("team")) == (1, 1, 16)


def test_an_entry_removed_while_pods_run_is_told(patched: Product) -> None:
    product, cluster, namespace = patched, patched.cluster, patched.cluster.new_namespace()
    product.client.create(low_priority(), namespace)
    pods = {pod["metadata"]["uid"] for pod in cluster.wait_pods(namespace, 2)}
    product.wait_state(namespace, "train", State.RUNNING)

    take_away(product, namespace, "train")
    told(product, namespace, "train", "PlacementLost", "spec.runtimePatches")
    # The annotation follows a minute after the one that said `running`; that is not waited for.
    assert "spec.runtimePatches" in product.wait_state(namespace, "train", State.RUNNING).message
    assert {pod["metadata"]["uid"] for pod in cluster.pods(namespace)} == pods
    assert product.charged("team") == 16

    # The next start writes it again.
    high = train_job("high", "team", nodes=2, labels={"queue-manager.io/priority-class": "high"})
    product.client.create(high, namespace)
    cluster.wait_pods(namespace, 2, selector=of("high"))
    product.wait_state(namespace, "train", State.WAITING)
    cluster.finish_pods(namespace, of("high"))
    again = cluster.wait_pods(namespace, 2, selector=of("train"))
    selector = node_selector(product.client.get(TRAIN_JOB, "train", namespace))
    assert {pod["spec"]["nodeName"].rpartition("-")[0] for pod in again} == {selector[RACK]}
