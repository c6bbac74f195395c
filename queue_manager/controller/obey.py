"""Carrying out what people ask of workloads: hold, release, evict, the answer of a check. Pure: (row, instruction) ->
change.

The API refused what made no sense when it was asked; the workload may have moved since, so it is judged anew here.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from queue_manager.config.human import moment as at
from queue_manager.controller.explanations import outside
from queue_manager.controller.lifecycle import (
    ADMISSION_CHECK,
    MAXIMUM_EXECUTION_TIME_EXCEEDED,
    Rules,
    check_pause,
    deactivate,
    overdue,
    rejected_words,
)
from queue_manager.controller.transitions import Facts, drain, event, sync
from queue_manager.store.records import Change, CheckState, Instruction, State, Wish, WorkloadRow
from queue_manager.store.wishes import EVICTED_BY_OPERATOR, HELD_BY_OPERATOR, PENDING_EVALUATION, answered

RELEASED = "Released"


def obey(row: WorkloadRow, instruction: Instruction, facts: Facts, rules: Rules) -> Change | None:
    """The change that an instruction asks for, or its refusal; None where it asks for what is so already."""
    match instruction.wish:
        case Wish.HOLD:
            return _hold(row, instruction, facts)
        case Wish.RELEASE:
            return _release(row, instruction)
        case Wish.CHECK:
            return _answer(row, instruction, facts, rules)
        case Wish.EVICT:
            return _evict(row, instruction, facts)
        case Wish.MOVE | Wish.REPRIORITISE:
            raise ValueError("labels go with these: see Moves")


def refused(row: WorkloadRow, instruction: Instruction, why: str) -> Change:
    """It is not carried out: its job, the audit log and whoever asked are told why."""
    wish = instruction.wish.value
    message = f"{wish}, asked for by {by(instruction)}, is refused: {why}"
    outbox = (event(row, f"{wish.capitalize()}Refused", message, warning=True),)
    return Change(row=row, outbox=outbox, refusals=((instruction.id, why),))


def by(instruction: Instruction) -> str:
    """Who asked, and why."""
    return f"{instruction.who}{': ' + instruction.reason if instruction.reason else ''}"


def _evict(row: WorkloadRow, instruction: Instruction, facts: Facts) -> Change:
    """Charged -> draining, to queue again with its old place in time, once the pause that was asked for is over."""
    message = f"Stopped by {by(instruction)}. It queues again with its old place in time"
    pause = instruction.arguments.get("requeueAfter")
    until = facts.now + timedelta(seconds=pause) if pause else None
    message += f", not before {at(until)}." if until is not None else "."
    return drain(row, facts, State.WAITING, EVICTED_BY_OPERATOR, message, event_reason="Evicted", not_before=until)


def _hold(row: WorkloadRow, instruction: Instruction, facts: Facts) -> Change:
    """waiting, held -> held; what is charged drains first."""
    message = f"Held by {by(instruction)}"
    if row.admission is not None and row.state is not State.DRAINING:
        return drain(row, facts, State.HELD, HELD_BY_OPERATOR, message, event_reason="Held")
    drains = row.state is State.DRAINING
    held = replace(row, reason=HELD_BY_OPERATOR, message=message)
    held = replace(held, after_drain=State.HELD) if drains else replace(held, state=State.HELD)
    outbox = (event(held, "Held", message, warning=True),)
    return Change(row=held, outbox=outbox, explanation=outside(held) if held.state is State.HELD else None)


def _release(row: WorkloadRow, instruction: Instruction) -> Change:
    """held, deactivated, backing off -> waiting, with a clean slate of what it was deactivated for."""
    message = f"Released by {by(instruction)}"
    checks = tuple(
        replace(check, state=CheckState.PENDING, retries=0)
        if check.state in (CheckState.REJECTED, CheckState.RETRY)
        else check
        for check in row.checks
    )
    free = replace(row, not_before=None, requeues=0, checks=checks, emptied_at=None, message=message)
    if row.reason == MAXIMUM_EXECUTION_TIME_EXCEEDED:
        free = replace(free, past_run_time=0)
    if row.state is State.DRAINING:
        free = replace(free, after_drain=State.WAITING, reason=RELEASED)
    else:
        free = replace(free, state=State.WAITING, reason=PENDING_EVALUATION)
    return Change(row=free, outbox=(sync(free), event(free, RELEASED, message)))


def _answer(row: WorkloadRow, instruction: Instruction, facts: Facts, rules: Rules) -> Change | None:
    """Notes the answer of a check, and does what follows from it at once."""
    name = instruction.arguments["check"]
    known = next((check for check in row.checks if check.name == name), None)
    answer = answered(known, instruction)
    if answer == known:
        return None
    others = [check for check in row.checks if check.name != name]
    noted = replace(row, checks=tuple(sorted([*others, answer], key=lambda check: check.name)))
    change = overdue(noted, facts, rules)
    if change is not None:
        return change
    waits = State.WAITING in (row.state, row.after_drain)
    if answer.state is CheckState.REJECTED and waits:
        return deactivate(noted, facts, ADMISSION_CHECK, rejected_words(answer))
    if answer.state is CheckState.RETRY and waits:
        until = instruction.at + check_pause(answer, rules.settings)
        if row.not_before is None or row.not_before < until:
            message = f"Check {name} asks to try again later; it is tried again at {at(until)}"
            noted = replace(noted, not_before=until, message=message)
            return Change(row=noted)
    return Change(row=noted)
