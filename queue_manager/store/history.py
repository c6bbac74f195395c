"""Workloads that ended a while ago: one row each, in partitions by the month of their end.

`workloads` and what hangs on it hold what is alive, and what ended not long ago. The leader moves the rest here, so the
hot tables stay small however long the installation runs, and forgets the past by dropping months. Whoever reads
workloads reads both (`workloads.py`); a commit of a workload that is here (its job came back to life) brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Table, TextClause, text

from queue_manager.store.schema import ENDED_STATES, admissions, history, pod_groups, pod_sets, workloads

AHEAD = timedelta(days=62)
"""How long before it begins a month's partition is there."""

_KEYS = [column.name for column in history.columns if column.name in workloads.columns]
_LISTED = ", ".join(f"'{name}'" for name in _KEYS)
_COLUMNS = ", ".join(f'"{name}"' for name in _KEYS)
_OF_WORKLOAD = ", ".join(f'w."{name}"' for name in _KEYS)


def _sql(default: TextClause | str) -> str:
    return f"'{default}'" if isinstance(default, str) else default.text


def _base(table: Table) -> str:
    """A record of a table with its columns' defaults: what rows lack that were moved before a column was there."""
    defaults = [
        f"'{column.name}', {_sql(column.server_default.arg)}"  # type: ignore[attr-defined]
        for column in table.columns
        if column.server_default is not None and column.computed is None and column.identity is None
    ]
    return f"jsonb_populate_record(NULL::{table.name}, jsonb_build_object({', '.join(defaults)}))"


RECORD = (
    f"jsonb_populate_record({_base(workloads)}, h.row || jsonb_build_object("
    + ", ".join(f"'{name}', h.\"{name}\"" for name in _KEYS)
    + "))"
)
"""The row of `workloads` that a row `h` of the history was."""


def records(table: Table) -> str:
    """The rows of a table that hangs on workloads, of a row `h` of the history."""
    return f"jsonb_populate_recordset({_base(table)}, h.{table.name})"


def _children(table: Table, order: str) -> str:
    found = f"SELECT jsonb_agg(to_jsonb(c) ORDER BY {order}) FROM {table.name} c WHERE c.workload_uid = w.uid"
    return f"COALESCE(({found}), '[]'::jsonb)"


_MOVE = text(
    "WITH chosen AS (SELECT uid FROM workloads w WHERE "
    f"state IN ({ENDED_STATES}) AND finished_at < :before "
    "AND NOT EXISTS (SELECT FROM instructions i WHERE i.workload_uid = w.uid) "
    "ORDER BY finished_at, uid LIMIT :limit FOR UPDATE SKIP LOCKED), "
    f"moved AS (INSERT INTO workload_history ({_COLUMNS}, row, pod_groups, pod_sets, admissions) "
    f"SELECT {_OF_WORKLOAD}, "
    f"to_jsonb(w) - ARRAY[{_LISTED}, 'open_attempt', 'holds_open'], "
    f"{_children(pod_groups, 'c.index')}, {_children(pod_sets, 'c.group_index, c.index')}, "
    f"{_children(admissions, 'c.attempt')} FROM workloads w WHERE w.uid IN (SELECT uid FROM chosen) RETURNING uid) "
    "DELETE FROM workloads WHERE uid IN (SELECT uid FROM moved)"
)
_VERSIONS = text("SELECT uid, version FROM workload_history WHERE uid = ANY(:uids) ORDER BY uid FOR UPDATE")
_TAKEN = "h AS (DELETE FROM workload_history WHERE uid = ANY(:uids) RETURNING *)"


def _insert(table: Table, source: str) -> str:
    names = [f'"{column.name}"' for column in table.columns if column.computed is None and column.identity is None]
    return f"INSERT INTO {table.name} ({', '.join(names)}) SELECT r.{', r.'.join(names)} FROM h, LATERAL {source} r"


# Foreign keys are checked when the statement is over, so one statement may write what refers to each other.
_BRING_BACK = text(
    f"WITH {_TAKEN}, w AS ({_insert(workloads, RECORD)}), g AS ({_insert(pod_groups, records(pod_groups))}), "
    f"s AS ({_insert(pod_sets, records(pod_sets))}) {_insert(admissions, records(admissions))}"
)
_KEEP = text("SELECT made, dropped FROM history_keep(:first, :last, :workloads_before, :usage_before)")


@dataclass(frozen=True, slots=True)
class Kept:
    """Partitions that were made ahead, and those dropped because all in them is older than is kept."""

    made: tuple[str, ...]
    dropped: tuple[str, ...]


def move(connection: Connection, before: datetime, limit: int) -> int:
    """Moves at most `limit` workloads that ended before, oldest first; how many. Those that somebody works on at this
    moment, or has yet to carry out an instruction of, are left for the next time."""
    return connection.execute(_MOVE, {"before": before, "limit": limit}).rowcount


def lock_versions(connection: Connection, uids: Sequence[str]) -> dict[str, int]:
    """Versions of those that are in the history, which stay there until the transaction ends."""
    if not uids:
        return {}
    return {row.uid: row.version for row in connection.execute(_VERSIONS, {"uids": list(uids)})}


def bring_back(connection: Connection, uids: Sequence[str]) -> None:
    """Moves workloads back among those that are alive, as they were."""
    if uids:
        connection.execute(_BRING_BACK, {"uids": list(uids)})


def keep(connection: Connection, now: datetime, workloads_before: datetime, usage_before: datetime) -> Kept:
    """Makes the partitions of this month and of those to come, drops months that are over for good: of workloads that
    ended, and of intervals of the ledger that ended, before these times."""
    found = connection.execute(
        _KEEP,
        {"first": now, "last": now + AHEAD, "workloads_before": workloads_before, "usage_before": usage_before},
    ).all()
    return Kept(
        tuple(row.made for row in found if row.made is not None),
        tuple(row.dropped for row in found if row.dropped is not None),
    )
