"""What the status, the annotations and the owners of a Workload say about where it stands."""

from __future__ import annotations

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.simulate.build import (
    Object,
    admitted,
    at,
    condition,
    flavor,
    local_queue,
    play,
    queue,
    ran,
    reasons,
    workload,
)

QUEUE = [flavor(), queue("q"), local_queue("q")]


def running(name: str, cpu: int = 3, *conditions: Object, **more: Object) -> Object:
    status = admitted(cpu=cpu)
    status["conditions"] += conditions
    return workload(name, cpu=cpu, status={**status, **more.pop("status", {})}, **more)


def test_a_finished_workload_holds_nothing_and_is_told_of():
    found = play(*QUEUE, running("old", 4, condition("Finished")), workload("new", cpu=4))
    assert ran(found) == ["new"]
    assert found["pending"]["default/old"] == {"reason": "Finished", "message": "has finished"}


def test_a_deactivated_workload_is_not_tried():
    found = play(*QUEUE, workload("off", active=False))
    assert reasons(found) == {"off": "Inactive"}


def test_a_running_workload_that_is_deactivated_ends():
    found = play(*QUEUE, running("off", 4, active=False), workload("new", cpu=4))
    assert ran(found) == ["new"]
    assert reasons(found) == {"off": "Inactive"}
    assert found["evictions"] == [["default/off", "Deactivated", None]]


def test_an_evicted_workload_is_going_and_queues_again_at_its_old_place():
    """It was created first, so it comes back first; its quota is free at once."""
    found = play(*QUEUE, running("old", 4, condition("Evicted")), workload("new", cpu=4, created=5))
    assert ran(found) == ["old"]
    assert reasons(found) == {"new": "WaitingForQuota"}
    assert found["evictions"] == []


def test_a_workload_evicted_for_not_getting_ready_queues_behind_those_that_came_before():
    waiting = workload("late", cpu=4, created=1, status={"conditions": [condition("Evicted", seconds=9)]})
    waiting["status"]["conditions"][0]["reason"] = "PodsReadyTimeout"
    assert ran(play(*QUEUE, waiting, workload("new", cpu=4, created=5))) == ["new"]


@pytest.mark.parametrize(("seconds", "reason"), [(30, None), (3600, "Backoff")])
def test_a_workload_that_backs_off_is_tried_when_its_time_has_come(seconds: int, reason: str | None):
    """The clock starts 61 s after the latest time of the scenario; `requeueAt` is a time to come."""
    found = play(*QUEUE, workload("a", status={"requeueState": {"count": 1, "requeueAt": at(seconds)}}))
    assert reasons(found) == ({} if reason is None else {"a": reason})


def test_a_gated_workload_waits_for_who_gates_it():
    found = play(*QUEUE, workload("a", metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.com/y"}}))
    assert reasons(found) == {"a": "AdmissionGated"}
    assert "x.com/y" in found["pending"]["default/a"]["message"]


def test_an_empty_gate_is_none():
    assert ran(play(*QUEUE, workload("a", metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": ""}}))) == [
        "a"
    ]


def test_a_workload_on_hold_waits():
    hold = condition("QuotaReserved", "False", reason="OnHold")
    assert reasons(play(*QUEUE, workload("a", status={"conditions": [hold]}))) == {"a": "OnHold"}


def test_a_workload_that_waits_for_replacement_pods_waits():
    status = {"conditions": [condition("WaitingForReplacementPods")]}
    assert reasons(play(*QUEUE, workload("a", status=status))) == {"a": "WaitingForReplacementPods"}


@pytest.mark.parametrize(
    ("state", "reason", "where"),
    [
        ("Ready", None, ["a"]),
        ("Pending", None, ["a"]),
        ("Rejected", "Deactivated", []),
        ("Retry", "AdmissionCheck", ["a"]),
    ],
)
def test_an_admission_check_may_end_what_runs(state: str, reason: str | None, where: list[str]):
    found = play(
        *QUEUE, running("a", 4, status={"admissionChecks": [{"name": "cached", "state": state, "message": ""}]})
    )
    assert ran(found) == where
    assert found["evictions"] == ([["default/a", reason, None]] if reason else [])
    if not where:
        assert found["pending"]["default/a"]["message"] == "is deactivated: admission check cached rejected it"


PREEMPTING = [flavor(), queue("q", preemption={"withinClusterQueue": "LowerPriority"}), local_queue("q")]


def test_a_closed_preemption_gate_keeps_from_evicting():
    gated = {"preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}], "priority": 9, "cpu": 4, "created": 1}
    assert ran(play(*PREEMPTING, running("a", 4), workload("b", **gated))) == ["a"]
    opened = {"preemptionGates": [{"name": "kueue.x-k8s.io/multikueue", "position": "Open"}]}
    assert ran(play(*PREEMPTING, running("a", 4), workload("b", **gated, status=opened))) == ["b"]


def test_a_priority_boost_counts():
    boosted = workload("b", cpu=4, created=1, metadata={"annotations": {"kueue.x-k8s.io/priority-boost": "5"}})
    assert ran(play(*PREEMPTING, running("a", 4), boosted)) == ["b"]


def owned(parent: str) -> Object:
    return {
        "ownerReferences": [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": parent, "uid": parent}]
    }


def test_a_workload_stands_for_its_waiting_variants():
    found = play(*QUEUE, workload("parent"), workload("one", metadata=owned("parent")))
    assert ran(found) == ["parent"]
    assert reasons(found) == {"one": "Variant"}


def test_a_running_variant_stands_for_its_workload():
    found = play(*QUEUE, workload("parent"), running("one", 1, metadata=owned("parent")))
    assert ran(found) == ["one"]
    assert found["pending"]["default/parent"] == {"reason": "Variant", "message": "runs as its variant default/one"}


def test_an_owner_outside_the_scenario_means_nothing():
    assert ran(play(*QUEUE, workload("one", metadata=owned("gone")))) == ["one"]


def test_a_running_workload_without_a_local_queue_is_charged_and_may_be_preempted():
    stray = running("a", 4)
    stray["spec"]["queueName"] = "gone"
    found = play(*PREEMPTING, stray, workload("b", cpu=4, priority=1))
    assert ran(found) == ["b"]
    assert reasons(found) == {"a": "Misconfigured"}
    assert found["evictions"] == [["default/a", "InClusterQueue", "default/b"]]


def test_a_workload_admitted_to_an_unknown_queue_runs_on():
    stray = workload("a", status=admitted("gone"))
    for semantics in Semantics:
        assert ran(play(*QUEUE, stray, workload("b", cpu=4), semantics=semantics)) == ["a", "b"]
