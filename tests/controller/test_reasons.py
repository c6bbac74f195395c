"""How much of the time goes into telling those that wait anew why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from queue_manager.controller.reasons import EVERY, REST, SLICE, Reasons
from queue_manager.engine.decision import Reason, Waiting
from tests.store.builders import workload

COST = 0.009
"""Seconds that an explanation takes here."""


class Clock:
    """Time passes only by explaining, and by `passed`."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> Any:
        return workload("u").created_at


def reasons_of(clock: Clock, waiting: int) -> Reasons:
    """Of so many workloads, all of whose numbers are others than those that were told."""
    rows = {f"u{number:02}": workload(f"u{number:02}", reason="WaitingForQuota") for number in range(waiting)}

    def explain(uid: str, now: int) -> Waiting:
        clock.passed += COST
        return Waiting(uid, Reason.WAITING_FOR_QUOTA, f"at {clock.passed}", (), 1)

    engine = SimpleNamespace(first_waiting=lambda count: list(rows), explain=explain)
    picture: Any = SimpleNamespace(engine=engine, rows=rows)
    return Reasons(picture, clock)  # type: ignore[arg-type]


def test_a_long_round_is_told_in_slices_with_rests_between_them() -> None:
    clock = Clock()
    reasons = reasons_of(clock, 7)
    assert reasons.due() == []
    reasons.something_happened()
    assert reasons.due() == []
    clock.passed += EVERY
    told, slices = [], 0
    while len(told) < 7:
        before = clock.passed
        changes = reasons.due()
        took = clock.passed - before
        assert 0 < took < SLICE + COST
        told += [change.row.uid for change in changes]
        slices += 1
        assert reasons.due() == []
        rest = reasons.pause(60.0) if len(told) < 7 else REST * took
        assert abs(rest - REST * took) < 1e-9
        clock.passed += rest
    assert told == [f"u{number:02}" for number in range(7)]
    assert slices == 3
    assert reasons.pause(60.0) == 60.0


def test_what_ended_meanwhile_is_left_out() -> None:
    clock = Clock()
    reasons = reasons_of(clock, 4)
    reasons.something_happened()
    clock.passed += EVERY
    first = [change.row.uid for change in reasons.due()]
    reasons._picture.rows.clear()
    clock.passed += reasons.pause(60.0)
    assert reasons.due() == []
    assert first == ["u00", "u01", "u02"]
