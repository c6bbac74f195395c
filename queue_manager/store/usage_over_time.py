"""What was charged over time, from the ledger's intervals: sums of amount times time, by group and bucket.

Each interval makes two steps, up when it begins and down when it ends, so that the work does not depend on how many
buckets it lasts: of each group and bucket the steps are summed, and `accumulate` makes the integral of them. Integers
all the way: amounts in base units times microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from psycopg.errors import QueryCanceled
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from queue_manager.store.times import to_microseconds

COLUMNS: Mapping[str, str] = {
    "queue": "queue",
    "namespace": "namespace",
    "user": '"user"',
    "flavor": "flavor",
    "resource": "resource",
    "kind": "kind",
    "priorityClass": "priority_class",
}
"""Columns of the ledger by the word that groups and filters have for them."""
_EQUAL = {"resource": "(resource = :resource OR split_part(resource, '/', 2) = :resource)"}
PATIENCE = timedelta(seconds=30)
"""A sum that takes longer is given up."""


_GIVE_UP = text("SELECT set_config('statement_timeout', :after, true)")


class TooMuch(Exception):
    """More groups than are wanted."""


class TooLong(Exception):
    """Not summed within `PATIENCE`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`edges` are the beginnings of the buckets and the end of the last one, ascending; `by` and the keys of `equal`
    are words of `COLUMNS`, a resource is meant by the part of its name behind the slash, too; `queues` None is all."""

    edges: Sequence[datetime]
    by: Sequence[str] = ()
    equal: Mapping[str, str] | None = None
    queues: Sequence[str] | None = None


Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What begins less what ends of a group within a bucket: `rise` is the sum of the amounts, `moment` that of the
    amounts times the microseconds from the first edge to when they begin or end."""

    key: Key
    bucket: int
    rise: int
    moment: int


def steps(connection: Connection, asked: Asked, most: int) -> list[Step]:
    """Sums of the steps within each bucket. TooMuch for more than `most` of them, TooLong after `PATIENCE`."""
    connection.execute(_GIVE_UP, {"after": f"{int(PATIENCE / timedelta(milliseconds=1))}ms"})
    try:
        found = connection.execute(query(asked), arguments(asked, most)).all()
    except OperationalError as error:
        if isinstance(error.orig, QueryCanceled):
            raise TooLong from None
        raise
    if len(found) > most:
        raise TooMuch
    return [Step(tuple(row[:-3]), row[-3], int(row[-2]), int(row[-1])) for row in found]


def query(asked: Asked) -> Any:
    """The statement of `steps`. Months of the ledger that ended before the first edge are not looked at, of those after
    the last one only what began before it."""
    columns = [COLUMNS[word] for word in asked.by]
    inner = "".join(f"{column}, " for column in columns)
    narrowed = "".join(f"AND {_EQUAL.get(word, f'{COLUMNS[word]} = :{word}')} " for word in asked.equal or {})
    narrowed += "AND queue = ANY(:queues) " if asked.queues is not None else ""
    bucket = "width_bucket(at, CAST(:edges AS timestamptz[])) - 1" if len(asked.edges) > 2 else "0"
    return text(
        f"SELECT {inner}bucket, sum(rise)::text AS rise, "
        "sum(rise::numeric * (extract(epoch FROM at - :first) * 1000000)::bigint)::text AS moment FROM ("
        f"SELECT {inner}at, rise, {bucket} AS bucket FROM ledger "
        "CROSS JOIN LATERAL (VALUES (GREATEST(since, :first), amount), (until, -amount)) AS step (at, rise) "
        "WHERE since < :last AND (until IS NULL OR until > :first) AND state IN ('reserved', 'draining') "
        f"{narrowed}AND at < :last) s GROUP BY {inner}bucket ORDER BY {inner}bucket LIMIT :most"
    )


def arguments(asked: Asked, most: int) -> dict[str, Any]:
    """Parameters of `query`."""
    return {
        **(asked.equal or {}),
        **({"queues": list(asked.queues)} if asked.queues is not None else {}),
        **({"edges": list(asked.edges[:-1])} if len(asked.edges) > 2 else {}),
        "first": asked.edges[0],
        "last": asked.edges[-1],
        "most": most + 1,
    }


def accumulate(edges: Sequence[datetime], found: Iterable[Step]) -> dict[Key, dict[int, int]]:
    """By group and bucket the amount times microseconds; buckets without any are left out."""
    first = to_microseconds(edges[0])
    places = [to_microseconds(edge) - first for edge in edges]
    by_key: dict[Key, dict[int, tuple[int, int]]] = {}
    for step in found:
        of_key = by_key.setdefault(step.key, {})
        rise, moment = of_key.get(step.bucket, (0, 0))
        of_key[step.bucket] = (rise + step.rise, moment + step.moment)
    sums: dict[Key, dict[int, int]] = {}
    for key, of_key in by_key.items():
        level, sums[key] = 0, {}
        for bucket, (begin, end) in enumerate(pairwise(places)):
            rise, moment = of_key.get(bucket, (0, 0))
            if total := level * (end - begin) + rise * end - moment:
                sums[key][bucket] = total
            level += rise
    return sums


def as_steps(edges: Sequence[datetime], key: Key, amount: int, begin: datetime, end: datetime) -> Iterable[Step]:
    """The steps of one interval that is known already."""
    first = to_microseconds(edges[0])
    for at, rise in ((max(begin, edges[0]), amount), (end, -amount)):
        if begin < end and begin < edges[-1] and edges[0] < end and at < edges[-1]:
            yield Step(key, bisect_right(edges, at) - 1, rise, rise * (to_microseconds(at) - first))


_KEPT = text(
    "SELECT min(to_date(right(c.relname, 7), 'YYYY_MM')::timestamp AT TIME ZONE 'UTC') FROM pg_inherits i "
    "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'ledger'::regclass AND c.relname ~ '_[0-9]{4}_[0-9]{2}$'"
)


def kept_since(connection: Connection) -> datetime | None:
    """Beginning of the first month whose intervals are kept."""
    kept: datetime | None = connection.execute(_KEPT).scalar()
    return kept


_QUOTAS = text(
    "SELECT r.at, e ->> 'kind' AS kind, e ->> 'name' AS name, e #> '{before,spec,resourceGroups}' AS before "
    "FROM revisions r CROSS JOIN LATERAL jsonb_array_elements(r.diff) e "
    "WHERE r.at > :after AND r.number <= :newest AND r.touched && ARRAY['Queue', 'Cohort'] "
    "AND e ->> 'kind' IN ('Queue', 'Cohort') "
    "AND e #> '{before,spec,resourceGroups}' IS DISTINCT FROM e #> '{after,spec,resourceGroups}' "
    "ORDER BY r.number DESC LIMIT :most"
)


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Until `at` a queue or cohort had the resource groups `before` (JSON as in its spec, None: none)."""

    at: datetime
    kind: str
    name: str
    before: Any


def quota_changes(connection: Connection, after: datetime, newest: int, most: int) -> list[QuotaChange]:
    """Changes of quotas after a time up to the revision `newest`, the last first. TooMuch for more than `most`."""
    found = connection.execute(_QUOTAS, {"after": after, "newest": newest, "most": most + 1}).all()
    if len(found) > most:
        raise TooMuch
    return [QuotaChange(*row) for row in found]
