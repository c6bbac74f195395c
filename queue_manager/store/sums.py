"""Sums for pages and metrics: usage from the ledger, waiting requests, counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from queue_manager.engine.configuration import Cell
from queue_manager.store.records import LedgerState, State
from queue_manager.store.schema import NOT_ENDED

USAGE = text(
    "SELECT queue, flavor, resource, state, sum(amount)::text AS amount FROM ledger WHERE until IS NULL "
    "GROUP BY queue, flavor, resource, state ORDER BY queue, flavor, resource, state"
)
WAITING = text(
    "SELECT w.queue, e.key AS resource, sum(e.value::numeric)::text AS amount FROM workloads w "
    "CROSS JOIN LATERAL jsonb_each_text(w.requested) AS e "
    f"WHERE w.state = 'waiting' AND w.{NOT_ENDED} GROUP BY w.queue, e.key ORDER BY w.queue, e.key"
)
COUNTS = text(f"SELECT queue, state, count(*) FROM workloads WHERE {NOT_ENDED} GROUP BY queue, state")
_WAITING = text(f"SELECT count(*) FROM workloads WHERE queue = :queue AND state = 'waiting' AND {NOT_ENDED}")
_EXPLANATION = text("SELECT body FROM explanations WHERE workload_uid = :uid")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sum of the open ledger intervals of a queue, cell and state, in base units."""

    queue: str
    cell: Cell
    state: LedgerState
    amount: int


def usage(connection: Connection) -> list[UsageRow]:
    """Sums of all open intervals, in a fixed order. `used` is reserved plus draining."""
    return [
        UsageRow(row.queue, Cell(row.flavor, row.resource), LedgerState(row.state), int(row.amount))
        for row in connection.execute(USAGE)
    ]


def waiting_requests(connection: Connection) -> dict[str, dict[str, int]]:
    """What waiting workloads need, by queue and resource: for each its greatest need over its stages."""
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(WAITING):
        found.setdefault(row.queue, {})[row.resource] = int(row.amount)
    return found


def queue_counts(connection: Connection) -> dict[str, dict[State, int]]:
    """Numbers of workloads that have not ended, by queue and state; states without any are left out."""
    found: dict[str, dict[State, int]] = {}
    for queue, state, count in connection.execute(COUNTS):
        found.setdefault(queue, {})[State(state)] = count
    return found


def waiting_in(connection: Connection, queue: str) -> int:
    """How many workloads wait in a queue."""
    return int(connection.execute(_WAITING, {"queue": queue}).scalar_one())


def explanation(connection: Connection, uid: str) -> Mapping[str, Any] | None:
    """Why the workload waits, in the API's shape; None when it does not, or nobody has looked yet."""
    body: Mapping[str, Any] | None = connection.execute(_EXPLANATION, {"uid": uid}).scalar()
    return body
