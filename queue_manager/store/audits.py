"""The audit log: who did what, when, from where and why. Append-only by trigger, for every role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, literal, select, text, tuple_

from queue_manager.store import codec
from queue_manager.store.schema import audit

_FIELDS = "at, who, action, object, before, after, source, reason, address"
_COLUMNS = f"id, {_FIELDS}"
_INSERT = text(
    f"INSERT INTO audit ({_FIELDS}) VALUES "
    "(:at, :who, :action, :object, CAST(:before AS jsonb), CAST(:after AS jsonb), :source, :reason, :address)"
)
_INSERT_MANY = text(
    f"INSERT INTO audit ({_FIELDS}) "
    "SELECT :at, :who, r.action, r.object, r.before, r.after, :source, :reason, :address "
    "FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (action text, object text, before jsonb, after jsonb)"
)
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
    address: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters of a search, and its order; "" and None are no filter. `object` is the beginning of an object's name."""

    who: str = ""
    action: str = ""
    object: str = ""
    since: datetime | None = None
    until: datetime | None = None
    oldest_first: bool = False


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that was done to one object."""

    action: str
    object: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


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
    address: str = "",
) -> None:
    """Adds a line, in the transaction of what it tells of. `source` says how somebody proved who they are, `address`
    where the request came from."""
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
            "address": address,
        },
    )


def write_many(
    connection: Connection, deeds: Sequence[Deed], *, who: str, source: str, reason: str, now: datetime, address: str
) -> None:
    """A line for each deed of one change."""
    values = {"at": now, "who": who, "source": source, "reason": reason, "address": address}
    if deeds:
        connection.execute(_INSERT_MANY, {**values, "rows": codec.encode(deeds)})


def entries(connection: Connection, limit: int, before: int | None, object: str | None) -> list[AuditEntry]:
    """Lines with an id below `before`, newest first, of one object or all."""
    arguments = {"limit": limit, "before": before}
    if object is None:
        rows = connection.execute(_LATEST, arguments)
    else:
        rows = connection.execute(_OF_OBJECT, {**arguments, "object": object})
    return [AuditEntry(*row) for row in rows]


Place = tuple[datetime, int]
"""(time, id) of a line: what comes after it is older, or newer where the oldest comes first."""


def search(connection: Connection, wanted: Wanted, after: Place | None, limit: int) -> list[AuditEntry]:
    """Lines that fit all filters, after a place in their order."""
    return [AuditEntry(*row) for row in connection.execute(search_query(wanted, after, limit))]


def search_query(wanted: Wanted, after: Place | None, limit: int) -> Select[Any]:
    """The query of `search`; each filter has an index that ends in the order."""
    columns = audit.c
    query = select(*(columns[name.strip()] for name in _COLUMNS.split(",")))
    if wanted.who:
        query = query.where(columns.who == wanted.who)
    if wanted.action:
        query = query.where(columns.action == wanted.action)
    if wanted.object:
        query = query.where(columns.object.startswith(wanted.object, autoescape=True))
    if wanted.since is not None:
        query = query.where(columns.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(columns.at < wanted.until)
    here = tuple_(columns.at, columns.id)
    if after is not None:
        place = tuple_(literal(after[0]), literal(after[1]))
        query = query.where(here > place if wanted.oldest_first else here < place)
    order = (columns.at, columns.id) if wanted.oldest_first else (columns.at.desc(), columns.id.desc())
    return query.order_by(*order).limit(limit)
