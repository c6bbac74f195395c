"""Pages of workloads, live and ended ones through one cursor: which rows a page has, by an index whatever is asked for.

A page is the first rows after a place in a total order: rows that come or go elsewhere never move it. Both tables give
their first rows by an index of their own, and of those the first are taken. The statements are in `list_queries.py`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection

from queue_manager.store import past_rows
from queue_manager.store.list_queries import ORDERS, Shape, order_of, places, shape_of, statement
from queue_manager.store.past_rows import CONTENT, PastRow
from queue_manager.store.records import WorkloadFilter

WINDOW = 2_000
"""A text that a page's worth of so many rows has is common; a rarer one is looked up in the search index."""
NEWEST_FIRST = "-created"
SORTS = tuple(f"{sign}{name}" for name in ORDERS for sign in ("", "-"))
"""What a list may be sorted by; with `-` the greatest first. By `finished` only what has ended is listed."""
_BIGINT = 2**63


class BadCursor(ValueError):
    """The cursor of a list is not one that we gave."""


@dataclass(frozen=True, slots=True)
class Key:
    """A row of a page. `finished_at` is there where it is in the history, and then `content`, where a page was read
    with it, is what lists show of it."""

    uid: str
    version: int
    finished_at: datetime | None
    content: Sequence[Any] | None = None

    def past(self) -> PastRow | None:
        """What lists show of a row of the history, if it was read."""
        if self.content is None or self.finished_at is None:
            return None
        return past_rows.read(self.uid, self.version, self.finished_at, self.content)


def page(
    connection: Connection,
    wanted: WorkloadFilter,
    sort: str,
    cursor: str | None,
    limit: int,
    *,
    content: bool = False,
) -> tuple[list[Key], str | None]:
    """Rows of a page in order, and the cursor of the next one. With `content` what is in the history comes with what is
    shown of it, unless a text is looked for."""
    after = read_cursor(sort, cursor) if cursor is not None else None
    found = _first_of_all(connection, wanted, sort, after, limit) if wanted.text else None
    if found is None:
        content = content and not wanted.text
        found = _execute(connection, shape_of(wanted, sort, after, limit + 1, content=content), wanted, after)
    else:
        content = False
    keys = [Key(row[0], row[1], row[2], row[-len(CONTENT) :] if content else None) for row in found[:limit]]
    if len(found) <= limit:
        return keys, None
    uid, _, _, *rest = found[limit - 1]
    return keys, make_cursor(sort, [*rest[: len(order_of(sort).columns) - 1], uid])


def _first_of_all(
    connection: Connection, wanted: WorkloadFilter, sort: str, after: Sequence[Any] | None, limit: int
) -> Sequence[Sequence[Any]] | None:
    """A page of a text that many names have, from the first rows in order whatever their names are; None where these
    are not enough, for then the text is rare and the search index has few rows to sort."""
    found = _execute(connection, shape_of(wanted, sort, after, limit + 1, window=WINDOW), wanted, after)
    return found if len(found) > limit else None


def _execute(
    connection: Connection, shape: Shape, wanted: WorkloadFilter, after: Sequence[Any] | None
) -> Sequence[Sequence[Any]]:
    return connection.exec_driver_sql(statement(shape), arguments(wanted, after)).all()


def arguments(wanted: WorkloadFilter, after: Sequence[Any] | None) -> Mapping[str, Any]:
    """Values of a statement's parameters, and of those that it lacks."""
    text = wanted.text.lower().replace("/", "//").replace("%", "/%").replace("_", "/_")
    values: dict[str, Any] = {
        "queue": wanted.queues[0] if wanted.queues else "",
        "queues": list(wanted.queues),
        "user": wanted.user,
        "kind": wanted.kind,
        "namespace": wanted.namespace,
        "text": f"%{text}%",
    }
    values.update(zip(places(after), after or (), strict=True))
    return values


def make_cursor(sort: str, values: Sequence[Any]) -> str:
    """The place of a row with these values."""
    return base64.urlsafe_b64encode(msgspec.json.encode([sort, *values])).rstrip(b"=").decode()


def read_cursor(sort: str, cursor: str) -> list[Any]:
    """The values of a place; BadCursor for what is none, or one of another order."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        found, *values = msgspec.json.decode(data, type=order_of(sort).cursor)
    except (binascii.Error, msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise BadCursor(f"not a cursor of this list: {cursor!r:.60}") from error
    if found != sort or not all(_storable(value) for value in values):
        raise BadCursor(f"not a cursor of this list: {cursor!r:.60}")
    return list(values)


def _storable(value: object) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is not None
    if isinstance(value, int):
        return -_BIGINT <= value < _BIGINT
    return "\0" not in str(value)
