"""Golden case 10: bad input gets a clear message where its author looks, changes nothing, and stops nobody else."""

from __future__ import annotations

import pytest
import yaml

from api.problems import ProblemError
from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import (
    FLAVOR,
    JOB,
    JOB_SET,
    PRIORITIES,
    RUNTIME,
    TOPOLOGY,
    TRAIN_JOB,
    Object,
    Product,
    job,
    queue,
    train_job,
    wait_for,
)
from tests.e2e.record import annotated, has_snapshots, peak_charge, told
from tests.e2e.runtimes import of, replicated_job, runtime

pytestmark = pytest.mark.cluster


def own_runtime() -> Object:
    """A runtime that can be deleted."""
    return runtime("own", replicated_job("node", 8, ancestor="trainer"))


def delete_runtime(product: Product) -> None:
    """Deletes it for good: Trainer keeps a runtime that is used, until somebody takes its finalizer away."""
    product.client.delete(RUNTIME, "own")
    if product.client.find(RUNTIME, "own") is not None:
        product.client.patch(RUNTIME, "own", {"metadata": {"finalizers": None}})
    product.client.wait_gone(RUNTIME, "own")


def a_job_still_runs(product: Product, namespace: str, name: str) -> None:
    """The rest of the system goes on: another job of the same queue is admitted, runs and ends."""
    product.client.create(job(name, "team", gpus=1), namespace)
    selector = f"batch.kubernetes.io/job-name={name}"
    assert product.cluster.wait_pods(namespace, 1, selector=selector)[0]["spec"]["nodeName"]
    product.cluster.finish_pods(namespace, selector)
    product.wait_state(namespace, name, State.FINISHED)


def test_a_runtime_deleted_while_its_job_waits(product_of_each_trainer: Product) -> None:
    product, cluster = product_of_each_trainer, product_of_each_trainer.cluster
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    product.client.create(own_runtime())
    namespace = cluster.new_namespace()
    product.client.create(train_job("orphan", "team", nodes=2, runtime="own"), namespace)
    product.wait_state(namespace, "orphan", State.WAITING, reason="ExceedsMaxQuota")
    annotated(product, TRAIN_JOB, namespace, "orphan", "waiting", "8 nvidia.com/gpu short")

    delete_runtime(product)
    if has_snapshots(product):
        # It waits on as what it was, and can't be started: Trainer refuses every update without the runtime.
        product.configure(queue("team", 16))
        told(product, namespace, "orphan", "StartRefused", "must be created before the TrainJob")
        row = product.wait_state(namespace, "orphan", State.WAITING)
        assert row.not_before is not None
    else:
        row = product.wait_state(namespace, "orphan", State.HELD, reason="RuntimeNotFound")
        told(product, namespace, "orphan", "Held", "spec.runtimeRef.name: there is no ClusterTrainingRuntime 'own'")
        assert product.explanation(namespace, "orphan")["message"] == row.message
        product.configure(queue("team", 16))
    assert (product.charged("team"), cluster.pods(namespace)) == (0, [])
    a_job_still_runs(product, namespace, "other")
    assert (product.charged("team"), cluster.pods(namespace, of("orphan"))) == (0, [])

    product.client.create(own_runtime())
    if has_snapshots(product):
        # Its pause of a minute is not waited for.
        product.wait_state(namespace, "orphan", State.WAITING, reason="Backoff")
    else:
        cluster.wait_pods(namespace, 2, selector=of("orphan"))
        assert product.charged("team") == 16
        annotated(product, TRAIN_JOB, namespace, "orphan", "running", "")


