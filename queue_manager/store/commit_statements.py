"""The statements of a commit.

Rows travel as one JSON parameter a table: measured fastest for tens to thousands of rows, without a round trip a row.
Where a table may have more open rows than a commit changes, the uids are named as well: so it is looked into by them,
and not read whole to be joined.
"""

from __future__ import annotations

from queue_manager.store.pipeline import in_words_of_driver
from queue_manager.store.rowset import Rowset

_LIFE = {
    "uid": "text",
    "state": "text",
    "after_drain": "text",
    "reason": "text",
    "message": "text",
    "attempt": "integer",
    "not_before": "timestamptz",
    "requeues": "integer",
    "requeued_at": "timestamptz",
    "past_run_time": "bigint",
    "checks": "jsonb",
    "relabels": "jsonb",
    "emptied_at": "timestamptz",
    "finished_at": "timestamptz",
    "open_attempt": "integer",
}
_ASKED = {
    "kind": "text",
    "namespace": "text",
    "name": "text",
    "created_at": "timestamptz",
    "local_queue": "text",
    "queue": "text",
    "priority": "bigint",
    "priority_class": "text",
    "may_preempt": "boolean",
    "preemptible": "boolean",
    "user": "text",
    "groups": "text[]",
    "max_run_time": "bigint",
    "topology": "jsonb",
    "inputs": "jsonb",
    "requested": "jsonb",
}
_STEP, _WORKLOAD = Rowset(_LIFE), Rowset({**_LIFE, **_ASKED})
ASKED = tuple(name for name in _ASKED if name != "requested")
"""What a row is asked to be, other than its pods; the rest of it is what becomes of it."""
_POD_GROUP = Rowset(
    {
        "workload_uid": "text",
        "index": "integer",
        "name": "text",
        "policy": "text",
        "minimum": "integer",
        "topology": "jsonb",
        "disruption": "text",
    }
)
_POD_SET = Rowset(
    {
        "workload_uid": "text",
        "group_index": "integer",
        "index": "integer",
        "name": "text",
        "count": "integer",
        "reclaimed": "integer",
        "min_count": "integer",
        "first_stage": "integer",
        "last_stage": "integer",
        "requests": "jsonb",
        "placement": "jsonb",
    }
)
_ADMISSION = Rowset(
    {
        "workload_uid": "text",
        "attempt": "integer",
        "queue": "text",
        "admission": "jsonb",
        "admitted_at": "timestamptz",
        "checked_at": "timestamptz",
        "started_at": "timestamptz",
        "ready_at": "timestamptz",
        "unready_at": "timestamptz",
        "unplaced_at": "timestamptz",
        "evicted_at": "timestamptz",
        "ended_at": "timestamptz",
        "cause": "text",
        "underlying": "text",
        "cause_message": "text",
        "by": "text",
    }
)
_COURSE = Rowset({name: kind for name, kind in _ADMISSION.columns.items() if name not in ("queue", "admission")})
_LEDGER = Rowset(
    {
        "workload_uid": "text",
        "namespace": "text",
        "queue": "text",
        "user": "text",
        "flavor": "text",
        "resource": "text",
        "amount": "bigint",
        "state": "text",
        "kind": "text",
        "priority_class": "text",
    }
)
_EXPLANATION = Rowset({"workload_uid": "text", "body": "jsonb"})
_OUTBOX = Rowset({"workload_uid": "text", "action": "text", "payload": "jsonb", "not_before": "timestamptz"})

