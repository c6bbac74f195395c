"""Tables of the store (SQLAlchemy Core). Migrations make them; a test holds the two against each other.

Amounts are base units, times UTC. Names of Kubernetes objects are compared by bytes (collation C), as the API server
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from queue_manager.store.records import CHARGED, ENDED, Action, State, Wish

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


STATES = _listed(State)
CHARGED_STATES = _listed(state for state in State if state in CHARGED)
WISHES = _listed(Wish)
ACTIONS = _listed(Action)
ENDED_STATES = _listed(state for state in State if state in ENDED)
NOT_ENDED = f"state NOT IN ({ENDED_STATES})"


def _name(column: str, **options: object) -> Column[str]:
    return Column(column, Text(collation="C"), nullable=False, **options)  # type: ignore[arg-type]


def _text(column: str) -> Column[str]:
    return Column(column, Text, nullable=False, server_default=text("''"))


def _time(column: str, nullable: bool = False) -> Column[object]:
    return Column(column, DateTime(timezone=True), nullable=nullable)


def _json(column: str, empty: str = "{}") -> Column[object]:
    return Column(column, JSONB, nullable=False, server_default=text(f"'{empty}'::jsonb"))


def _of_workload() -> Column[str]:
    reference = ForeignKey("workloads.uid", ondelete="CASCADE")
    return Column("workload_uid", Text(collation="C"), reference, primary_key=True)


def _index_key(column: str) -> Column[int]:
    return Column(column, Integer, primary_key=True, autoincrement=False)


def _for_lists(*last: str) -> Iterator[Index]:
    """What filters and sorts of a list of workloads go by. Each ends with the columns `last`: where the list is of one
    state, others are skipped without looking at their rows."""
    yield Index(None, "created_at", "uid", *last)
    for column in ("queue", "namespace", "user", "kind", "priority"):
        yield Index(None, column, "created_at", "uid", *last)
    yield Index(None, "state", "created_at", "uid")
    yield Index(None, "namespace", "name", "uid", *last)


revisions = Table(
    "revisions",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _text("author"),
    _time("at"),
    _text("reason"),
    _text("source"),
    _json("diff", "[]"),
    Column("touched", ARRAY(Text(collation="C")), nullable=False, server_default=text("'{}'::text[]")),
    CheckConstraint("number > 0", name="number"),
    Index(None, "at", "number"),
    Index(None, "author", "number"),
    Index(None, "touched", postgresql_using="gin"),
    comment="Changes of the configuration; numbers have no gaps. touched names the objects of the diff as the audit "
    "log does, and their kinds",
)

config_objects = Table(
    "config_objects",
    metadata,
    _name("kind", primary_key=True),
    _name("namespace", primary_key=True),
    _name("name", primary_key=True),
    _json("spec"),
    _json("labels"),
    _text("owner"),
    Column("revision", BigInteger, ForeignKey("revisions.number"), nullable=False),
    comment="The configuration as people wrote it; revision is that of the object's last change",
)

workloads = Table(
    "workloads",
    metadata,
    _name("uid", primary_key=True),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    _name("kind"),
    _name("namespace"),
    _name("name"),
    _time("created_at"),
    _name("state"),
    _name("local_queue"),
    _name("queue"),
    Column("priority", BigInteger, nullable=False),
    _text("priority_class"),
    Column("may_preempt", Boolean, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    _name("user"),
    Column("groups", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("after_drain", Text),
    _text("reason"),
    _text("message"),
    Column("attempt", Integer, nullable=False),
    _time("not_before", nullable=True),
    _time("finished_at", nullable=True),
    Column("topology", JSONB),
    _json("inputs"),
    _json("requested"),
    Column("open_attempt", Integer),
    Column("holds_open", Boolean, Computed("CASE WHEN open_attempt IS NOT NULL THEN true END", persisted=True)),
    Column("requeues", Integer, nullable=False, server_default=text("0")),
    _time("requeued_at", nullable=True),
    Column("max_run_time", BigInteger),
    Column("past_run_time", BigInteger, nullable=False, server_default=text("0")),
    _json("checks", "[]"),
    _json("relabels", "[]"),
    _time("emptied_at", nullable=True),
    ForeignKeyConstraint(
        ["uid", "open_attempt", "holds_open"],
        ["admissions.workload_uid", "admissions.attempt", "admissions.open"],
        name="workloads_open_admission_fkey",
        use_alter=True,
        deferrable=True,
        initially="DEFERRED",
    ),
    CheckConstraint("version > 0", name="version"),
    CheckConstraint(f"state IN ({STATES})", name="state"),
    CheckConstraint("attempt >= 0", name="attempt"),
    CheckConstraint("requeues >= 0", name="requeues"),
    CheckConstraint("max_run_time > 0", name="max_run_time"),
    CheckConstraint("past_run_time >= 0", name="past_run_time"),
    CheckConstraint(f"after_drain IS NULL OR after_drain IN ({STATES})", name="after_drain"),
    CheckConstraint(f"(state IN ({CHARGED_STATES})) = (open_attempt IS NOT NULL)", name="charged_has_admission"),
    CheckConstraint(f"state NOT IN ({ENDED_STATES}) OR finished_at IS NOT NULL", name="ended_has_time"),
    *_for_lists(),
    Index("workloads_live_idx", "queue", "state", postgresql_where=text(NOT_ENDED)),
    Index("workloads_ended_idx", "finished_at", "uid", postgresql_where=text(f"state IN ({ENDED_STATES})")),
    comment="One row per job object; requested is the greatest need over the stages, by resource",
)

_SEARCH = workloads.c.namespace + "/" + workloads.c.name

Index(
    "workloads_search_idx",
    _SEARCH.label("search"),
    postgresql_using="gin",
    postgresql_ops={"search": "gin_trgm_ops"},
)

history = Table(
    "workload_history",
    metadata,
    _name("uid", primary_key=True),
    Column("version", BigInteger, nullable=False),
    _name("kind"),
    _name("namespace"),
    _name("name"),
    _time("created_at"),
    _name("state"),
    _name("queue"),
    Column("priority", BigInteger, nullable=False),
    _name("user"),
    Column("finished_at", DateTime(timezone=True), primary_key=True),
    _json("row"),
    _json("pod_groups", "[]"),
    _json("pod_sets", "[]"),
    _json("admissions", "[]"),
    *_for_lists("state"),
    Index(None, "finished_at", "uid", "state"),
    postgresql_partition_by="RANGE (finished_at)",
    comment="Workloads that ended, by month of their end; row, pod_groups, pod_sets and admissions are those of the "
    "live tables",
)

_HISTORY_SEARCH = history.c.namespace + "/" + history.c.name

Index(
    "workload_history_search_idx",
    _HISTORY_SEARCH.label("search"),
    postgresql_using="gin",
    postgresql_ops={"search": "gin_trgm_ops"},
)

pod_groups = Table(
    "pod_groups",
    metadata,
    _of_workload(),
    _index_key("index"),
    Column("name", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("minimum", Integer),
    Column("topology", JSONB),
    Column("disruption", Text, nullable=False, server_default="single"),
    CheckConstraint("policy IN ('gang', 'basic')", name="policy"),
    CheckConstraint("minimum >= 0", name="minimum"),
    CheckConstraint("disruption IN ('single', 'all')", name="disruption"),
)

pod_sets = Table(
    "pod_sets",
    metadata,
    Column("workload_uid", Text(collation="C"), primary_key=True),
    _index_key("group_index"),
    _index_key("index"),
    Column("name", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("reclaimed", Integer, nullable=False),
    Column("min_count", Integer),
    Column("first_stage", Integer, nullable=False),
    Column("last_stage", Integer, nullable=False),
    _json("requests"),
    _json("placement"),
    ForeignKeyConstraint(
        ["workload_uid", "group_index"], ["pod_groups.workload_uid", "pod_groups.index"], ondelete="CASCADE"
    ),
    CheckConstraint("count >= 0", name="count"),
    CheckConstraint("reclaimed BETWEEN 0 AND count", name="reclaimed"),
    CheckConstraint("min_count BETWEEN 0 AND count", name="min_count"),
    CheckConstraint("first_stage <= last_stage", name="stages"),
    comment="requests are those of one pod; placement holds selectors, affinity, tolerations, topology, ports",
)

admissions = Table(
    "admissions",
    metadata,
    _of_workload(),
    _index_key("attempt"),
    _name("queue"),
    _json("admission"),
    _time("admitted_at"),
    _time("started_at", nullable=True),
    _time("evicted_at", nullable=True),
    _time("ended_at", nullable=True),
    _text("cause"),
    _text("cause_message"),
    _text("by"),
    Column("open", Boolean, Computed("ended_at IS NULL", persisted=True), nullable=False),
    _time("checked_at", nullable=True),
    _time("ready_at", nullable=True),
    _time("unready_at", nullable=True),
    _text("underlying"),
    _time("unplaced_at", nullable=True),
    UniqueConstraint("workload_uid", "attempt", "open", name="admissions_open_key"),
    CheckConstraint("attempt > 0", name="attempt"),
    Index("admissions_one_open_idx", "workload_uid", unique=True, postgresql_where=text("ended_at IS NULL")),
    postgresql_with={"fillfactor": 50},  # its start is noted soon after, and no index is concerned
    comment="Every admission of a workload; at most one is open, and a charged workload has it",
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    _name("workload_uid"),
    _name("namespace"),
    _name("queue"),
    _name("user"),
    _name("flavor"),
    _name("resource"),
    Column("amount", BigInteger, nullable=False),
    _name("state"),
    _time("since"),
    _time("until", nullable=True),
    _name("kind", server_default=text("''")),
    _name("priority_class", server_default=text("''")),
    CheckConstraint("amount >= 0", name="amount"),
    CheckConstraint("state IN ('reserved', 'draining', 'reclaimed-loan')", name="state"),
    CheckConstraint("until >= since", name="until"),
    Index(None, "workload_uid", "since"),
    Index(None, "since"),
    Index(None, "until"),
    postgresql_partition_by="RANGE (until)",
    comment="Append-only intervals, by month of their end (open ones in ledger_open); nothing refers to it and it "
    "outlives the workloads",
)
"""Without a primary key: that would have to hold the end, which an open interval lacks. Its partition of open intervals
has the indexes `ledger_open_idx` (unique) and `ledger_usage_idx`; see migration 0009 and `history.py`."""

explanations = Table(
    "explanations",
    metadata,
    _of_workload(),
    _json("body"),
    _time("at"),
)

nodes = Table(
    "nodes",
    metadata,
    _name("name", primary_key=True),
    _json("labels"),
    _json("taints", "[]"),
    _json("allocatable"),
    _json("foreign"),
    Column("ready", Boolean, nullable=False),
    Column("unschedulable", Boolean, nullable=False),
    comment="Nodes and what pods that we do not manage use on them, as the leader saw them",
)

facts = Table(
    "facts",
    metadata,
    _name("name", primary_key=True),
    _json("value", "null"),
    _time("at"),
    comment="Single facts of the installation, with the time they were last written",
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _name("workload_uid"),
    Column("action", Text, nullable=False),
    _json("payload"),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    _text("last_error"),
    _time("created_at"),
    _time("not_before", nullable=True),
    CheckConstraint(f"action IN ({ACTIONS})", name="action"),
    CheckConstraint("tries >= 0", name="tries"),
    Index(None, "created_at"),
    comment="What the executors have to do at the API server; done rows are deleted",
)

instructions = Table(
    "instructions",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("workload_uid", Text(collation="C"), ForeignKey("workloads.uid", ondelete="CASCADE"), nullable=False),
    Column("wish", Text, nullable=False),
    _json("arguments"),
    _text("who"),
    _text("reason"),
    _time("at"),
    CheckConstraint(f"wish IN ({WISHES})", name="wish"),
    Index(None, "workload_uid", "id"),
    comment="What people ask of workloads and the leader has yet to carry out; done rows are deleted",
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _time("at"),
    Column("type", Text, nullable=False),
    _name("queue"),
    _json("body"),
    CheckConstraint("type IN ('workload', 'action', 'configuration')", name="type"),
    Index(None, "at", "id"),
    comment="What changed, for a day or so; written last in the transaction of the change, in the order of the commits",
)

replays = Table(
    "replays",
    metadata,
    _name("who", primary_key=True),
    _name("key", primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    _time("begun_at"),
    Column("status", Integer),
    _text("media_type"),
    Column("body", LargeBinary),
    Index(None, "begun_at"),
    comment="Requests with an Idempotency-Key, for a day: what was asked, and the answer once there is one",
)

leases = Table(
    "leases",
    metadata,
    _name("name", primary_key=True),
    _name("holder"),
    Column("epoch", BigInteger, nullable=False),
    _time("expires_at"),
    # Renewing leaves the key alone and so does not wait for commits, which hold FOR KEY SHARE; a takeover does wait.
    Index("leases_epoch_idx", "name", "epoch", unique=True),
    CheckConstraint("epoch >= 0", name="epoch"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _time("at"),
    _text("who"),
    _text("action"),
    _text("object"),
    Column("before", JSONB),
    Column("after", JSONB),
    _text("source"),
    _text("reason"),
    _text("address"),
    Index(None, "at", "id"),
    Index(None, "object", "id"),
    Index(None, "who", "at", "id"),
    Index(None, "action", "at", "id"),
    Index("audit_prefix_idx", "object", "at", "id", postgresql_ops={"object": "text_pattern_ops"}),
    comment="Append-only for every role",
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _name("name"),
    Column("hash", LargeBinary, nullable=False),
    _json("scopes", "[]"),
    _time("created_at"),
    _text("created_by"),
    _time("expires_at", nullable=True),
    _time("used_at", nullable=True),
    _time("revoked_at", nullable=True),
    _text("revoked_by"),
    UniqueConstraint("hash"),
    CheckConstraint("octet_length(hash) = 32", name="hash"),
    Index("tokens_name_idx", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
    comment="API tokens; hash is the SHA-256 of the token, which nobody keeps",
)

allowances = Table(
    "allowances",
    metadata,
    _name("kind", primary_key=True),
    _name("name", primary_key=True),
    _json("cells", "[]"),
    comment="What a subtree was given from above, which its own admins may share out",
)