def test_a_queue_that_is_not_there(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    product.client.create(job("lost", "taem", gpus=1), namespace)
    row = product.wait_state(namespace, "lost", State.WAITING, reason="UnknownQueue")
    assert 'there is no local queue "taem"' in row.message
    told(
        product, namespace, "lost", "Held", 'metadata.labels["queue-manager.io/queue"]: there is no local queue "taem"'
    )
    annotated(product, JOB, namespace, "lost", "waiting", 'there is no local queue "taem"')
    assert product.explanation(namespace, "lost")["blockers"][0]["type"] == "UnknownQueue"
    assert product.client.get(JOB, "lost", namespace)["spec"]["suspend"] is True
    a_job_still_runs(product, namespace, "other")

    product.configure(queue("taem", 1))
    cluster.wait_pods(namespace, 1, selector="batch.kubernetes.io/job-name=lost")
    assert product.charged("taem") == 1


def test_a_negative_quota_in_a_file_changes_nothing_of_that_file(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1))
    product.client.create(job("waits", "team", gpus=4), namespace)
    product.wait_state(namespace, "waits", State.WAITING, reason="ExceedsMaxQuota")
    before = product.store.load_configuration()

    file = yaml.safe_dump_all([queue("team", 8), queue("other", -4)])
    with pytest.raises(ProblemError) as refused:
        product.configure(file)
    (error,) = refused.value.errors
    assert (error["kind"], error["name"], error["file"]) == ("Queue", "other", "test.yaml")
    assert error["field"] == "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert error["line"] > 0
    assert "-4" in error["message"] or "negative" in error["message"]
    assert product.store.load_configuration() == before

    a_job_still_runs(product, namespace, "other")
    assert product.row(namespace, "waits").state is State.WAITING  # type: ignore[union-attr]
    product.configure(queue("team", 4))
    cluster.wait_pods(namespace, 1, selector="batch.kubernetes.io/job-name=waits")


def test_resources_that_no_flavor_covers(product: Product) -> None:
    cluster, namespace = product.cluster, product.cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 8))
    strange = job("strange", "team", gpus=1)
    strange["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["example.com/npu"] = "1"
    product.client.create(strange, namespace)
    row = product.wait_state(namespace, "strange", State.WAITING, reason="NoMatchingFlavor")
    assert "example.com/npu" in row.message
    annotated(product, JOB, namespace, "strange", "waiting", "example.com/npu")
    assert product.explanation(namespace, "strange")["blockers"][0]["resource"] == "example.com/npu"
    assert product.charged("team") == 0
    a_job_still_runs(product, namespace, "other")
    assert cluster.pods(namespace, "batch.kubernetes.io/job-name=strange") == []


def test_a_running_job_that_trainer_lets_nobody_suspend(product_of_each_trainer: Product) -> None:
    """Its runtime is gone, so Trainer refuses the write that suspends it, and its JobSet is suspended instead. Where
    Trainer would resume that at once (it has a snapshot of the runtime), the person who can help is told how."""
    product, cluster = product_of_each_trainer, product_of_each_trainer.cluster
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    preemption = {"withinClusterQueue": "LowerPriority"}
    product.configure(TOPOLOGY, FLAVOR, *PRIORITIES, queue("team", 16, preemption=preemption))
    product.client.create(own_runtime())
    namespace = cluster.new_namespace()
    low = train_job("low", "team", nodes=2, runtime="own", labels={"queue-manager.io/priority-class": "low"})
    product.client.create(low, namespace)
    cluster.wait_pods(namespace, 2, selector=of("low"))
    delete_runtime(product)

    high = train_job("high", "team", nodes=2, labels={"queue-manager.io/priority-class": "high"})
    product.client.create(high, namespace)
    product.wait_state(namespace, "low", State.DRAINING, State.HELD)
    if has_snapshots(product):
        told(product, namespace, "low", "StopRefused", "bring the runtime back, or delete the TrainJob")
        assert product.charged("team") == 16
        assert product.row(namespace, "high").state is State.WAITING  # type: ignore[union-attr]
        product.client.create(own_runtime())
    else:
        told(product, namespace, "low", "StopRefused", "suspends the JobSet: Trainer refuses the TrainJob")
        assert product.client.get(TRAIN_JOB, "low", namespace)["spec"]["suspend"] is False
        product.client.wait_object(JOB_SET, "low", namespace, lambda job_set: job_set["spec"]["suspend"])
    cluster.wait_pods(namespace, 2, selector=of("high"), timeout=60)
    assert (cluster.pods(namespace, of("low")), product.charged("team")) == ([], 16)
    assert peak_charge(product, "team") == 16

    if not has_snapshots(product):
        # With its runtime it can be suspended as usual, and runs again when there is room.
        product.wait_state(namespace, "low", State.HELD, reason="RuntimeNotFound")
        product.client.create(own_runtime())
    wait_for(lambda: product.client.get(TRAIN_JOB, "low", namespace)["spec"]["suspend"], "low is suspended")
    cluster.finish_pods(namespace, of("high"))
    cluster.wait_pods(namespace, 2, selector=of("low"))
    assert peak_charge(product, "team") == 16
