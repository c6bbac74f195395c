"""Reads workloads with their pod groups and open admissions, a query a table whatever their number."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, Text, any_, literal, select, text, true, tuple_
from sqlalchemy.dialects.postgresql import ARRAY

from queue_manager.engine.configuration import Cell
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.store import codec
from queue_manager.store.records import AdmissionRow, LedgerState, State, WorkloadFilter, WorkloadRow
from queue_manager.store.schema import NOT_ENDED, SEARCH, admissions, ledger, pod_groups, pod_sets, workloads

_COLUMNS = [column for column in workloads.columns if column.name not in ("requested", "open_attempt", "holds_open")]
_FORGET = text(
    "DELETE FROM workloads WHERE uid IN (SELECT uid FROM workloads WHERE state IN ('finished', 'failed') "
    "AND finished_at < :before ORDER BY finished_at, uid LIMIT :limit)"
)


class BadCursor(ValueError):
    """The cursor of a list is not one that we gave."""


@dataclass(frozen=True, slots=True)
class LedgerInterval:
    """An interval of the ledger; `until` is None while it goes on."""

    queue: str
    user: str
    cell: Cell
    amount: int
    state: LedgerState
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class History:
    """What a workload was given, oldest first."""

    admissions: tuple[AdmissionRow, ...]
    intervals: tuple[LedgerInterval, ...]


def load(connection: Connection, ended: bool) -> list[WorkloadRow]:
    """All workloads by uid, without those that ended unless `ended`."""
    return _read(connection, _Chosen(ended=ended))


def get(connection: Connection, uids: Sequence[str]) -> list[WorkloadRow]:
    """Those of the workloads that are stored, by uid."""
    return _read(connection, _Chosen(uids)) if uids else []


def find(connection: Connection, namespace: str, name: str, kind: str | None) -> list[WorkloadRow]:
    """Workloads of a name, newest first: several kinds may share it, and deleted jobs of that name stay for a while."""
    query = select(workloads.c.uid).where(workloads.c.namespace == namespace, workloads.c.name == name)
    if kind is not None:
        query = query.where(workloads.c.kind == kind)
    return _newest_first(get(connection, list(connection.execute(query).scalars())))


def forget_ended(connection: Connection, before: datetime, limit: int) -> int:
    """Deletes workloads that ended before; see `Store.forget_ended`."""
    return connection.execute(_FORGET, {"before": before, "limit": limit}).rowcount


def listed(
    connection: Connection, wanted: WorkloadFilter, cursor: str | None, limit: int
) -> tuple[list[WorkloadRow], str | None]:
    """A page, newest first, and the cursor of the next; see `Store.list_workloads`."""
    keys = connection.execute(page_query(wanted, cursor, limit)).all()
    more = len(keys) > limit
    keys = keys[:limit]
    rows = _newest_first(get(connection, [key.uid for key in keys]))
    return rows, _cursor(keys[-1].created_at, keys[-1].uid) if more else None


def page_query(wanted: WorkloadFilter, cursor: str | None, limit: int) -> Select[tuple[str, datetime]]:
    """Keys of a page and one more row, which says whether there is a next page."""
    columns = workloads.c
    query = select(columns.uid, columns.created_at).order_by(columns.created_at.desc(), columns.uid.desc())
    query = query.where(*_conditions(wanted)).limit(limit + 1)
    if cursor is not None:
        created_at, uid = _after(cursor)
        query = query.where(tuple_(columns.created_at, columns.uid) < tuple_(literal(created_at), literal(uid)))
    return query


def history(connection: Connection, uid: str) -> History:
    """Every admission and ledger interval of a workload; the ledger remembers it even when it was forgotten."""
    intervals = select(ledger).where(ledger.c.workload_uid == uid).order_by(ledger.c.since, ledger.c.id)
    return History(
        admissions_of(connection, uid),
        tuple(
            LedgerInterval(
                row.queue,
                row.user,
                Cell(row.flavor, row.resource),
                row.amount,
                LedgerState(row.state),
                row.since,
                row.until,
            )
            for row in connection.execute(intervals)
        ),
    )


def admissions_of(connection: Connection, uid: str) -> tuple[AdmissionRow, ...]:
    """Every admission of a workload that is stored, oldest first."""
    found = select(admissions).where(admissions.c.workload_uid == uid).order_by(admissions.c.attempt)
    return tuple(_admission(row) for row in connection.execute(found))


class _Chosen:
    """Which workloads are read: given ones, or all (that have not ended)."""

    def __init__(self, uids: Sequence[str] | None = None, *, ended: bool = False) -> None:
        self._uids, self._ended = uids, ended

    def of(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a column of workload uids is among them."""
        if self._uids is not None:
            return column == any_(literal(list(self._uids), ARRAY(Text)))
        if self._ended:
            return true()
        if column is workloads.c.uid:
            return text(NOT_ENDED)  # type: ignore[return-value]
        return column.in_(select(workloads.c.uid).where(text(NOT_ENDED)))


