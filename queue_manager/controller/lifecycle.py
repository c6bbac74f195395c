"""Rules of a workload that is admitted: checks, time to get ready, run time (issue 4; kueue.md 2.10).

Pure functions of the row, what the cluster shows, and the settings. All times they count from are in the row, so they
hold over restarts; `next_look` says when time alone may change something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from queue_manager.config.compiled import Settings
from queue_manager.config.human import duration
from queue_manager.config.human import moment as at
from queue_manager.controller.transitions import Facts, drain, event, sync
from queue_manager.engine.configuration import Queue
from queue_manager.store.deadlines import (
    STARTED,
    made_anew_by,
    must_end_by,
    needed_checks,
    open_checks,
    ready_by,
    replaced_by,
    run_time,
)
from queue_manager.store.records import AdmissionRow, Change, Check, CheckState, State, WorkloadRow

PODS_READY_TIMEOUT = "PodsReadyTimeout"
WAIT_FOR_START = "WaitForStart"
WAIT_FOR_RECOVERY = "WaitForRecovery"
ADMISSION_CHECK = "AdmissionCheck"
DEACTIVATED = "Deactivated"
REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one workload: the settings, and the names of the checks it needs now."""

    settings: Settings
    checks: tuple[str, ...] = ()


def rules_for(row: WorkloadRow, settings: Settings, queue: Queue | None) -> Rules:
    """The rules of a workload in its queue as configured now. Without its queue the checks of its admission stay."""
    if not (row.checks or row.state is State.RESERVED):
        return Rules(settings)
    return Rules(settings, needed_checks(row, queue) or ())


def overdue(row: WorkloadRow, facts: Facts, rules: Rules) -> Change | None:
    """What a rule demands of a reserved, starting or running workload now; None when all is well."""
    if row.admission is None or row.state is State.DRAINING:
        return None
    if (change := _refused(row, facts, rules)) is not None:
        return change
    if row.state is State.RESERVED:
        return _checked(row, facts, rules)
    return _ran_too_long(row, facts) or _readiness(row, row.admission, facts, rules.settings)


def next_look(row: WorkloadRow, settings: Settings) -> datetime | None:
    """When the passing of time alone may make a rule act on the workload."""
    if row.admission is None:
        return made_anew_by(row)
    if row.state not in STARTED:
        return None
    deadlines = (ready_by(row, settings), must_end_by(row), replaced_by(row, settings))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def backoff(settings: Settings, times: int) -> timedelta:
    """The pause after the given number of evictions: the base, doubled each time, up to the greatest."""
    pause = settings.backoff_base << min(max(times, 1) - 1, 40)
    return timedelta(microseconds=min(pause, settings.backoff_max))


# --- checks -----------------------------------------------------------------------------------------------------


def _checked(row: WorkloadRow, facts: Facts, rules: Rules) -> Change | None:
    """reserved -> starting, once every check it needs is ready."""
    assert row.admission is not None
    if open_checks(row.checks, rules.checks):
        return None
    admission = replace(row.admission, checked_at=facts.now)
    starting = replace(row, state=State.STARTING, reason="", message="", admission=admission)
    return Change(row=starting, outbox=(sync(starting),))


def _refused(row: WorkloadRow, facts: Facts, rules: Rules) -> Change | None:
    """reserved, starting, running -> draining, where a check it needs says Retry or Rejected."""
    against = [check for check in row.checks if check.name in rules.checks]
    for check in against:
        if check.state is CheckState.REJECTED:
            return deactivate(row, facts, ADMISSION_CHECK, rejected_words(check))
    retry = [check for check in against if check.state is CheckState.RETRY]
    if not retry:
        return None
    until = max(facts.now + check_pause(check, rules.settings) for check in retry)
    words = "; ".join(f"check {check.name} asks to try again later{_said(check)}" for check in retry)
    message = f"Stopped because {words}. It is tried again at {at(until)}."
    return drain(
        row,
        facts,
        State.WAITING,
        ADMISSION_CHECK,
        message,
        event_reason="Evicted",
        not_before=until,
        requeued_at=facts.now,
    )


