"""The audit log: who did what, when, from where and why. Append-only by trigger, for every role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from queue_manager.store import codec

_INSERT = text(
    "INSERT INTO audit (at, who, action, object, before, after, source, reason) "
    "VALUES (:at, :who, :action, :object, CAST(:before AS jsonb), CAST(:after AS jsonb), :source, :reason)"
)
_COLUMNS = "id, at, who, action, object, before, after, source, reason"
_LATEST = text(
    f"SELECT {_COLUMNS} FROM audit WHERE CAST(:before AS bigint) IS NULL OR id < :before ORDER BY id DESC LIMIT :limit"
)
_OF_OBJECT = text(
    f"SELECT {_COLUMNS} FROM audit WHERE object = :object AND (CAST(:before AS bigint) IS NULL OR id < :before) "
    "ORDER BY id DESC LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log; `before` and `after` are JSON of whatever was changed."""

    id: int
    at: datetime
    who: str
    action: str
    object: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    source: str
    reason: str


def write(
    connection: Connection,
    *,
    who: str,
    action: str,
    object: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    source: str,
    reason: str,
    now: datetime,
) -> None:
    """Adds a line, in the transaction of what it tells of."""
    connection.execute(
        _INSERT,
        {
            "at": now,
            "who": who,
            "action": action,
            "object": object,
            "before": codec.encode(before) if before is not None else None,
            "after": codec.encode(after) if after is not None else None,
            "source": source,
            "reason": reason,
        },
    )


def entries(connection: Connection, limit: int, before: int | None, object: str | None) -> list[AuditEntry]:
    """Lines with an id below `before`, newest first, of one object or all."""
    arguments = {"limit": limit, "before": before}
    if object is None:
        rows = connection.execute(_LATEST, arguments)
    else:
        rows = connection.execute(_OF_OBJECT, {**arguments, "object": object})
    return [AuditEntry(*row) for row in rows]
