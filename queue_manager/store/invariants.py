"""Invariants of the stored state, each proved by a query that must find nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, TextClause, text

from queue_manager.store.schema import CHARGED_STATES, ENDED_STATES

MOST = 100
"""Findings of one kind that are reported; more are counted."""

_CHARGE = (
    "SELECT a.workload_uid, a.queue, e.value ->> 0 AS flavor, e.value ->> 1 AS resource, "
    "(e.value ->> 2)::bigint AS amount FROM admissions a "
    "CROSS JOIN LATERAL jsonb_array_elements(a.admission -> 'charge') AS e WHERE a.ended_at IS NULL"
)
_OPEN = (
    "SELECT workload_uid, queue, flavor, resource, sum(amount) AS amount FROM ledger WHERE until IS NULL "
    "GROUP BY workload_uid, queue, flavor, resource"
)


@dataclass(frozen=True, slots=True)
class _Check:
    what: str
    query: TextClause


_CHECKS = (
    _Check(
        "ledger and admission differ: queue {queue}, {flavor}/{resource}: charged {charged}, in the ledger {booked}",
        text(
            "SELECT workload_uid AS uid, queue, flavor, resource, COALESCE(c.amount, 0) AS charged, "
            f"COALESCE(o.amount, 0) AS booked FROM ({_CHARGE}) c FULL JOIN ({_OPEN}) o "
            "USING (workload_uid, queue, flavor, resource) "
            "WHERE COALESCE(c.amount, 0) <> COALESCE(o.amount, 0) ORDER BY workload_uid, queue, flavor, resource"
        ),
    ),
    _Check(
        "is {state} without an open admission",
        text(
            f"SELECT uid, state FROM workloads w WHERE state IN ({CHARGED_STATES}) "
            "AND NOT EXISTS (SELECT FROM admissions a "
            "WHERE a.workload_uid = w.uid AND a.attempt = w.open_attempt AND a.ended_at IS NULL) ORDER BY uid"
        ),
    ),
    _Check(
        "is {state} but its admission {attempt} is open",
        text(
            "SELECT w.uid, w.state, a.attempt FROM workloads w JOIN admissions a ON a.workload_uid = w.uid "
            f"WHERE a.ended_at IS NULL AND w.state NOT IN ({CHARGED_STATES}) ORDER BY w.uid"
        ),
    ),
    _Check(
        "is not known but has an open ledger interval of queue {queue}",
        text(
            "SELECT DISTINCT l.workload_uid AS uid, l.queue FROM ledger l WHERE l.until IS NULL "
            "AND NOT EXISTS (SELECT FROM workloads w WHERE w.uid = l.workload_uid) ORDER BY l.workload_uid"
        ),
    ),
    _Check(
        "is {state} but has {count} open ledger intervals as {ledger_state}",
        text(
            "SELECT w.uid, w.state, l.state AS ledger_state, count(*) AS count FROM ledger l "
            "JOIN workloads w ON w.uid = l.workload_uid WHERE l.until IS NULL AND ("
            f"w.state NOT IN ({CHARGED_STATES}) OR (w.state = 'draining' AND l.state = 'reserved') "
            "OR (w.state NOT IN ('draining', 'starting', 'running') AND l.state = 'draining')) "
            "GROUP BY w.uid, w.state, l.state ORDER BY w.uid, l.state"
        ),
    ),
    _Check(
        "has no pod set",
        text(
            f"SELECT uid FROM workloads w WHERE state IN ({CHARGED_STATES}) "
            "AND NOT EXISTS (SELECT FROM pod_sets p WHERE p.workload_uid = w.uid) ORDER BY uid"
        ),
    ),
    _Check(
        "has ended and is still explained",
        text(
            "SELECT uid FROM workloads JOIN explanations ON workload_uid = uid "
            f"WHERE state IN ({ENDED_STATES}) ORDER BY uid"
        ),
    ),
)
_FUTURE = text("SELECT workload_uid AS uid, since FROM ledger WHERE since > :now ORDER BY since, workload_uid")


def check(connection: Connection, now: datetime) -> list[str]:
    """What is wrong, a sentence each that names the workload; empty when all is well."""
    findings: list[str] = []
    for invariant in _CHECKS:
        rows = connection.execute(invariant.query).all()
        findings += [f"workload {row.uid}: {invariant.what.format(**row._mapping)}" for row in rows[:MOST]]
        if len(rows) > MOST:
            findings.append(f"and {len(rows) - MOST} more of this kind")
    rows = connection.execute(_FUTURE, {"now": now}).all()
    findings += [f"workload {row.uid}: a ledger interval begins in the future, at {row.since}" for row in rows[:MOST]]
    return findings
