"""Golden cases of whose turn it is: limits, ranks that evict nobody, borrowed quota given back, holds (issue 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Client
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, TOPOLOGY, Object, Product, config, job, queue, train_job, wait_for
from tests.e2e.watching import catch_up, pods_of_job

pytestmark = pytest.mark.cluster

LONG = 90.0
"""Seconds for what many jobs have to do on a busy machine."""


def limited(name: str, gpus: int, limits: Object) -> Object:
    made = queue(name, gpus)
    made["spec"]["limits"] = limits
    return made


def person(product: Product, namespace: str, name: str) -> Client:
    """Somebody who may create jobs in the namespace."""
    group = "rbac.authorization.k8s.io"
    binding: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{name}-edits"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    product.client.create(binding, namespace)
    return product.client.as_user(name)


def preempted(product: Product, namespace: str, *names: str) -> list[str]:
    """Which of these jobs were ever told that they were evicted."""
    return [n for n in names if {"Preempted", "Evicted"} & {reason for reason, _ in product.events(namespace, n)}]


def test_a_user_at_the_limit_waits_and_another_one_starts_past_it(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 1))
    product.configure(
        TOPOLOGY, FLAVOR, limited("team", 8, {"perUser": {"running": 1, "resources": {"nvidia.com/gpu": 4}}})
    )
    namespace = product.cluster.new_namespace()
    ann, bob = person(product, namespace, "ann"), person(product, namespace, "bob")
    ann.create(job("a1", "team", gpus=2), namespace)
    product.wait_state(namespace, "a1", State.RUNNING)
    ann.create(job("a2", "team", gpus=2), namespace)
    row = product.wait_state(namespace, "a2", State.WAITING, reason="LimitReached")
    assert row.message == "limit of user ann in queue team: 1 of at most 1 running, this would be 1 more"
    bob.create(job("b1", "team", gpus=2), namespace)
    product.wait_state(namespace, "b1", State.RUNNING)
    bob.create(job("b2", "team", gpus=5), namespace)
    product.wait_state(namespace, "b2", State.WAITING, reason="LimitReached")
    assert product.charged("team") == 4
    [blocker] = [b for b in product.explanation(namespace, "a2")["blockers"] if b["type"] == "Limit"]
    assert (blocker["requested"], blocker["available"], blocker["holders"]) == (1, 0, [f"{namespace}/a1"])

    product.cluster.wait_pods(namespace, 2)
    product.cluster.finish_pods(namespace, pods_of_job("a1"))
    product.wait_state(namespace, "a2", State.RUNNING)
    product.cluster.wait_pods(namespace, 1, selector=pods_of_job("a2"))
    product.cluster.finish_pods(namespace, pods_of_job("b1"))
    row = product.wait_state(namespace, "b2", State.WAITING)
    wait_for(lambda: "5 more" in product.row(namespace, "b2").message, "b2 waits for the GPUs of its user")  # type: ignore[union-attr]
    product.configure(limited("team", 8, {"perUser": {"resources": {"nvidia.com/gpu": 5}}}))
    product.wait_state(namespace, "b2", State.RUNNING)


def test_a_high_rank_that_preempts_nobody_starts_first_when_something_ends(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 1))
    polite = config("PriorityClass", "polite", {"value": 1000, "mayPreempt": False})
    product.configure(TOPOLOGY, FLAVOR, polite, queue("team", 8, preemption={"withinClusterQueue": "LowerPriority"}))
    namespace = product.cluster.new_namespace()
    for name in ("one", "two"):
        product.client.create(job(name, "team", gpus=4), namespace)
        product.wait_state(namespace, name, State.RUNNING)
    product.client.create(job("patient", "team", gpus=4), namespace)
    product.wait_state(namespace, "patient", State.WAITING, reason="WaitingForQuota")
    labels = {"queue-manager.io/priority-class": "polite"}
    product.client.create(job("first", "team", gpus=4, labels=labels), namespace)
    product.wait_state(namespace, "first", State.WAITING, reason="WaitingForQuota")
    catch_up(product)
    assert product.charged("team") == 8
    product.cluster.wait_pods(namespace, 2)

    product.cluster.finish_pods(namespace, pods_of_job("one"))
    product.wait_state(namespace, "first", State.RUNNING)
    assert product.wait_state(namespace, "two", State.RUNNING).attempt == 1
    assert product.wait_state(namespace, "patient", State.WAITING).attempt == 0
    assert preempted(product, namespace, "one", "two", "patient", "first") == []
    product.cluster.wait_pods(namespace, 1, selector=pods_of_job("first"))
    product.cluster.finish_pods(namespace, pods_of_job("two"))
    product.wait_state(namespace, "patient", State.RUNNING)


def test_a_queue_above_its_nominal_quota_is_worked_back_as_the_owner_returns(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 1, 2))
    product.configure(TOPOLOGY, FLAVOR, config("Cohort", "lab"))
    for name in ("elastic", "owner"):
        product.configure(queue(name, 8, cohort="lab", preemption={"reclaimWithinCohort": "Any"}))
    namespace = product.cluster.new_namespace()
    borrowers = [f"e{number}" for number in range(4)]
    for name in borrowers:
        product.client.create(job(name, "elastic", gpus=4), namespace)
        product.wait_state(namespace, name, State.RUNNING)
    assert (product.charged("elastic"), product.charged("owner")) == (16, 0)

    for number, left in enumerate((12, 8)):
        product.client.create(job(f"o{number}", "owner", gpus=4), namespace)
        product.wait_state(namespace, f"o{number}", State.RUNNING, timeout=LONG)
        assert (product.charged("elastic"), product.charged("owner")) == (left, 16 - left)
    for name in ("e2", "e3"):
        product.wait_event(namespace, name, "Preempted")
    assert sorted(preempted(product, namespace, *borrowers)) == ["e2", "e3"]

    # What is its own it keeps, whatever the owner still wants.
    product.client.create(job("o2", "owner", gpus=4), namespace)
    product.wait_state(namespace, "o2", State.WAITING, reason="WaitingForQuota")
    catch_up(product)
    assert (product.charged("elastic"), product.charged("owner")) == (8, 8)
    assert sorted(preempted(product, namespace, *borrowers)) == ["e2", "e3"]
    product.cluster.wait_pods(namespace, 1, selector=pods_of_job("e0"))
    product.cluster.finish_pods(namespace, pods_of_job("e0"))

    def back() -> bool:
        # Both are equally old where they were created within one second: that is all Kubernetes tells.
        return any((row := product.row(namespace, name)) and row.state is State.RUNNING for name in ("e2", "e3"))

    wait_for(back, "one of those that were sent away runs again", LONG)
    assert (product.charged("elastic"), product.charged("owner")) == (8, 8)


def test_a_gang_of_64_gpus_in_a_stream_of_small_jobs_starts_within_the_bound(product: Product) -> None:
    """The bound: the longest max-run-time of what runs as the hold begins."""
    product.cluster.create_nodes(gpu_fleet(1, 2, 4))
    product.configure(
        TOPOLOGY, FLAVOR, queue("team", 64), config("Settings", "default", {"starvation": {"after": "5s"}})
    )
    namespace = product.cluster.new_namespace()

    def small(name: str, longest: str) -> None:
        product.client.create(job(name, "team", annotations={"queue-manager.io/max-run-time": longest}), namespace)

    def end(*names: str) -> None:
        product.cluster.finish_pods(namespace, f"batch.kubernetes.io/job-name in ({','.join(names)})")

    stream = [f"s{number}" for number in range(64)]
    for name in stream:
        small(name, "300s")
    product.cluster.wait_pods(namespace, 64, timeout=LONG)
    product.client.create(train_job("gang", "team", nodes=8), namespace)
    product.wait_state(namespace, "gang", State.WAITING)

    def held() -> bool:
        return "is kept for it" in product.explanation(namespace, "gang").get("message", "")

    wait_for(held, "a hold for the gang", 60)
    began = datetime.now(UTC)
    expected = datetime.fromisoformat(product.explanation(namespace, "gang")["estimatedStart"])
    assert expected <= began + timedelta(seconds=300)

    # The stream goes on: for each that ends there is one that waits.
    later = [f"t{number}" for number in range(8)]
    for name in later:
        small(name, "300s")
    end(*stream[:16])
    for name in later:
        product.wait_state(namespace, name, State.WAITING, reason="BehindHold", timeout=LONG)
    small("quick", "60s")
    product.wait_state(namespace, "quick", State.RUNNING, timeout=LONG)
    product.cluster.wait_pods(namespace, 1, selector=pods_of_job("quick"))
    assert product.row(namespace, "gang").state is State.WAITING  # type: ignore[union-attr]
    blockers = product.explanation(namespace, later[0])["blockers"]
    assert [b["holders"] for b in blockers if b["type"] == "Hold"] == [[f"{namespace}/gang"]]

    end(*stream[16:], "quick")
    product.wait_state(namespace, "gang", State.RUNNING, timeout=LONG)
    assert datetime.now(UTC) <= expected + timedelta(seconds=30)
    product.cluster.wait_pods(namespace, 8, selector="jobset.sigs.k8s.io/jobset-name=gang")
    assert {product.row(namespace, name).attempt for name in later} == {0}  # type: ignore[union-attr]
    assert preempted(product, namespace, "gang", "quick", *later) == []
    assert product.charged("team") == 64
    assert product.client.get(JOB, later[0], namespace)["spec"]["suspend"] is True
