"""Requests that may be sent again (`Idempotency-Key`): what was asked first, and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

KEPT = timedelta(hours=24)
"""How long an answer is there for those who ask again."""
ABANDONED = timedelta(minutes=1)
"""After so long without an answer the process that worked on it is taken for dead."""

_BEGIN = text(
    "INSERT INTO replays AS r (who, key, hash, begun_at) VALUES (:who, :key, :hash, :now) ON CONFLICT (who, key) "
    "DO UPDATE SET hash = excluded.hash, begun_at = excluded.begun_at, status = NULL, media_type = '', body = NULL "
    "WHERE r.begun_at < :expired OR (r.status IS NULL AND r.hash = excluded.hash AND r.begun_at < :abandoned) "
    "RETURNING who"
)
_FIND = text("SELECT hash, status, media_type, body FROM replays WHERE who = :who AND key = :key")
_FINISH = text(
    "UPDATE replays SET status = :status, media_type = :media_type, body = :body WHERE who = :who AND key = :key"
)
_DROP = text("DELETE FROM replays WHERE who = :who AND key = :key AND status IS NULL")
_PURGE = text("DELETE FROM replays WHERE begun_at < :before")


@dataclass(frozen=True, slots=True)
class Replay:
    """A request that came before with the same key. `status` is None while it is worked on."""

    hash: bytes
    status: int | None
    media_type: str
    body: bytes


def begin(connection: Connection, who: str, key: str, hash: bytes, now: datetime) -> Replay | None:
    """None when the request is the first with its key; else what is known of that."""
    arguments = {"who": who, "key": key, "hash": hash, "now": now, "expired": now - KEPT, "abandoned": now - ABANDONED}
    if connection.execute(_BEGIN, arguments).scalar() is not None:
        return None
    row = connection.execute(_FIND, {"who": who, "key": key}).one()
    return Replay(bytes(row.hash), row.status, row.media_type, bytes(row.body or b""))


def finish(connection: Connection, who: str, key: str, status: int, media_type: str, body: bytes) -> None:
    """Keeps the answer."""
    arguments = {"who": who, "key": key, "status": status, "media_type": media_type, "body": body}
    connection.execute(_FINISH, arguments)


def drop(connection: Connection, who: str, key: str) -> None:
    """The request failed: it may be tried again."""
    connection.execute(_DROP, {"who": who, "key": key})


def purge(connection: Connection, now: datetime) -> int:
    """Forgets what is kept no longer."""
    return connection.execute(_PURGE, {"before": now - KEPT}).rowcount
