"""Nodes and labels of namespaces as the leader saw them, for plans and explanations outside the leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from queue_manager.store import codec, facts, leases
from queue_manager.store.notify import CHANGED, notify
from queue_manager.store.records import NodeRow
from queue_manager.store.rowset import Rowset

SEEN = "nodes"
"""Name of the fact whose time says when the nodes were last saved."""

NAMESPACES = "namespaces"
"""Name of the fact that holds the labels of each namespace."""

_NODE = Rowset(
    {
        "name": "text",
        "labels": "jsonb",
        "taints": "jsonb",
        "allocatable": "jsonb",
        "foreign": "jsonb",
        "ready": "boolean",
        "unschedulable": "boolean",
    }
)
_UPSERT = text(
    f"INSERT INTO nodes AS n ({_NODE.names()}) SELECT {_NODE.names('r.')} FROM {_NODE.source} "
    f"ON CONFLICT (name) DO UPDATE SET {_NODE.assignments('excluded.', without=('name',))} "
    f"WHERE ({_NODE.names('n.')}) IS DISTINCT FROM ({_NODE.names('excluded.')})"
)
_DELETE = text("DELETE FROM nodes WHERE name = ANY(:names)")
_ALL = text(f"SELECT {_NODE.names()} FROM nodes ORDER BY name")


def save(connection: Connection, epoch: int, rows: Sequence[NodeRow], removed: Sequence[str], now: datetime) -> None:
    """Adds, replaces and removes nodes, and notes that they are as of `now`."""
    leases.fence(connection, epoch)
    changed = 0
    if rows:
        ordered = sorted(rows, key=lambda row: row.name)
        changed += connection.execute(_UPSERT, {"rows": codec.encode(ordered)}).rowcount
    if removed:
        changed += connection.execute(_DELETE, {"names": list(removed)}).rowcount
    facts.put(connection, SEEN, None, now)
    if changed:
        notify(connection, CHANGED)


def load(connection: Connection) -> list[NodeRow]:
    """All nodes by name."""
    return [
        NodeRow(
            name=row.name,
            labels=row.labels,
            taints=tuple((key, value, effect) for key, value, effect in row.taints),
            allocatable=row.allocatable,
            foreign=row.foreign,
            ready=row.ready,
            unschedulable=row.unschedulable,
        )
        for row in connection.execute(_ALL)
    ]


def save_namespaces(connection: Connection, epoch: int, labels: Mapping[str, Mapping[str, str]], now: datetime) -> None:
    """Replaces the labels of all namespaces."""
    leases.fence(connection, epoch)
    facts.put(connection, NAMESPACES, labels, now)