def _read(connection: Connection, chosen: _Chosen) -> list[WorkloadRow]:
    query = select(admissions).where(admissions.c.ended_at.is_(None), chosen.of(admissions.c.workload_uid))
    opened = {row.workload_uid: _admission(row) for row in connection.execute(query)}
    groups = _pod_groups(connection, chosen)
    query = select(*_COLUMNS).where(chosen.of(workloads.c.uid)).order_by(workloads.c.uid)
    return [_workload(row, groups.get(row.uid, ()), opened.get(row.uid)) for row in connection.execute(query)]


def _pod_groups(connection: Connection, chosen: _Chosen) -> Mapping[str, tuple[PodGroup, ...]]:
    columns = pod_sets.c
    sets: dict[tuple[str, int], list[PodSet]] = {}
    query = select(pod_sets).where(chosen.of(columns.workload_uid))
    query = query.order_by(columns.workload_uid, columns.group_index, columns["index"])
    for row in connection.execute(query).mappings():
        sets.setdefault((row["workload_uid"], row["group_index"]), []).append(codec.pod_set_from_row(row))
    groups: dict[str, list[PodGroup]] = {}
    query = select(pod_groups).where(chosen.of(pod_groups.c.workload_uid))
    query = query.order_by(pod_groups.c.workload_uid, pod_groups.c["index"])
    for row in connection.execute(query).mappings():
        members = tuple(sets.get((row["workload_uid"], row["index"]), ()))
        groups.setdefault(row["workload_uid"], []).append(codec.pod_group_from_row(row, members))
    return {uid: tuple(found) for uid, found in groups.items()}


def _workload(row: Row[Any], groups: tuple[PodGroup, ...], admission: AdmissionRow | None) -> WorkloadRow:
    values = dict(row._mapping)
    values["state"] = State(row.state)
    values["after_drain"] = State(row.after_drain) if row.after_drain is not None else None
    values["groups"] = tuple(row.groups)
    values["topology"] = codec.topology_request(row.topology)
    values["checks"] = codec.checks(row.checks)
    values["relabels"] = codec.relabels(row.relabels)
    return WorkloadRow(**values, pod_groups=groups, admission=admission)


def _admission(row: Row[Any]) -> AdmissionRow:
    return AdmissionRow(
        attempt=row.attempt,
        admission=codec.admission_from_json(row.workload_uid, row.admission),
        admitted_at=row.admitted_at,
        checked_at=row.checked_at,
        started_at=row.started_at,
        ready_at=row.ready_at,
        unready_at=row.unready_at,
        unplaced_at=row.unplaced_at,
        evicted_at=row.evicted_at,
        ended_at=row.ended_at,
        cause=row.cause,
        underlying=row.underlying,
        cause_message=row.cause_message,
        by=row.by,
    )


def _newest_first(rows: Iterable[WorkloadRow]) -> list[WorkloadRow]:
    return sorted(rows, key=lambda row: (row.created_at, row.uid), reverse=True)


def _conditions(wanted: WorkloadFilter) -> list[ColumnElement[bool]]:
    columns = workloads.c
    found: list[ColumnElement[bool]] = []
    if wanted.queues:
        found.append(_in(columns.queue, wanted.queues))
    if wanted.states:
        found.append(_in(columns.state, [state.value for state in wanted.states]))
    if wanted.user:
        found.append(columns.user == wanted.user)
    if wanted.kind:
        found.append(columns.kind == wanted.kind)
    if wanted.namespace:
        found.append(columns.namespace == wanted.namespace)
    if wanted.text:
        found.append(SEARCH.contains(wanted.text.lower(), autoescape=True))
    return found


def _in(column: ColumnElement[str], values: Sequence[str]) -> ColumnElement[bool]:
    # One value as an equation: then an index on (column, created_at, uid) gives the order too.
    return column == values[0] if len(values) == 1 else column.in_(values)


def _cursor(created_at: datetime, uid: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([created_at, uid])).rstrip(b"=").decode()


def _after(cursor: str) -> tuple[datetime, str]:
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        created_at, uid = msgspec.json.decode(data, type=tuple[datetime, str])
    except (binascii.Error, msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise BadCursor(f"not a cursor of this list: {cursor!r:.60}") from error
    if created_at.tzinfo is None or "\0" in uid:
        raise BadCursor(f"not a cursor of this list: {cursor!r:.60}")
    return created_at, uid