def check_pause(check: Check, settings: Settings) -> timedelta:
    """How long a workload stays out of the queue after the check said Retry."""
    if check.requeue_after is not None:
        return timedelta(seconds=check.requeue_after)
    return backoff(settings, check.retries)


def rejected_words(check: Check) -> str:
    """Why a check ended it."""
    return f"check {check.name} rejected it{_said(check)}"


def _said(check: Check) -> str:
    return f" ({check.message})" if check.message else ""


# --- run time ---------------------------------------------------------------------------------------------------


def _ran_too_long(row: WorkloadRow, facts: Facts) -> Change | None:
    end = must_end_by(row)
    if end is None or facts.now < end:
        return None
    assert row.max_run_time is not None
    ran = duration(row.past_run_time + run_time(row, facts.now))
    words = f"it has run for {ran}, its max-run-time is {duration(row.max_run_time)}"
    return deactivate(row, facts, MAXIMUM_EXECUTION_TIME_EXCEEDED, words)


# --- readiness --------------------------------------------------------------------------------------------------


def _readiness(row: WorkloadRow, admission: AdmissionRow, facts: Facts, settings: Settings) -> Change | None:
    """Notes when all pods are ready, and when not any more; evicts once that has lasted too long."""
    if not settings.ready_timeout:
        return None
    if facts.ready and row.state is State.RUNNING:
        if admission.ready_at is not None and admission.unready_at is None:
            return None
        noted = replace(admission, ready_at=admission.ready_at or facts.now, unready_at=None)
        return Change(row=replace(row, admission=noted))
    deadline = ready_by(row, settings)
    if admission.ready_at is not None and admission.unready_at is None and settings.recovery_timeout:
        return Change(row=replace(row, admission=replace(admission, unready_at=facts.now)))
    if deadline is None or facts.now < deadline:
        return None
    if admission.ready_at is None:
        words = f"not all its pods were ready within {duration(settings.ready_timeout)} of its admission"
        return _not_ready(row, facts, settings, WAIT_FOR_START, words)
    words = f"its pods were ready and then some were not for {duration(settings.recovery_timeout)}"
    return _not_ready(row, facts, settings, WAIT_FOR_RECOVERY, words)


def _not_ready(row: WorkloadRow, facts: Facts, settings: Settings, underlying: str, words: str) -> Change:
    times = row.requeues + 1
    limit = settings.backoff_limit
    if limit is not None and times > limit:
        return deactivate(row, facts, REQUEUING_LIMIT_EXCEEDED, f"{words}, after {row.requeues} tries that ended so")
    until = facts.now + backoff(settings, times)
    of = f" of at most {limit}" if limit is not None else ""
    message = f"Stopped because {words} (time {times}{of}). It is tried again at {at(until)}."
    return drain(
        replace(row, requeues=times),
        facts,
        State.WAITING,
        PODS_READY_TIMEOUT,
        message,
        underlying=underlying,
        event_reason="Evicted",
        not_before=until,
        requeued_at=facts.now if settings.requeue_by_eviction_time else None,
    )


# --- deactivation -----------------------------------------------------------------------------------------------


def deactivate(row: WorkloadRow, facts: Facts, underlying: str, words: str) -> Change:
    """Any state -> deactivated (by way of draining where it is charged): out of the queue until it is released."""
    message = _deactivated_words(row, words)
    out = replace(row, reason=underlying, message=message, not_before=None)
    if row.state is State.DRAINING:
        out = replace(out, after_drain=State.DEACTIVATED)
    elif row.admission is not None:
        return drain(
            row,
            facts,
            State.DEACTIVATED,
            DEACTIVATED,
            message,
            underlying=underlying,
            event_reason=DEACTIVATED,
        )
    else:
        out = replace(out, state=State.DEACTIVATED)
    return Change(row=out, outbox=(event(out, DEACTIVATED, message, warning=True),))


def _deactivated_words(row: WorkloadRow, words: str) -> str:
    """What its user reads."""
    return (
        f"Deactivated because {words}. It waits until an admin releases it "
        f"(queue-manager release {row.namespace}/{row.name} --reason ...)."
    )
