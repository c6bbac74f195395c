"""Decayed usage from the ledger: what the engine's history starts from when a term begins (engine/history.py)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from queue_manager.engine.history import UNIT_BITS

HALF_LIVES = 64
"""Older than this nothing is left of an interval."""

_PAST = text(
    """
WITH intervals AS (
    SELECT queue, resource, amount, since, COALESCE(until, :now) AS until,
        state = 'reserved' AND lag(until) OVER (PARTITION BY workload_uid, flavor, resource, state ORDER BY since, id)
            IS DISTINCT FROM since AS starts
    FROM ledger
    WHERE (until IS NULL OR until > :oldest) AND since < :now AND state IN ('reserved', 'draining')
), factors AS (
    SELECT queue, resource, amount, starts,
        power(0.5::float8, EXTRACT(EPOCH FROM :now - LEAST(until, :now))::float8 / :half_life) AS at_end,
        power(0.5::float8, EXTRACT(EPOCH FROM :now - since)::float8 / :half_life) AS at_start
    FROM intervals
)
SELECT queue, resource, sum(floor(:unit * amount * (at_end - at_start
    + CASE WHEN starts THEN at_start * (1 - power(0.5::float8, :at_once / :half_life)) ELSE 0 END))::numeric)::text
    AS average
FROM factors GROUP BY queue, resource ORDER BY queue, resource
"""
)


def past_usage(
    connection: Connection, now: datetime, half_life: timedelta, at_once: timedelta
) -> dict[str, dict[str, int]]:
    """By queue and resource the average of what was charged, in units of `UNIT_BITS`: weights halve every half-life,
    and who started counts as having run for `at_once` already. Draining workloads count, loans of finished pods do
    not."""
    # Beyond the oldest time that a date can have there is no interval either.
    span = min(half_life * HALF_LIVES, now - datetime(1, 1, 2, tzinfo=now.tzinfo))
    found: dict[str, dict[str, int]] = {}
    rows = connection.execute(
        _PAST,
        {
            "now": now,
            "oldest": now - span,
            "half_life": half_life.total_seconds(),
            "unit": float(1 << UNIT_BITS),
            "at_once": at_once.total_seconds(),
        },
    )
    for row in rows:
        if average := int(row.average):
            found.setdefault(row.queue, {})[row.resource] = average
    return found
