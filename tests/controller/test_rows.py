"""Rows are counted as they come, change and go; what lives long is not walked by the garbage collector."""

from __future__ import annotations

import gc
from datetime import UTC, datetime

from queue_manager.controller.garbage import THRESHOLDS, settle_garbage
from queue_manager.controller.rows import Rows
from queue_manager.store.records import State, WorkloadRow


def row(uid: str, queue: str, state: State) -> WorkloadRow:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    return WorkloadRow(uid=uid, kind="Job", namespace="ns", name=uid, created_at=created, state=state, queue=queue)


def test_rows_are_counted_by_queue_and_state() -> None:
    rows = Rows()
    for uid in ("a", "b", "c"):
        rows[uid] = row(uid, "q", State.WAITING)
    rows["a"] = row("a", "q", State.RESERVED)
    rows["b"] = row("b", "other", State.WAITING)
    assert rows.counts == {("q", State.WAITING): 1, ("q", State.RESERVED): 1, ("other", State.WAITING): 1}
    assert rows.reserved == {"a"}
    rows["a"] = row("a", "q", State.RUNNING)
    assert rows.forget("c") is not None
    assert rows.forget("c") is None
    assert rows.counts == {("q", State.RUNNING): 1, ("other", State.WAITING): 1}
    assert rows.reserved == set()
    assert sorted(rows) == ["a", "b"]


def test_what_lives_when_the_state_is_read_is_not_walked_again() -> None:
    before = gc.get_threshold()
    try:
        gc.unfreeze()
        settle_garbage()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
