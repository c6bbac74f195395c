"""Reads workloads with their pod groups and open admissions, a query a table whatever their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, Text, any_, literal, select, text, true, tuple_
from sqlalchemy.dialects.postgresql import ARRAY

from queue_manager.engine.configuration import Cell
from queue_manager.engine.workload import PodGroup
from queue_manager.store import codec, listing
from queue_manager.store.history import RECORD, records
from queue_manager.store.listing import Key
from queue_manager.store.records import ENDED, AdmissionRow, LedgerState, State, WorkloadFilter, WorkloadRow
from queue_manager.store.schema import NOT_ENDED, admissions, ledger, pod_groups, pod_sets, workloads
from queue_manager.store.schema import history as past
from queue_manager.store.sharing import Shared

_COLUMNS = [column for column in workloads.columns if column.name not in ("requested", "open_attempt", "holds_open")]
_KEYS = [column.name for column in _COLUMNS]
"""Rows that become workloads begin with these columns, in this order."""
_COMMON = ("kind", "namespace", "local_queue", "queue", "priority_class", "user", "reason", "message")
"""Columns in which many rows say the same."""
_NAMES = ", ".join(f'r."{column.name}"' for column in _COLUMNS)
_PAST = f"SELECT {_NAMES}, h.pod_groups, h.pod_sets FROM workload_history h CROSS JOIN LATERAL {RECORD} r "
_PAST_BY_UID = text(f"{_PAST} WHERE h.uid = ANY(:uids)")
# The join lets each key look into the one partition that has it.
_PAST_BY_KEY = text(
    f"SELECT {_NAMES}, h.pod_groups, h.pod_sets FROM unnest(CAST(:uids AS text[]), CAST(:ends AS timestamptz[])) "
    "AS k (uid, finished_at) JOIN workload_history h ON h.uid = k.uid AND h.finished_at = k.finished_at "
    f"CROSS JOIN LATERAL {RECORD} r"
)
_PAST_ADMISSIONS = text(
    f"SELECT r.* FROM workload_history h CROSS JOIN LATERAL {records(admissions)} r WHERE h.uid = :uid "
    "ORDER BY r.attempt"
)


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


def versions(connection: Connection) -> dict[str, int]:
    """The version of each workload that has not ended, by uid."""
    query = select(workloads.c.uid, workloads.c.version).where(text(NOT_ENDED))
    return {row.uid: row.version for row in connection.execute(query)}


def get(connection: Connection, uids: Sequence[str]) -> list[WorkloadRow]:
    """Those of the workloads that are stored, by uid."""
    if not uids:
        return []
    found = _read(connection, _Chosen(uids))
    missing = sorted(set(uids).difference(row.uid for row in found))
    if missing:
        found += [_past(row) for row in connection.execute(_PAST_BY_UID, {"uids": missing})]
        found.sort(key=lambda row: row.uid)
    return found


def find(
    connection: Connection, namespace: str, name: str, kind: str | None, *, alive: bool = False
) -> list[WorkloadRow]:
    """Workloads of a name, newest first: several kinds may share it, and deleted jobs of that name stay for a while.
    With `alive` those that have not ended, and others only where there are none: the history is seldom looked at."""
    live = get(connection, _named(connection, workloads, namespace, name, kind))
    if alive and (going := [row for row in live if row.state not in ENDED]):
        return _newest_first(going)
    return _newest_first([*live, *get(connection, _named(connection, past, namespace, name, kind))])


def _named(connection: Connection, table: Table, namespace: str, name: str, kind: str | None) -> list[str]:
    query = select(table.c.uid).where(table.c.namespace == namespace, table.c.name == name)
    if kind is not None:
        query = query.where(table.c.kind == kind)
    return list(connection.execute(query).scalars())


def charged(connection: Connection, names: Sequence[tuple[str, str]]) -> list[WorkloadRow]:
    """Workloads of any of the names (namespace, name) that are admitted."""
    query = select(workloads.c.uid).where(
        tuple_(workloads.c.namespace, workloads.c.name).in_(names), workloads.c.open_attempt.is_not(None)
    )
    return get(connection, list(connection.execute(query).scalars()))


def listed(
    connection: Connection, wanted: WorkloadFilter, sort: str, cursor: str | None, limit: int
) -> tuple[list[WorkloadRow], str | None]:
    """A page, and the cursor of the next; see `Store.list_workloads`."""
    keys, following = listing.page(connection, wanted, sort, cursor, limit)
    return of_keys(connection, keys), following


def of_keys(connection: Connection, keys: Sequence[Key]) -> list[WorkloadRow]:
    """The workloads of a page, or of a part of it, in its order; what is stored no more is left out."""
    live = [key.uid for key in keys if key.finished_at is None]
    found = {row.uid: row for row in get(connection, live)}
    ended = [key for key in keys if key.finished_at is not None]
    if ended:
        arguments = {"uids": [key.uid for key in ended], "ends": [key.finished_at for key in ended]}
        found.update((row.uid, _past(row)) for row in connection.execute(_PAST_BY_KEY, arguments))
    # What has moved since the page was read: into the history, or out of it.
    if gone := [key.uid for key in keys if key.uid not in found]:
        found.update((row.uid, row) for row in get(connection, gone))
    return [found[key.uid] for key in keys if key.uid in found]


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
    query = select(admissions).where(admissions.c.workload_uid == uid).order_by(admissions.c.attempt)
    found = connection.execute(query).all() or connection.execute(_PAST_ADMISSIONS, {"uid": uid}).all()
    return tuple(_admission(row) for row in found)


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
    shared = Shared()
    query = select(admissions).where(admissions.c.ended_at.is_(None), chosen.of(admissions.c.workload_uid))
    opened = {row.workload_uid: _admission(row) for row in connection.execute(query)}
    groups = _pod_groups(connection, chosen, shared)
    query = select(*_COLUMNS).where(chosen.of(workloads.c.uid)).order_by(workloads.c.uid)
    return [_workload(row, groups.get(row.uid, ()), opened.get(row.uid), shared) for row in connection.execute(query)]


def _pod_groups(connection: Connection, chosen: _Chosen, shared: Shared) -> Mapping[str, tuple[PodGroup, ...]]:
    columns = pod_sets.c
    query = select(pod_sets).where(chosen.of(columns.workload_uid))
    query = query.order_by(columns.workload_uid, columns.group_index, columns["index"])
    sets = connection.execute(query).mappings().all()
    query = select(pod_groups).where(chosen.of(pod_groups.c.workload_uid))
    query = query.order_by(pod_groups.c.workload_uid, pod_groups.c["index"])
    return _grouped(connection.execute(query).mappings().all(), sets, shared)


def _grouped(
    groups: Iterable[Mapping[Any, Any]], sets: Iterable[Mapping[Any, Any]], shared: Shared
) -> Mapping[str, tuple[PodGroup, ...]]:
    """Pod groups by uid of the workload, from rows of the two tables in order."""
    members: dict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in sets:
        members[row["workload_uid"]].append(row)
    found: dict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in groups:
        found[row["workload_uid"]].append(row)
    return {uid: shared.pod_groups(rows, members.get(uid, [])) for uid, rows in found.items()}


def _past(row: Row[Any]) -> WorkloadRow:
    """A workload of the history; its admissions are all over."""
    shared = Shared()
    return _workload(row, _grouped(row.pod_groups, row.pod_sets, shared).get(row.uid, ()), None, shared)


def _workload(
    row: Row[Any], groups: tuple[PodGroup, ...], admission: AdmissionRow | None, shared: Shared
) -> WorkloadRow:
    values = dict(zip(_KEYS, row, strict=False))  # not by name: of many rows that takes a third of the time
    for name in _COMMON:
        values[name] = shared.text(values[name])
    values["state"] = State(values["state"])
    values["after_drain"] = State(values["after_drain"]) if values["after_drain"] is not None else None
    values["groups"] = tuple(values["groups"])
    values["topology"] = codec.topology_request(values["topology"]) if values["topology"] is not None else None
    values["checks"] = codec.checks(values["checks"]) if values["checks"] else ()
    values["relabels"] = codec.relabels(values["relabels"]) if values["relabels"] else ()
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
