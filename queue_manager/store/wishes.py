"""What people may ask of a workload in which state. The API refuses by it, the leader looks again by it."""

from __future__ import annotations

from datetime import datetime

from queue_manager.store.records import CHARGED, ENDED, Check, CheckState, Instruction, State, Wish, WorkloadRow

PENDING_EVALUATION = "PendingEvaluation"
"""Reason of a workload that has just begun to wait (again): the next plan tells why."""
SUSPENDED_BY_USER = "SuspendedByUser"
HELD_BY_OPERATOR = "HeldByOperator"
EVICTED_BY_OPERATOR = "EvictedByOperator"
STICKY_HOLDS = frozenset({SUSPENDED_BY_USER, HELD_BY_OPERATOR})
"""Holds that end only by a person's wish."""


def refusal(row: WorkloadRow, wish: Wish, now: datetime) -> str:
    """Why the wish makes no sense for the workload now, and what would; "" when it does."""
    if row.state in ENDED or row.after_drain in ENDED:
        return "it is over"
    match wish:
        case Wish.HOLD if State.DEACTIVATED in (row.state, row.after_drain):
            return "it is deactivated: it starts only when it is released"
        case Wish.RELEASE:
            return _not_to_release(row, now)
        case Wish.EVICT if row.state is State.DRAINING:
            return "it is being stopped already"
        case Wish.EVICT if row.state not in CHARGED:
            return f"it is {row.state.value}: there is nothing to stop"
    return ""


def _not_to_release(row: WorkloadRow, now: datetime) -> str:
    state = row.after_drain or row.state
    if state is State.DEACTIVATED:
        return ""
    if state is State.HELD:
        return "" if row.reason in STICKY_HOLDS else f"nobody holds it; its job has to change: {row.message}"
    if state is State.WAITING and row.not_before is not None and row.not_before > now:
        return ""
    return f"it is {row.state.value}: neither held, nor deactivated, nor backing off"


def answered(known: Check | None, instruction: Instruction) -> Check:
    """The check after the answer; `known` itself when that was said already."""
    arguments = instruction.arguments
    state, message, after = CheckState(arguments["state"]), arguments["message"], arguments["requeueAfter"]
    if known is not None and (known.state, known.message, known.requeue_after) == (state, message, after):
        return known
    return Check(
        name=arguments["check"],
        state=state,
        message=message,
        at=instruction.at,
        who=instruction.who,
        retries=(known.retries if known is not None else 0) + (state is CheckState.RETRY),
        requeue_after=after,
    )
