"""What has to have happened to an admitted workload, and by when: from its row and the configuration, nothing else.

The controller acts on them, the API shows them. Run time counts while a workload is starting or running, as in Kueue
(its time as Admitted), whatever its pods do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from queue_manager.config.compiled import Settings
from queue_manager.engine.configuration import Queue, checks_of
from queue_manager.store.records import Check, CheckState, State, WorkloadRow
from queue_manager.store.wishes import STICKY_HOLDS

STARTED = (State.STARTING, State.RUNNING)
MADE_ANEW_WITHIN = timedelta(minutes=10)
"""How long a group of plain pods that was stopped waits for new ones before it counts as deleted."""


def ready_by(row: WorkloadRow, settings: Settings) -> datetime | None:
    """When all its pods have to be ready; None while they are, or where readiness is not watched."""
    admission = row.admission
    if admission is None or row.state not in STARTED or not settings.ready_timeout:
        return None
    if admission.ready_at is None:
        return admission.begun_at + timedelta(microseconds=settings.ready_timeout)
    if admission.unready_at is None or not settings.recovery_timeout:
        return None
    return admission.unready_at + timedelta(microseconds=settings.recovery_timeout)


def replaced_by(row: WorkloadRow, settings: Settings) -> datetime | None:
    """Until when a workload waits for other nodes for its pods; None where it does not wait: before it was started
    nothing is kept for it by waiting."""
    admission = row.admission
    if admission is None or admission.unplaced_at is None or row.state not in STARTED:
        return None
    return admission.unplaced_at + timedelta(microseconds=settings.wait_for_replacement)


def made_anew_by(row: WorkloadRow) -> datetime | None:
    """Until when somebody has to make new pods for a group that was stopped; None where nobody waits for that: it has
    some, or a person holds it."""
    if row.emptied_at is None or row.state not in (State.WAITING, State.HELD) or row.reason in STICKY_HOLDS:
        return None
    return row.emptied_at + MADE_ANEW_WITHIN


def must_end_by(row: WorkloadRow) -> datetime | None:
    """When its run time is used up; None without a limit, or while it does not run."""
    if row.admission is None or row.max_run_time is None or row.state not in STARTED:
        return None
    return row.admission.begun_at + timedelta(microseconds=row.max_run_time - row.past_run_time)


def needed_checks(row: WorkloadRow, queue: Queue | None) -> tuple[str, ...] | None:
    """Names of the checks that an admitted workload needs in its queue as configured now; where that is gone, those of
    its admission stay. None while it is not admitted: its flavors are not known."""
    if row.admission is None:
        return None
    admission = row.admission.admission
    flavors = frozenset(flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values())
    return checks_of(queue, flavors) if queue is not None else admission.checks


def open_checks(checks: Iterable[Check], needed: Collection[str]) -> list[str]:
    """Names of the needed checks that are not ready, in the order needed."""
    ready = {check.name for check in checks if check.state is CheckState.READY}
    return [name for name in needed if name not in ready]


def run_time(row: WorkloadRow, now: datetime) -> int:
    """Microseconds that its present admission has been allowed to run so far."""
    if row.admission is None or row.state not in STARTED:
        return 0
    return max(0, (now - row.admission.begun_at) // timedelta(microseconds=1))
