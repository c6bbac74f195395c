"""Rows of the history as lists show them: what is shown is taken from a row as it is kept, and the rest not looked at.

A whole `WorkloadRow` (`workloads.py`) of the history costs the database a record of each table, and us its objects: ten
times as much. A page has a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from queue_manager.engine.workload import TopologyRequest
from queue_manager.store.records import Check, State

NOTHING = msgspec.Raw(b"{}")


class Rest(msgspec.Struct, frozen=True):
    """What a workload has beside the columns that lists go by, with what rows have that were moved before a column was
    there. Run times are microseconds."""

    local_queue: str
    attempt: int
    priority_class: str = ""
    reason: str = ""
    message: str = ""
    after_drain: State | None = None
    not_before: datetime | None = None
    requeues: int = 0
    requeued_at: datetime | None = None
    max_run_time: int | None = None
    past_run_time: int = 0
    checks: tuple[Check, ...] = ()
    topology: TopologyRequest | None = None


class Group(msgspec.Struct, frozen=True):
    """A pod group without its pod sets."""

    index: int
    name: str
    policy: str
    minimum: int | None = None
    topology: TopologyRequest | None = None


class Placement(msgspec.Struct, frozen=True):
    """What is shown of where a pod set may run; `node_selector` is JSON."""

    node_selector: msgspec.Raw = NOTHING
    topology: TopologyRequest | None = None


class Set(msgspec.Struct, frozen=True):
    """A pod set; `requests` of one pod are JSON."""

    group_index: int
    index: int
    name: str
    count: int
    first_stage: int
    last_stage: int
    reclaimed: int = 0
    min_count: int | None = None
    requests: msgspec.Raw = NOTHING
    placement: Placement = Placement()


class PastRow(NamedTuple):
    """A workload of the history, with its pod groups and their pod sets in order."""

    uid: str
    version: int
    finished_at: datetime
    kind: str
    namespace: str
    name: str
    created_at: datetime
    state: str
    queue: str
    priority: int
    user: str
    rest: Rest
    groups: tuple[Group, ...]
    sets: tuple[Set, ...]


CONTENT = (
    "kind",
    "namespace",
    "name",
    "created_at",
    "state",
    "queue",
    "priority",
    "user",
    "row",
    "pod_groups",
    "pod_sets",
)
"""Columns that it takes beside the key; the last three are JSON."""
_NAMES = ", ".join(f'h."{name}"' for name in CONTENT[:-3])
# The join lets each key look into the one partition that has it.
_BY_KEY = (
    f"SELECT h.uid, h.version, h.finished_at, {_NAMES}, h.row::text, h.pod_groups::text, h.pod_sets::text "
    "FROM unnest(%(uids)s::text[], %(ends)s::timestamptz[]) AS k (uid, finished_at) "
    "JOIN workload_history h ON h.uid = k.uid AND h.finished_at = k.finished_at"
)
_rest = msgspec.json.Decoder(Rest).decode
_groups = msgspec.json.Decoder(tuple[Group, ...]).decode
_sets = msgspec.json.Decoder(tuple[Set, ...]).decode


def read(uid: str, version: int, finished_at: datetime, content: Sequence[Any]) -> PastRow:
    """A row from its key and the columns `CONTENT`, JSON as text."""
    *columns, row, groups, sets = content
    return PastRow._make((uid, version, finished_at, *columns, _rest(row), _groups(groups), _sets(sets)))


def of_keys(connection: Connection, uids: Sequence[str], ends: Sequence[datetime]) -> list[PastRow]:
    """Those that the history has, in no order."""
    if not uids:
        return []
    found = connection.exec_driver_sql(_BY_KEY, {"uids": list(uids), "ends": list(ends)}).all()
    return [read(row[0], row[1], row[2], row[3:]) for row in found]
