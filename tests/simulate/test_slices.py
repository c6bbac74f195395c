"""Kueue's workload slices: one that runs is replaced by a larger one."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.simulate.build import admitted, flavor, local_queue, play, pod_set, queue, ran, reasons, workload

BOTH = pytest.mark.parametrize("semantics", list(Semantics))
TREE = (
    flavor("spot", nodeLabels={"kind": "spot"}),
    flavor("default", nodeLabels={"kind": "default"}),
    local_queue("q"),
)
REPLACES = {"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}}


def quota(cpu: int, **spec: Any) -> Any:
    return queue("q", {"spot": {"cpu": 100}, "default": {"cpu": cpu}}, **spec)


def slices(size: int, larger: int, **more: Any) -> tuple[Any, Any]:
    old = workload("old", podSets=[pod_set(count=size)], status=admitted(cpu=size, count=size))
    return old, workload("new", created=5, podSets=[pod_set(count=larger)], metadata=REPLACES, **more)


@BOTH
def test_only_what_is_added_is_charged_and_the_flavor_stays(semantics: Semantics):
    found = play(*TREE, quota(6), *slices(4, 6), semantics=semantics)
    assert found["admitted"]["default/new"]["podSets"]["main"]["count"] == 6
    assert found["admitted"]["default/new"]["podSets"]["main"]["flavors"] == {"cpu": "default"}
    assert found["pending"] == {
        "default/old": {"reason": "Finished", "message": "was replaced by workload slice default/new"}
    }
    assert found["evictions"] == []


@BOTH
def test_it_runs_on_while_there_is_too_little(semantics: Semantics):
    other = workload("other", cpu=2, status=admitted(cpu=2))
    found = play(*TREE, quota(7), other, *slices(4, 6), semantics=semantics)
    assert ran(found) == ["old", "other"]
    assert reasons(found) == {"new": "WaitingForQuota"}
    assert "1 cpu short" in found["pending"]["default/new"]["message"]


@BOTH
def test_it_may_preempt_as_any_workload_of_its_priority_but_never_itself(semantics: Semantics):
    low = workload("low", cpu=3, priority=-1, status=admitted(cpu=3))
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    found = play(*TREE, quota(7, **preempts), low, *slices(4, 6), semantics=semantics)
    assert found["evictions"] == [["default/low", "InClusterQueue", "default/new"]]
    assert "new" in ran(found)
    assert "old" not in ran(found)


@BOTH
def test_when_the_one_that_runs_is_evicted_both_stand_alone(semantics: Semantics):
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    high = workload("high", cpu=5, priority=5, created=9, podSets=[_pinned(5)])
    found = play(*TREE, quota(7, **preempts), *slices(4, 8), high, semantics=semantics)
    assert found["evictions"] == [["default/old", "InClusterQueue", "default/high"]]
    assert {"old", "new", "high"} <= {*ran(found), *reasons(found)}
    assert "high" in ran(found)


def _pinned(count: int) -> Any:
    """Pods that can use the flavor `default` alone."""
    return pod_set(count=count, pod={"nodeSelector": {"kind": "default"}})
