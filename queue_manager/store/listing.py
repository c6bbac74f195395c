"""Pages of workloads, live and ended ones through one cursor: which rows a page has, by an index whatever is asked for.

A page is the first rows after a place in a total order: rows that come or go elsewhere never move it. Both tables give
their first rows by an index of their own, and of those the first are taken.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    Text,
    UnaryExpression,
    func,
    literal,
    literal_column,
    null,
    select,
    text,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY

from queue_manager.store.records import ENDED, WorkloadFilter
from queue_manager.store.schema import ENDED_STATES, history, workloads

WINDOW = 2_000
"""A text that a page's worth of so many rows has is common; a rarer one is looked up in the search index."""
MERGED = 200
"""So many queues at most are read each by the index that has them in order; of more the planner chooses how."""


class BadCursor(ValueError):
    """The cursor of a list is not one that we gave."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a list is sorted by: columns that have an index in both tables, the last one the uid. `cursor` is the type
    of a place: the word of the order, and the columns' values."""

    columns: tuple[str, ...]
    cursor: Any


ORDERS = {
    "created": Order(("created_at", "uid"), tuple[str, datetime, str]),
    "finished": Order(("finished_at", "uid"), tuple[str, datetime, str]),
    "priority": Order(("priority", "created_at", "uid"), tuple[str, int, datetime, str]),
    "name": Order(("namespace", "name", "uid"), tuple[str, str, str, str]),
}
NEWEST_FIRST = "-created"
SORTS = tuple(f"{sign}{name}" for name in ORDERS for sign in ("", "-"))
"""What a list may be sorted by; with `-` the greatest first. By `finished` only what has ended is listed."""
_BIGINT = 2**63


@dataclass(frozen=True, slots=True)
class Key:
    """A row of a page. `finished_at` is there where it is in the history."""

    uid: str
    version: int
    finished_at: datetime | None


def page(
    connection: Connection, wanted: WorkloadFilter, sort: str, cursor: str | None, limit: int
) -> tuple[list[Key], str | None]:
    """Rows of a page in order, and the cursor of the next one."""
    found = _first_of_all(connection, wanted, sort, cursor, limit) if wanted.text else None
    if found is None:
        found = connection.execute(page_query(wanted, sort, cursor, limit)).all()
    keys = [Key(row.uid, row.version, row.ended_at) for row in found[:limit]]
    if len(found) <= limit:
        return keys, None
    last = found[limit - 1]._mapping
    return keys, make_cursor(sort, [last[name] for name in order_of(sort).columns])


def _first_of_all(
    connection: Connection, wanted: WorkloadFilter, sort: str, cursor: str | None, limit: int
) -> Sequence[Row[Any]] | None:
    """A page of a text that many names have, from the first rows in order whatever their names are; None where these
    are not enough, for then the text is rare and the search index has few rows to sort."""
    found = connection.execute(_window_query(wanted, sort, cursor)).all()
    fitting = [row for row in found if wanted.text.lower() in row.search]
    return fitting if len(fitting) > limit or len(found) < WINDOW else None


def _window_query(wanted: WorkloadFilter, sort: str, cursor: str | None) -> Select[Any]:
    return _union(replace(wanted, text=""), sort, cursor, WINDOW, searched=True)


def page_query(wanted: WorkloadFilter, sort: str, cursor: str | None, limit: int) -> Select[Any]:
    """Keys of a page and one more row, which says whether there is a next page."""
    return _union(wanted, sort, cursor, limit + 1)


def _union(wanted: WorkloadFilter, sort: str, cursor: str | None, limit: int, *, searched: bool = False) -> Select[Any]:
    after = read_cursor(sort, cursor) if cursor is not None else None
    branches = [_first(table, wanted, sort, after, limit, searched) for table in _tables(wanted)]
    found = union_all(*branches).subquery("found") if len(branches) > 1 else branches[0].subquery("found")
    return select(found).order_by(*_ordered(found, sort)).limit(limit)


