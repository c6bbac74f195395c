"""From a plan of the engine to changes of the store."""

from __future__ import annotations

from datetime import datetime

from queue_manager.controller.explanations import explanation_of
from queue_manager.controller.picture import Picture
from queue_manager.controller.resizing import is_elastic, resize, resize_waits
from queue_manager.controller.transitions import Facts, admit, evict
from queue_manager.engine.copies import replace
from queue_manager.engine.decision import Eviction, Plan, Reason, Waiting
from queue_manager.engine.resize import owner_uid
from queue_manager.store.records import Change, State, WorkloadRow


def changes_of(plan: Plan, picture: Picture, now: datetime) -> list[Change]:
    """One change for each workload that the plan evicts, admits or lets grow, or whose reason to wait is another."""
    rows, charge_of = picture.rows, picture.engine.charge_of
    changes = [_evicted(decided, picture, now) for decided in plan.evictions]
    changes += [admit(rows[admission.uid], admission, now) for admission in plan.admissions]
    changes += [resize(rows[resized.uid], resized, charge_of(resized.uid)) for resized in plan.resizes]
    admitted = {admission.uid for admission in plan.admissions}
    for waiting in plan.waiting:
        row = rows[waiting.uid]
        if row.admission is not None and row.admission.unplaced_at is not None:
            continue  # It waits for nodes in the first place, and says so (node_failures.py).
        if is_elastic(row):
            changes.append(resize_waits(row, waiting, explanation_of(waiting, row, rows, now)))
        elif waiting.uid not in admitted and row.state is State.WAITING:
            changes.append(_waits(row, waiting, picture, now))
    return changes


def _evicted(decided: Eviction, picture: Picture, now: datetime) -> Change:
    by = picture.rows.get(owner_uid(decided.by))
    facts = Facts(now=now, exists=True, charge=picture.engine.charge_of(decided.uid))
    return evict(picture.rows[decided.uid], decided, by, facts)


def _waits(row: WorkloadRow, waiting: Waiting, picture: Picture, now: datetime) -> Change:
    # Who backs off was told before why, and until when.
    keeps = waiting.reason is Reason.BACKOFF and row.message
    fresh = replace(row, reason=waiting.reason.value, message=row.message if keeps else waiting.message)
    return Change(row=fresh, explanation=explanation_of(waiting, row, picture.rows, now))
