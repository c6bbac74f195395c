"""The statements that pages of workloads are read by. There are as many as there are shapes of a question: each is made
once, and its values are parameters. Making one takes five times as long as asking it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    UnaryExpression,
    any_,
    bindparam,
    func,
    literal_column,
    null,
    select,
    text,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import make_url

from queue_manager.store.past_rows import CONTENT
from queue_manager.store.records import ENDED, State, WorkloadFilter
from queue_manager.store.schema import ENDED_STATES, history, workloads

MERGED = 200
"""So many queues at most are read each by the index that has them in order; of more the planner chooses how."""
SHAPES = 500
"""Statements that are kept."""
_DIALECT = make_url("postgresql+psycopg://").get_dialect()()


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


def order_of(sort: str) -> Order:
    """The order that a word means, with or without `-`; ValueError for others."""
    try:
        return ORDERS[sort.removeprefix("-")]
    except KeyError:
        raise ValueError(f"no list is sorted by {sort!r}; there are {', '.join(ORDERS)}, each also with -") from None


@dataclass(frozen=True, slots=True)
class Shape:
    """All that makes a statement another one. `queues` are none, one, or `each` by its index, or `any` of many. With
    `window` a text is looked for in so many first rows alone; `content` adds what lists show of the history."""

    sort: str
    after: bool
    limit: int
    queues: str
    states: tuple[State, ...]
    user: bool
    kind: bool
    namespace: bool
    text: bool
    window: int
    content: bool


def shape_of(
    wanted: WorkloadFilter,
    sort: str,
    after: Sequence[Any] | None,
    limit: int,
    *,
    window: int = 0,
    content: bool = False,
) -> Shape:
    """The shape of a question: at most `limit` rows after a place."""
    count = len(wanted.queues)
    queues = "any" if count > 1 else "one" if count else ""
    if sort.endswith("created") and 1 < count <= MERGED and (window or not wanted.text):
        queues = "each"
    return Shape(
        sort,
        after is not None,
        limit,
        queues,
        tuple(sorted(set(wanted.states))),
        bool(wanted.user),
        bool(wanted.kind),
        bool(wanted.namespace),
        bool(wanted.text),
        window,
        content,
    )


def places(after: Sequence[Any] | None) -> list[str]:
    """Names of the parameters for the values of a place."""
    return [f"after_{number}" for number in range(len(after or ()))]


@lru_cache(maxsize=SHAPES)
def statement(shape: Shape) -> str:
    """The statement in the driver's words. Its columns: uid, version, the end (of rows of the history), what the list
    is sorted by but for the uid, and then what `content` adds."""
    if shape.window:
        inner = replace(shape, text=False, limit=shape.window)
        found = _union(inner).subquery("window")
        searched = literal_column('"window".search', Text(collation="C"))
        columns = [column for column in found.c if column.name != "search"]
        query = select(*columns).where(_fits(searched)).order_by(*_ordered(found, shape)).limit(_number(shape.limit))
    else:
        query = _union(shape)
        if shape.content:
            query = _written(query, shape)
    return str(query.compile(dialect=_DIALECT))


def _union(shape: Shape) -> Select[Any]:
    branches = [_first(table, shape) for table in _tables(shape)]
    found = union_all(*branches).subquery("found") if len(branches) > 1 else branches[0].subquery("found")
    return select(found).order_by(*_ordered(found, shape)).limit(_number(shape.limit))


def _written(query: Select[Any], shape: Shape) -> Select[Any]:
    """Its JSON as text, which we read, not the driver. Only of what is left: of all that is sorted before, making the
    text took most of the time."""
    page = query.subquery("page")
    texts = {f"past_{name}" for name in CONTENT[-3:]}
    columns = [column.cast(Text).label(column.name) if column.name in texts else column for column in page.c]
    return select(*columns).order_by(*_ordered(page, shape))


def _tables(shape: Shape) -> list[Table]:
    only_live = shape.states and not ENDED.intersection(shape.states)
    return [workloads] if only_live else [workloads, history]


def _first(table: Table, shape: Shape) -> Select[Any]:
    """The first rows of one table."""
    if shape.queues == "each":
        names = func.unnest(_value("queues", ARRAY(Text))).table_valued("name", name="names").render_derived()
        query = _query(table, shape, table.c.queue == names.c.name)
        each = query.limit(_number(shape.limit)).lateral("each")
        query = select(*each.c).select_from(names).join(each, text("true")).order_by(*_ordered(each, shape))
    else:
        query = _query(table, shape, _of_queues(table, shape))
    return select(query.limit(_number(shape.limit)).subquery(f"{table.name}_first"))


def _query(table: Table, shape: Shape, queues: ColumnElement[bool]) -> Select[Any]:
    ended_at = table.c.finished_at if table is history else null().cast(table.c.finished_at.type)
    names = [name for name in order_of(shape.sort).columns if name != "uid"]
    query = select(table.c.uid, table.c.version, ended_at.label("ended_at"), *(table.c[name] for name in names))
    if shape.window:
        query = query.add_columns(_search(table).label("search"))
    if shape.content:
        query = query.add_columns(*(_content(table, name) for name in CONTENT))
    query = query.where(queues, *_conditions(table, shape))
    if shape.sort.endswith("finished") and table is workloads:
        query = query.where(text(f"workloads.state IN ({ENDED_STATES})"))
    if shape.after:
        columns = [table.c[name] for name in order_of(shape.sort).columns]
        place = tuple_(*columns)
        there = tuple_(*(_value(name, column.type) for name, column in zip(places(columns), columns, strict=True)))
        query = query.where(place < there if shape.sort.startswith("-") else place > there)
    if shape.text:
        # Without a limit in sight the search index is used: in order, all there is would be looked through.
        query = select(query.offset(literal_column("0")).subquery("fitting"))
        return query.order_by(*_ordered(query.get_final_froms()[0], shape))
    return query.order_by(*_ordered(table, shape))


def _content(table: Table, name: str) -> ColumnElement[Any]:
    """Of the history alone: live rows are read by their keys, from several tables."""
    column = history.c[name]
    return (column if table is history else null().cast(column.type)).label(f"past_{name}")


def _ordered(source: FromClause, shape: Shape) -> list[UnaryExpression[Any]]:
    columns = [source.c[name] for name in order_of(shape.sort).columns]
    return [column.desc() if shape.sort.startswith("-") else column.asc() for column in columns]


def _of_queues(table: Table, shape: Shape) -> ColumnElement[bool]:
    if shape.queues == "one":
        return table.c.queue == _value("queue", Text())
    return table.c.queue == any_(_value("queues", ARRAY(Text))) if shape.queues else true()


def _conditions(table: Table, shape: Shape) -> list[ColumnElement[bool]]:
    columns = table.c
    found: list[ColumnElement[bool]] = []
    states = [state.value for state in shape.states if table is workloads or state in ENDED]
    if states and not (table is history and len(states) == len(ENDED)):
        found.append(_in(columns.state, states))
    named = [name for name in ("user", "kind", "namespace") if getattr(shape, name)]
    found += [columns[name] == _value(name, Text()) for name in named]
    if shape.text:
        found.append(_fits(_search(table)))
    return found


def _search(table: Table) -> ColumnElement[str]:
    # To the letter the expression of the index: with a parameter in it PostgreSQL does not find that.
    return literal_column(f"({table.name}.namespace || '/' || {table.name}.name)", Text(collation="C"))


def _fits(searched: ColumnElement[str]) -> ColumnElement[bool]:
    return searched.like(_value("text", Text()), escape="/")


def _in(column: ColumnElement[str], words: Sequence[str]) -> ColumnElement[bool]:
    # One as an equation: then an index on (column, created_at, uid) gives the order too.
    values: list[ColumnElement[str]] = [literal_column(f"'{word}'", Text()) for word in words]
    return column == values[0] if len(values) == 1 else column.in_(values)


def _value(name: str, type_: Any) -> BindParameter[Any]:
    return bindparam(name, type_=type_)


def _number(number: int) -> ColumnElement[int]:
    return literal_column(str(number))