def order_of(sort: str) -> Order:
    """The order that a word of `SORTS` means; ValueError for others."""
    if sort not in SORTS:
        raise ValueError(f"no list is sorted by {sort!r}; there are {', '.join(SORTS)}")
    return ORDERS[sort.removeprefix("-")]


def _tables(wanted: WorkloadFilter) -> list[Table]:
    only_live = wanted.states and not ENDED.intersection(wanted.states)
    return [workloads] if only_live else [workloads, history]


def _first(
    table: Table, wanted: WorkloadFilter, sort: str, after: Sequence[Any] | None, limit: int, searched: bool
) -> Select[Any]:
    """The first rows of one table."""
    queues = wanted.queues
    if sort.endswith("created") and 1 < len(queues) <= MERGED and not wanted.text:
        names = func.unnest(literal(list(queues), ARRAY(Text))).table_valued("name", name="names").render_derived()
        query = _query(table, wanted, sort, after, searched, table.c.queue == names.c.name)
        each = query.limit(limit).lateral("each")
        query = select(*each.c).select_from(names).join(each, text("true")).order_by(*_ordered(each, sort))
    else:
        query = _query(table, wanted, sort, after, searched, _in(table.c.queue, queues) if queues else true())
    return select(query.limit(limit).subquery(f"{table.name}_first"))


def _query(
    table: Table,
    wanted: WorkloadFilter,
    sort: str,
    after: Sequence[Any] | None,
    searched: bool,
    queues: ColumnElement[bool],
) -> Select[Any]:
    ended_at = table.c.finished_at if table is history else null().cast(table.c.finished_at.type)
    names = [name for name in order_of(sort).columns if name != "uid"]
    query = select(table.c.uid, table.c.version, ended_at.label("ended_at"), *(table.c[name] for name in names))
    if searched:
        query = query.add_columns(_search(table).label("search"))
    query = query.where(queues, *_conditions(table, wanted))
    if sort.endswith("finished") and table is workloads:
        query = query.where(text(f"workloads.state IN ({ENDED_STATES})"))
    if after is not None:
        place = tuple_(*(table.c[name] for name in order_of(sort).columns))
        there = tuple_(*(literal(value) for value in after))
        query = query.where(place < there if sort.startswith("-") else place > there)
    if wanted.text:
        # Without a limit in sight the search index is used: in order, all there is would be looked through.
        query = select(query.offset(literal_column("0")).subquery("fitting"))
        return query.order_by(*_ordered(query.get_final_froms()[0], sort))
    return query.order_by(*_ordered(table, sort))


def _ordered(source: FromClause, sort: str) -> list[UnaryExpression[Any]]:
    columns = [source.c[name] for name in order_of(sort).columns]
    return [column.desc() if sort.startswith("-") else column.asc() for column in columns]


def _conditions(table: Table, wanted: WorkloadFilter) -> list[ColumnElement[bool]]:
    columns = table.c
    found: list[ColumnElement[bool]] = []
    states = [state.value for state in wanted.states if table is workloads or state in ENDED]
    if states and not (table is history and len(states) == len(ENDED)):
        found.append(_in(columns.state, states))
    if wanted.user:
        found.append(columns.user == wanted.user)
    if wanted.kind:
        found.append(columns.kind == wanted.kind)
    if wanted.namespace:
        found.append(columns.namespace == wanted.namespace)
    if wanted.text:
        found.append(_search(table).contains(wanted.text.lower(), autoescape=True))
    return found


def _search(table: Table) -> ColumnElement[str]:
    # To the letter the expression of the index: with a parameter in it PostgreSQL does not find that.
    return literal_column(f"({table.name}.namespace || '/' || {table.name}.name)", Text(collation="C"))


def _in(column: ColumnElement[str], values: Sequence[str]) -> ColumnElement[bool]:
    # One value as an equation: then an index on (column, created_at, uid) gives the order too.
    return column == values[0] if len(values) == 1 else column.in_(values)


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
