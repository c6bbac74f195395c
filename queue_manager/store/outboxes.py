"""The outbox: what executors have to do at the API server. Entries are deleted when done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from queue_manager.store import leases
from queue_manager.store.records import Action, OutboxEntry

_PENDING = text(
    "SELECT id, workload_uid, action, payload, tries, last_error, created_at, not_before FROM outbox ORDER BY id"
)
_DONE = text("DELETE FROM outbox WHERE id = ANY(:ids)")
_FAILED = text("UPDATE outbox SET tries = tries + 1, last_error = :error, not_before = :not_before WHERE id = :id")
_OLDEST = text("SELECT min(created_at) FROM outbox")


def pending(connection: Connection) -> list[OutboxEntry]:
    """Everything not done, in the order decided, also what waits for its `not_before`."""
    return [
        OutboxEntry(
            id=row.id,
            uid=row.workload_uid,
            action=Action(row.action),
            payload=row.payload,
            tries=row.tries,
            last_error=row.last_error,
            created_at=row.created_at,
            not_before=row.not_before,
        )
        for row in connection.execute(_PENDING)
    ]


def done(connection: Connection, epoch: int, ids: Sequence[int]) -> None:
    """Deletes entries; unknown ids are ignored."""
    leases.fence(connection, epoch)
    connection.execute(_DONE, {"ids": list(ids)})


def failed(connection: Connection, epoch: int, id: int, error: str, not_before: datetime) -> None:
    """Counts a failed try of an entry, which waits until `not_before`."""
    leases.fence(connection, epoch)
    connection.execute(_FAILED, {"id": id, "error": error.replace("\0", "�"), "not_before": not_before})


def age(connection: Connection, now: datetime) -> timedelta:
    """How long the oldest entry has been waiting; zero when there is none."""
    oldest: datetime | None = connection.execute(_OLDEST).scalar()
    return max(now - oldest, timedelta()) if oldest is not None else timedelta()
