"""Events: what changed, in the order of the commits, for readers that follow along and may have to catch up.

They are written in the transaction of the change, so none is lost and none tells of what never was. Who writes holds a
lock from then to the end of the transaction: ids grow in the order in which transactions commit, so a reader that asks
for what is after the last id it saw misses nothing, whichever process it asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from queue_manager.store import codec, facts
from queue_manager.store.pipeline import in_words_of_driver

WORKLOAD, ACTION, CONFIGURATION = "workload", "action", "configuration"
TYPES = (WORKLOAD, ACTION, CONFIGURATION)
MOST = 1_000_000
"""So many events are kept at most, however young."""
PURGED = "events-purged"
"""Name of the fact that holds the greatest id that was deleted."""

_KEY = 0x716D657673  # "qmevs"
LOCK = in_words_of_driver(f"SELECT pg_advisory_xact_lock({_KEY})")
INSERT = in_words_of_driver(
    "INSERT INTO events (at, type, queue, body) SELECT :now, r.type, r.queue, r.body "
    "FROM jsonb_array_elements(CAST(:rows AS jsonb)) WITH ORDINALITY AS e (value, ordinal) "
    'CROSS JOIN LATERAL jsonb_to_record(e.value) AS r ("type" text, "queue" text, "body" jsonb) ORDER BY e.ordinal'
)
_AFTER = text("SELECT id, at, type, queue, body FROM events WHERE id > :after ORDER BY id LIMIT :limit")
_LAST = text("SELECT COALESCE(max(id), 0) FROM events")
_TOO_OLD = text("SELECT max(id) FROM (SELECT id FROM events WHERE at < :before ORDER BY at DESC, id DESC LIMIT 1) e")
_PURGE = text("DELETE FROM events WHERE id <= :last")

New = tuple[str, str, Mapping[str, Any]]
"""Type, queue and body of an event that is to be written."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `queue` is "" where it is of none."""

    id: int
    at: datetime
    type: str
    queue: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """Ids: all up to `purged` were deleted, `last` is the newest."""

    purged: int
    last: int


def write(connection: Connection, now: datetime, found: Sequence[New]) -> None:
    """Adds events; to be called last in a transaction, for others wait until that has ended."""
    if found:
        connection.exec_driver_sql(LOCK)
        connection.exec_driver_sql(INSERT, inserted(now, found))


def inserted(now: datetime, found: Sequence[New]) -> Mapping[str, Any]:
    """Parameters of INSERT, which is sent after LOCK."""
    rows = [{"type": kind, "queue": queue, "body": body} for kind, queue, body in found]
    return {"now": now, "rows": codec.encode(rows)}


def after(connection: Connection, id: int, limit: int) -> list[Event]:
    """The first events after an id."""
    return [Event(*row) for row in connection.execute(_AFTER, {"after": id, "limit": limit})]


def known(connection: Connection) -> Range:
    """Which ids there are. One snapshot is needed: the transaction must be REPEATABLE READ."""
    purged = int(facts.get(connection, PURGED) or 0)
    return Range(purged, max(purged, int(connection.execute(_LAST).scalar_one())))


def purge(connection: Connection, before: datetime, now: datetime) -> int:
    """Deletes what is older, or too much; how many. Notes up to where, so that who comes later is told."""
    old = connection.execute(_TOO_OLD, {"before": before}).scalar() or 0
    last = max(int(old), int(connection.execute(_LAST).scalar_one()) - MOST)
    if last <= 0:
        return 0
    facts.put(connection, PURGED, max(last, int(facts.get(connection, PURGED) or 0)), now)
    return connection.execute(_PURGE, {"last": last}).rowcount
