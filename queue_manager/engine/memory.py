"""What Kueue remembers of a head from one cycle to the next: with which flavor to go on, and the reason found for its
shape (kueue.md 2.3, 2.5f)."""

from __future__ import annotations

from queue_manager.engine.decision import Reason
from queue_manager.engine.decisions import Outcome
from queue_manager.engine.flavors import Mode
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.reasons import kueue_reason_of
from queue_manager.engine.state import State


def next_flavors(nomination: Nomination) -> dict[int, int]:
    """The flavor after the last one tried, by index of need, where the search stopped early; not of pod sets from the
    first one on that no flavor can take."""
    failed = nomination.assignment.failed_unit
    return {
        i: choice.tried + 1
        for i, choice in enumerate(nomination.assignment.choices)
        if choice.untried and (failed is None or choice.need.unit < failed)
    }


def remember_flavors(state: State, nomination: Nomination, decided: bool) -> None:
    """Where to go on next time; from the first flavor after evictions, or when all were tried."""
    decided = decided or nomination.mode is Mode.DEFERRED
    record = nomination.record
    state.log.assign(record, "resume", {} if decided else next_flavors(nomination))
    departures = state.queue(record.workload.queue).departures
    state.log.assign(record, "resume_of", (state.rounds, departures))


def remember_reason(state: State, nomination: Nomination, outcome: Outcome) -> None:
    """Keeps the reason found for a head, and for those of its shape that have none (kueue.md 2.3, equal hash)."""
    record, log = nomination.record, state.log
    if nomination.mode is Mode.DEFERRED or (nomination.victims and outcome is Outcome.DECIDED):
        reason = Reason.WAITING_FOR_PREEMPTED_WORKLOADS
    else:
        reason = Reason.WAITING_FOR_QUOTA if outcome is Outcome.SKIPPED else kueue_reason_of(nomination)
    log.assign(record, "verdict", reason)
    if outcome is Outcome.PARKED and record.group is not None and record.group.parked is not None:
        for _, uid in record.group.members:
            other = state.records[uid]
            if other.verdict is None:
                log.assign(other, "verdict", reason)
