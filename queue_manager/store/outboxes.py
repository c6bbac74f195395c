"""The outbox: what executors have to do at the API server. Entries are deleted when done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from queue_manager.store import leases
from queue_manager.store.pipeline import first_of, in_words_of_driver, pipeline
from queue_manager.store.records import Action, FailedTry, OutboxEntry

_PENDING = text(
    "SELECT id, workload_uid, action, payload, tries, last_error, created_at, not_before FROM outbox ORDER BY id"
)
_DONE = in_words_of_driver("DELETE FROM outbox WHERE id = ANY(:ids)")
_FAILED = text(
    """
    UPDATE outbox SET tries = outbox.tries + failed.tries, last_error = failed.error, not_before = failed.not_before
    FROM (
        SELECT id, count(*) AS tries, (array_agg(error ORDER BY at DESC))[1] AS error, max(not_before) AS not_before
        FROM unnest(CAST(:ids AS bigint[]), CAST(:errors AS text[]), CAST(:until AS timestamptz[]))
            WITH ORDINALITY AS each(id, error, not_before, at)
        GROUP BY id
    ) AS failed
    WHERE outbox.id = failed.id
    """
)
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
    with pipeline(connection) as send:
        found = send(leases.FENCE, leases.FENCED)
        send(_DONE, {"ids": list(ids)})
    leases.heed(first_of(found), epoch)


def failed(connection: Connection, epoch: int, tries: Sequence[FailedTry]) -> None:
    """Counts failed tries of entries, oldest first; each waits as its last one says. Unknown ids are ignored."""
    leases.fence(connection, epoch)
    values = {
        "ids": [one.id for one in tries],
        "errors": [one.error.replace("\0", "�") for one in tries],
        "until": [one.not_before for one in tries],
    }
    connection.execute(_FAILED, values)


def age(connection: Connection, now: datetime) -> timedelta:
    """How long the oldest entry has been waiting; zero when there is none."""
    oldest: datetime | None = connection.execute(_OLDEST).scalar()
    return max(now - oldest, timedelta()) if oldest is not None else timedelta()