LOCK = in_words_of_driver(
    "SELECT uid, version, priority_class, open_attempt, state, reason, queue, priority, attempt, after_drain "
    "FROM workloads WHERE uid = ANY(:uids) ORDER BY uid FOR NO KEY UPDATE"
)
INSERT = in_words_of_driver(
    f"INSERT INTO workloads ({_WORKLOAD.names()}) SELECT {_WORKLOAD.names('r.')} FROM {_WORKLOAD.source} ORDER BY uid "
    "ON CONFLICT (uid) DO NOTHING"
)
UPDATE = in_words_of_driver(
    f"UPDATE workloads w SET {_WORKLOAD.assignments(without=('uid', 'requested'))}, "
    f"requested = COALESCE(r.requested, w.requested), version = w.version + 1 FROM {_WORKLOAD.source} "
    "WHERE w.uid = r.uid"
)
STEP = in_words_of_driver(
    f"UPDATE workloads w SET {_STEP.assignments(without=('uid',))}, version = w.version + 1 FROM {_STEP.source} "
    "WHERE w.uid = r.uid"
)
DELETE_GROUPS = in_words_of_driver(
    "DELETE FROM pod_groups WHERE workload_uid = ANY(:uids)"
)  # and their pod sets, by cascade
INSERT_GROUPS = in_words_of_driver(
    f"INSERT INTO pod_groups ({_POD_GROUP.names()}) SELECT {_POD_GROUP.names('r.')} FROM {_POD_GROUP.source}"
)
INSERT_SETS = in_words_of_driver(
    f"INSERT INTO pod_sets ({_POD_SET.names()}) SELECT {_POD_SET.names('r.')} FROM {_POD_SET.source}"
)
END_ADMISSIONS = in_words_of_driver(
    "UPDATE admissions SET ended_at = GREATEST(:now, admitted_at) WHERE workload_uid = ANY(:uids) AND ended_at IS NULL"
)
_KEY = ("workload_uid", "attempt")
UPSERT_ADMISSIONS = in_words_of_driver(
    f"INSERT INTO admissions AS a ({_ADMISSION.names()}) SELECT {_ADMISSION.names('r.')} FROM {_ADMISSION.source} "
    f"ON CONFLICT (workload_uid, attempt) DO UPDATE SET {_ADMISSION.assignments('excluded.', without=_KEY)} "
    f"WHERE ({_ADMISSION.names('a.', without=_KEY)}) IS DISTINCT FROM ({_ADMISSION.names('excluded.', without=_KEY)})"
)
CONTINUE_ADMISSIONS = in_words_of_driver(
    f"UPDATE admissions a SET {_COURSE.assignments(without=_KEY)} FROM {_COURSE.source} "
    "WHERE a.workload_uid = r.workload_uid AND a.attempt = r.attempt"
)
_FIXED = ("namespace", "kind")
"""What a workload never changes."""
_SAME_INTERVAL = " AND ".join(f'l."{name}" = r."{name}"' for name in _LEDGER.columns if name not in _FIXED)
END_INTERVALS = in_words_of_driver(
    "UPDATE ledger l SET until = GREATEST(:now, l.since) WHERE l.workload_uid = ANY(:uids) AND l.until IS NULL "
    f"AND NOT EXISTS (SELECT FROM {_LEDGER.source} WHERE {_SAME_INTERVAL})"
)
BEGIN_INTERVALS = in_words_of_driver(
    f"INSERT INTO ledger ({_LEDGER.names()}, since) SELECT {_LEDGER.names('r.')}, :now FROM {_LEDGER.source} "
    "WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.workload_uid = ANY(:uids) AND l.workload_uid = r.workload_uid "
    "AND l.flavor = r.flavor AND l.resource = r.resource AND l.state = r.state AND l.until IS NULL)"
)
_ENDED = f"{_LEDGER.names(without=('priority_class',))}"
RECLASSIFY = in_words_of_driver(
    "WITH ended AS (UPDATE ledger SET until = GREATEST(:now, since) WHERE until IS NULL AND workload_uid = ANY(:uids) "
    f"RETURNING {_ENDED}), fresh AS (SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) "
    "AS r (uid text, priority_class text)) "
    f"INSERT INTO ledger ({_ENDED}, priority_class, since) SELECT {_LEDGER.names('e.', without=('priority_class',))}, "
    "f.priority_class, :now FROM ended e JOIN fresh f ON f.uid = e.workload_uid"
)
UPSERT_EXPLANATIONS = in_words_of_driver(
    "INSERT INTO explanations (workload_uid, body, at) "
    f"SELECT r.workload_uid, r.body, :now FROM {_EXPLANATION.source} "
    "ON CONFLICT (workload_uid) DO UPDATE SET body = excluded.body, at = excluded.at"
)
DELETE_EXPLANATIONS = in_words_of_driver("DELETE FROM explanations WHERE workload_uid = ANY(:uids)")
INSERT_OUTBOX = in_words_of_driver(
    f"INSERT INTO outbox ({_OUTBOX.names()}, created_at) SELECT {_OUTBOX.names('o.')}, :now "
    "FROM jsonb_array_elements(CAST(:rows AS jsonb)) WITH ORDINALITY AS e (value, ordinal) "
    f"CROSS JOIN LATERAL jsonb_populate_record(NULL::outbox, e.value) AS o ORDER BY e.ordinal RETURNING id"
)
