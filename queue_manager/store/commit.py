"""The commit of decisions: one transaction, fenced by epoch and configuration, compare-and-set per workload.

Locks are always taken in one order (lease, configuration, workloads by uid), so commits don't deadlock. What is asked
first is sent together, and what is written then is sent together: a commit is a few round trips, whatever it writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection

from queue_manager.engine.copies import replace
from queue_manager.store import codec, configurations, events, history, instructions, leases
from queue_manager.store import commit_statements as sql
from queue_manager.store.notify import CHANGED, NOTIFY
from queue_manager.store.pipeline import Send, first_of, pipeline
from queue_manager.store.records import (
    CHARGED,
    ENDED,
    AdmissionRow,
    Change,
    Committed,
    OutboxEntry,
    WorkloadRow,
    is_explained,
)

Known = Mapping[str, WorkloadRow]
"""Rows by uid."""


class InsertRace(Exception):
    """A new workload appeared between our look and our insert: the transaction has to be done again."""


class _Stored(NamedTuple):
    """What LOCK tells of a workload before it is changed."""

    uid: str
    version: int
    priority_class: str
    open_attempt: int | None
    state: str
    reason: str
    queue: str
    priority: int
    attempt: int
    after_drain: str | None


@dataclass(frozen=True, slots=True)
class _Before:
    """Rows as they are before the commit: `stored` by the database, `known` in the memory of who commits, of any
    version."""

    stored: Mapping[str, _Stored]
    known: Known

    def of(self, row: WorkloadRow) -> WorkloadRow | None:
        """The whole row, if it is known as it is stored."""
        known = self.known.get(row.uid)
        return known if known is not None and known.version == row.version > 0 else None


_SHOWN = attrgetter("state", "reason", "queue", "priority", "attempt", "after_drain")
"""What an event is made for when it changes; the words of a message change with every quota."""


_ASKED = attrgetter(*sql.ASKED)


def commit(
    connection: Connection,
    epoch: int,
    revision: int | None,
    now: datetime,
    changes: Sequence[Change],
    known: Known,
) -> Committed:
    """Writes the changes whose rows are as they were read; see `Store.commit`."""
    _refuse_nonsense(changes)
    uids = {change.row.uid for change in changes} | {uid for change in changes for uid, _ in change.reads}
    before = _fence_and_lock(connection, epoch, revision, uids)
    # Who moves a row into the history has its lock, so what is not found alive is found there after that.
    past = history.lock_versions(connection, sorted(uids - before.keys()))
    won = _winners(changes, {**past, **{uid: row.version for uid, row in before.items()}})
    outbox = _write(connection, now, won, _Before(before, known), past) if won else ()
    winners = {change.row.uid: change.row.version + 1 for change in won}
    lost = frozenset(change.row.uid for change in changes if change.row.uid not in winners)
    return Committed(versions=winners, lost=lost, outbox=outbox)


def _fence_and_lock(connection: Connection, epoch: int, revision: int | None, uids: set[str]) -> Mapping[str, _Stored]:
    """The live ones of the rows that are changed or read, which nobody else changes from now on."""
    with pipeline(connection) as send:
        leads = send(leases.FENCE, leases.FENCED)
        newest = None
        if revision is not None:
            send(configurations.SHARE, {})
            newest = send(configurations.NEWEST, {})
        locked = send(sql.LOCK, {"uids": codec.text_array(sorted(uids))}) if uids else None
    leases.heed(first_of(leads), epoch)
    if revision is not None and newest is not None:
        configurations.heed(first_of(newest), revision)
    return {row[0]: _Stored._make(row) for row in locked} if locked is not None else {}


def _write(
    connection: Connection,
    now: datetime,
    won: Sequence[Change],
    before: _Before,
    past: Mapping[str, int],
) -> tuple[OutboxEntry, ...]:
    history.bring_back(connection, [change.row.uid for change in won if change.row.uid in past])
    instructions.done(connection, [id_ for change in won for id_ in change.instructions])
    for change in won:
        for id_, why in change.refusals:
            instructions.refuse(connection, change.row, id_, why, now)
    _insert_workloads(connection, now, won)
    entries = [entry for change in won for entry in change.outbox]
    told = _events(won, before.stored)
    with pipeline(connection) as send:
        _write_workloads(send, now, won, before)
        _write_admissions(send, now, won, before)
        _write_ledger(send, now, won, before.stored)
        _write_explanations(send, now, won, before.stored)
        numbered = send(sql.INSERT_OUTBOX, {"rows": codec.encode(_outbox_json(entries)), "now": now}) if entries else ()
        send(NOTIFY, {"channel": CHANGED})
        if told:  # last: others wait from here on
            send(events.LOCK, {})
            send(events.INSERT, events.inserted(now, told))
    ids = sorted(row[0] for row in numbered)
    return tuple(replace(entry, id=id_, created_at=now) for entry, id_ in zip(entries, ids, strict=True))


def _refuse_nonsense(changes: Sequence[Change]) -> None:
    seen: set[str] = set()
    for change in changes:
        row = change.row
        if row.uid in seen:
            raise ValueError(f"workload {row.uid} is changed twice in one commit")
        seen.add(row.uid)
        if (row.state in CHARGED) != (_open_attempt(row) is not None):
            raise ValueError(
                f"workload {row.uid} is {row.state} with{'out' if row.state in CHARGED else ''} an admission"
            )
        cells = [(entry.cell, entry.state) for entry in change.ledger or ()]
        if len(set(cells)) != len(cells):
            raise ValueError(f"workload {row.uid} has two ledger entries for one cell and state")


def _open_attempt(row: WorkloadRow) -> int | None:
    return row.admission.attempt if row.admission is not None and row.admission.ended_at is None else None


def _events(won: Sequence[Change], before: Mapping[str, _Stored]) -> list[events.New]:
    """An event for each workload of which more has changed than words."""
    found: list[events.New] = []
    for change in won:
        row, old = change.row, before.get(change.row.uid)
        if old is not None and _SHOWN(old) == _SHOWN(row):
            continue
        body = {
            "namespace": row.namespace,
            "name": row.name,
            "kind": row.kind,
            "uid": row.uid,
            "queue": row.queue,
            "user": row.user,
            "priority": row.priority,
            "state": row.state,
            "before": old.state if old is not None else None,
            "reason": row.reason,
            "attempt": row.attempt,
            "version": row.version + 1,
        }
        found.append((events.WORKLOAD, row.queue, body))
    return found


def _winners(changes: Sequence[Change], stored: Mapping[str, int]) -> list[Change]:
    """Changes whose rows and reads have not moved, and that read no row whose own change is lost."""
    lost = {
        change.row.uid
        for change in changes
        if stored.get(change.row.uid, 0) != change.row.version
        or any(stored.get(uid, 0) != version for uid, version in change.reads)
    }
    readers = [change for change in changes if change.reads]
    while more := {c.row.uid for c in readers if c.row.uid not in lost and any(uid in lost for uid, _ in c.reads)}:
        lost |= more
    return sorted((change for change in changes if change.row.uid not in lost), key=lambda change: change.row.uid)


def _insert_workloads(connection: Connection, now: datetime, won: Sequence[Change]) -> None:
    """Those that are new; before all else, for nothing else may be written of one that somebody else has inserted."""
    new = [_workload_json(change, now) for change in won if change.row.version == 0]
    if new and connection.exec_driver_sql(sql.INSERT, {"rows": codec.encode(new)}).rowcount != len(new):
        raise InsertRace


def _write_workloads(send: Send, now: datetime, won: Sequence[Change], before: _Before) -> None:
    """All but the rows of those that are new. Of a row that is asked to be what it was, only what became of it."""
    steps, whole = [], []
    for change in won:
        row = change.row
        if row.version == 0:
            continue
        old = before.of(row)
        if old is not None and not change.request_changed and _ASKED(old) == _ASKED(row):
            steps.append(_step_json(row, now))
        else:
            whole.append(_workload_json(change, now))
    if steps:
        send(sql.STEP, {"rows": codec.encode(steps)})
    if whole:
        send(sql.UPDATE, {"rows": codec.encode(whole)})
    groups: list[Mapping[str, Any]] = []
    pod_sets: list[Mapping[str, Any]] = []
    for change in won:
        if _writes_request(change):
            group_rows, set_rows = codec.pod_group_rows(change.row.uid, change.row.pod_groups)
            groups += group_rows
            pod_sets += set_rows
    rewritten = [change.row.uid for change in won if change.request_changed and change.row.version > 0]
    if rewritten:
        send(sql.DELETE_GROUPS, {"uids": codec.text_array(rewritten)})
    if groups:
        send(sql.INSERT_GROUPS, {"rows": codec.encode(groups)})
    if pod_sets:
        send(sql.INSERT_SETS, {"rows": codec.encode(pod_sets)})


def _writes_request(change: Change) -> bool:
    return change.request_changed or change.row.version == 0


def _step_json(row: WorkloadRow, now: datetime) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "state": row.state,
        "after_drain": row.after_drain,
        "reason": row.reason,
        "message": row.message,
        "attempt": row.attempt,
        "not_before": row.not_before,
        "requeues": row.requeues,
        "requeued_at": row.requeued_at,
        "past_run_time": row.past_run_time,
        "checks": row.checks,
        "relabels": row.relabels,
        "emptied_at": row.emptied_at,
        "finished_at": row.finished_at or (now if row.state in ENDED else None),
        "open_attempt": _open_attempt(row),
    }


def _workload_json(change: Change, now: datetime) -> Mapping[str, Any]:
    row = change.row
    found = _step_json(row, now)
    found.update(zip(sql.ASKED, _ASKED(row), strict=True))
    found["requested"] = codec.peak_requests(row.pod_groups) if _writes_request(change) else None
    return found


def _write_admissions(send: Send, now: datetime, won: Sequence[Change], before: _Before) -> None:
    """Ends those that are open and not the one that the row has, and writes that, as far as it has changed."""
    over, courses, whole = [], [], []
    for change in won:
        row, admission, stored = change.row, change.row.admission, before.stored.get(change.row.uid)
        if _leaves_admission(row, stored):
            over.append(row.uid)
        if admission is None:
            continue
        old = before.of(row)
        known = old.admission if old is not None else None
        if known is None or known.attempt != admission.attempt or known.admission is not admission.admission:
            whole.append(_admission_json(row.uid, admission))
        elif known != admission:
            courses.append(_course_json(row.uid, admission))
    if over:
        send(sql.END_ADMISSIONS, {"uids": codec.text_array(over), "now": now})
    if courses:
        send(sql.CONTINUE_ADMISSIONS, {"rows": codec.encode(courses)})
    if whole:
        send(sql.UPSERT_ADMISSIONS, {"rows": codec.encode(whole)})


def _leaves_admission(row: WorkloadRow, old: _Stored | None) -> bool:
    """Whether another admission than that of the row is open."""
    if old is None or old.open_attempt is None:
        return False
    return row.admission is None or row.admission.attempt != old.open_attempt


def _course_json(uid: str, admission: AdmissionRow) -> dict[str, Any]:
    return {
        "workload_uid": uid,
        "attempt": admission.attempt,
        "admitted_at": admission.admitted_at,
        "checked_at": admission.checked_at,
        "started_at": admission.started_at,
        "ready_at": admission.ready_at,
        "unready_at": admission.unready_at,
        "unplaced_at": admission.unplaced_at,
        "evicted_at": admission.evicted_at,
        "ended_at": admission.ended_at,
        "cause": admission.cause,
        "underlying": admission.underlying,
        "cause_message": admission.cause_message,
        "by": admission.by,
    }


def _admission_json(uid: str, admission: AdmissionRow) -> Mapping[str, Any]:
    asked = {"queue": admission.admission.queue, "admission": codec.admission_to_json(admission.admission)}
    return {**_course_json(uid, admission), **asked}


def _write_ledger(send: Send, now: datetime, won: Sequence[Change], before: Mapping[str, _Stored]) -> None:
    _reclassify(send, now, won, before)
    uids = [change.row.uid for change in won if change.ledger is not None]
    rows = [row for change in won for row in _ledger_json(change)]
    if uids:
        values = {"uids": codec.text_array(uids), "rows": codec.encode(rows), "now": now}
        send(sql.END_INTERVALS, values)
        if rows:
            send(sql.BEGIN_INTERVALS, values)


def _reclassify(send: Send, now: datetime, won: Sequence[Change], before: Mapping[str, _Stored]) -> None:
    """From now on what is charged counts for the new priority class, of those that leave the ledger alone otherwise."""
    moved = {
        change.row.uid: change.row.priority_class
        for change in won
        if change.ledger is None
        and change.row.uid in before
        and before[change.row.uid].priority_class != change.row.priority_class
    }
    if moved:
        rows = [{"uid": uid, "priority_class": name} for uid, name in moved.items()]
        send(sql.RECLASSIFY, {"uids": codec.text_array(moved), "rows": codec.encode(rows), "now": now})


def _ledger_json(change: Change) -> list[Mapping[str, Any]]:
    row = change.row
    queue = row.admission.admission.queue if row.admission is not None else row.queue
    return [
        {
            "workload_uid": row.uid,
            "namespace": row.namespace,
            "queue": queue,
            "user": row.user,
            "flavor": entry.cell.flavor,
            "resource": entry.cell.resource,
            "amount": entry.amount,
            "state": entry.state,
            "kind": row.kind,
            "priority_class": row.priority_class,
        }
        for entry in change.ledger or ()
        if entry.amount
    ]


def _write_explanations(send: Send, now: datetime, won: Sequence[Change], before: Mapping[str, _Stored]) -> None:
    rows = [
        {"workload_uid": change.row.uid, "body": change.explanation} for change in won if change.explanation is not None
    ]
    if rows:
        send(sql.UPSERT_EXPLANATIONS, {"rows": codec.encode(rows), "now": now})
    gone = [
        change.row.uid
        for change in won
        if change.explanation is None and not change.row.explained and _was_explained(before.get(change.row.uid))
    ]
    if gone:
        send(sql.DELETE_EXPLANATIONS, {"uids": codec.text_array(gone)})


def _was_explained(old: _Stored | None) -> bool:
    return old is not None and is_explained(old.state, old.reason)


def _outbox_json(entries: Sequence[OutboxEntry]) -> list[Mapping[str, Any]]:
    return [
        {
            "workload_uid": entry.uid,
            "action": entry.action,
            "payload": entry.payload,
            "not_before": entry.not_before,
        }
        for entry in entries
    ]
