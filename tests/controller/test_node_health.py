"""A short silence of a node changes nothing; which nodes keep pods off, and which of them lose what runs there."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from queue_manager.cluster.port import Object
from queue_manager.controller.node_health import Ailment, NodeWatch, closed
from queue_manager.engine.workload import Toleration

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
PATIENCE = timedelta(seconds=60)
SILENT_TAINTS = (
    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
)


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def node(ready: bool, since: int | None = 0, taints: Iterable[Object] = (), **spec: bool) -> Object:
    """A node whose Ready condition changed so many seconds from NOW."""
    condition: Object = {"type": "Ready", "status": "True" if ready else "Unknown"}
    if since is not None:
        condition["lastTransitionTime"] = after(since).isoformat()
    return {
        "metadata": {"name": "n"},
        "spec": {"taints": list(taints), **spec},
        "status": {"conditions": [condition]},
    }


class Watch:
    """A watch over the node `n`, asked as the controller asks: when it changes and when its time has come."""

    def __init__(self) -> None:
        self.watch = NodeWatch()

    def lost(self, found: Object | None, at: int, patience: timedelta = PATIENCE) -> bool:
        self.watch.look("n", found, after(at), patience)
        return self.watch.lost("n", found) is not None


def test_pods_are_lost_only_once_their_node_was_silent_for_the_whole_time() -> None:
    watch = Watch()
    assert not watch.lost(node(True), 0)
    silent = node(False, since=10)
    assert not watch.lost(silent, 10)
    assert watch.watch.next() == after(70)
    assert watch.watch.due(after(69)) == set()
    assert not watch.lost(silent, 69)
    assert watch.watch.due(after(70)) == {"n"}
    assert watch.lost(silent, 70)
    assert watch.watch.next() is None, "nothing more happens to it by time alone"
    ailment = watch.watch.lost("n", silent)
    assert ailment == Ailment("not ready since 2026-01-05T09:00:10Z", lost=True)


def test_a_change_of_a_silent_node_does_not_begin_its_silence_anew() -> None:
    watch = Watch()
    watch.lost(node(True), 0)
    for at in (10, 30, 50):
        assert not watch.lost(node(False, since=at), at)
    assert watch.lost(node(False, since=70), 70)


def test_short_silences_do_not_add_up() -> None:
    watch = Watch()
    for at in (0, 50, 100, 150):
        assert not watch.lost(node(True, since=at), at)
        assert not watch.lost(node(False, since=at + 1), at + 1)
        assert not watch.lost(node(False, since=at + 1), at + 49)
    assert not watch.lost(node(True, since=200), 200)
    assert watch.watch.next() is None
    assert watch.watch.due(after(1000)) == set()


def test_a_node_that_answers_again_has_lost_nothing_more() -> None:
    watch = Watch()
    watch.lost(node(False, since=0), 0)
    assert watch.lost(node(False, since=0), 60)
    assert not watch.lost(node(True, since=61), 61)
    assert not watch.lost(node(False, since=62), 62)


def test_who_was_seen_ready_is_silent_since_then_whatever_its_condition_says() -> None:
    watch = Watch()
    watch.lost(node(True), 0)
    assert not watch.lost(node(False, since=-3600), 1), "clocks differ, or the condition is an old one"
    assert watch.lost(node(False, since=-3600), 61)


def test_once_it_was_silent_the_next_silence_counts_as_its_condition_says() -> None:
    watch = Watch()
    watch.lost(node(True), 0)
    watch.lost(node(False, since=1), 1)
    watch.lost(None, 2)
    assert watch.lost(node(False, since=-60), 3), "another node of that name, which nobody saw ready"


@pytest.mark.parametrize("since", [-60, None])
def test_after_a_restart_the_condition_says_since_when(since: int | None) -> None:
    assert Watch().lost(node(False, since), 0)
    assert not Watch().lost(node(False, since=-59), 0)


def test_more_patience_makes_a_node_whole_again_for_as_long() -> None:
    watch = Watch()
    watch.lost(node(False, since=0), 0)
    assert watch.lost(node(False, since=0), 60)
    assert not watch.lost(node(False, since=0), 61, timedelta(minutes=5))
    assert watch.watch.next() == after(300)


def test_a_deleted_node_loses_its_pods_at_once() -> None:
    watch = Watch()
    watch.lost(node(False, since=0), 0)
    assert watch.lost(None, 1)
    assert watch.watch.next() is None


@pytest.mark.parametrize("taint", SILENT_TAINTS, ids=lambda taint: f"{taint['key']}:{taint['effect']}")
def test_a_taint_that_repeats_a_silence_is_not_felt_before_the_silence_is_long(taint: Object) -> None:
    assert closed(node(False, taints=[taint]), ()) is None


def test_a_taint_of_anybody_else_is_felt_at_once() -> None:
    for effect, lost in (("NoExecute", True), ("NoSchedule", False)):
        repair = {"key": "repair", "value": "x", "effect": effect}
        for others in ((), SILENT_TAINTS):
            assert closed(node(True, taints=[*others, repair]), ()) == Ailment(f"tainted with repair=x:{effect}", lost)
        assert closed(node(True, taints=[repair]), (Toleration("repair", "Exists", "", effect),)) is None


def test_what_takes_pods_away_comes_before_what_only_keeps_them_off() -> None:
    both = [{"key": "first", "effect": "NoSchedule"}, {"key": "then", "effect": "NoExecute"}]
    found = closed(node(True, taints=both), ())
    assert found is not None
    assert found.lost


def test_a_preference_keeps_nobody_off() -> None:
    assert closed(node(True, taints=[{"key": "a", "effect": "PreferNoSchedule"}]), ()) is None


def test_a_cordon_and_its_taint_leave_what_runs() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert closed(node(True, taints=[taint], unschedulable=True), ()) == Ailment("cordoned", lost=False)
    everything = (Toleration("", "Exists", "", ""),)
    assert closed(node(True, taints=[taint], unschedulable=True), everything) == Ailment("cordoned", lost=False)


def test_a_node_on_its_way_out_leaves_what_runs() -> None:
    leaving = node(True)
    leaving["metadata"]["deletionTimestamp"] = NOW.isoformat()
    assert closed(leaving, ()) == Ailment("being deleted", lost=False)
