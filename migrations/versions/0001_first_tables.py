"""First tables: configuration, workloads, admissions, ledger, explanations, nodes, outbox, leases, audit."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE revisions (
    number BIGINT NOT NULL,
    author TEXT DEFAULT '' NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    source TEXT DEFAULT '' NOT NULL,
    diff JSONB DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT revisions_pkey PRIMARY KEY (number),
    CONSTRAINT revisions_number_check CHECK (number > 0)
);
COMMENT ON TABLE revisions IS 'Changes of the configuration; numbers have no gaps';

CREATE TABLE config_objects (
    kind TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    spec JSONB DEFAULT '{}'::jsonb NOT NULL,
    labels JSONB DEFAULT '{}'::jsonb NOT NULL,
    owner TEXT DEFAULT '' NOT NULL,
    revision BIGINT NOT NULL,
    CONSTRAINT config_objects_pkey PRIMARY KEY (kind, namespace, name),
    CONSTRAINT config_objects_revision_fkey FOREIGN KEY(revision) REFERENCES revisions (number)
);
COMMENT ON TABLE config_objects
    IS 'The configuration as people wrote it; revision is that of the object''s last change';

CREATE TABLE workloads (
    uid TEXT COLLATE "C" NOT NULL,
    version BIGINT DEFAULT 1 NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    local_queue TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    priority_class TEXT DEFAULT '' NOT NULL,
    may_preempt BOOLEAN NOT NULL,
    preemptible BOOLEAN NOT NULL,
    "user" TEXT COLLATE "C" NOT NULL,
    groups TEXT[] DEFAULT '{}'::text[] NOT NULL,
    after_drain TEXT,
    reason TEXT DEFAULT '' NOT NULL,
    message TEXT DEFAULT '' NOT NULL,
    attempt INTEGER NOT NULL,
    not_before TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    topology JSONB,
    inputs JSONB DEFAULT '{}'::jsonb NOT NULL,
    requested JSONB DEFAULT '{}'::jsonb NOT NULL,
    open_attempt INTEGER,
    holds_open BOOLEAN GENERATED ALWAYS AS (CASE WHEN open_attempt IS NOT NULL THEN true END) STORED,
    CONSTRAINT workloads_pkey PRIMARY KEY (uid),
    CONSTRAINT workloads_version_check CHECK (version > 0),
    CONSTRAINT workloads_state_check
        CHECK (state IN ('waiting', 'reserved', 'held', 'starting', 'running', 'draining', 'finished', 'failed',
                         'deactivated')),
    CONSTRAINT workloads_attempt_check CHECK (attempt >= 0),
    CONSTRAINT workloads_after_drain_check CHECK (after_drain IS NULL
        OR after_drain IN ('waiting', 'reserved', 'held', 'starting', 'running', 'draining', 'finished', 'failed',
                           'deactivated')),
    CONSTRAINT workloads_charged_has_admission_check
        CHECK ((state IN ('reserved', 'starting', 'running', 'draining')) = (open_attempt IS NOT NULL)),
    CONSTRAINT workloads_ended_has_time_check CHECK (state NOT IN ('finished', 'failed') OR finished_at IS NOT NULL)
);
CREATE INDEX workloads_namespace_created_at_uid_idx ON workloads (namespace, created_at, uid);
CREATE INDEX workloads_queue_created_at_uid_idx ON workloads (queue, created_at, uid);
CREATE INDEX workloads_user_created_at_uid_idx ON workloads ("user", created_at, uid);
CREATE INDEX workloads_live_idx ON workloads (queue, state) WHERE state NOT IN ('finished', 'failed');
CREATE INDEX workloads_ended_idx ON workloads (finished_at, uid) WHERE state IN ('finished', 'failed');
CREATE INDEX workloads_created_at_uid_idx ON workloads (created_at, uid);
CREATE INDEX workloads_state_created_at_uid_idx ON workloads (state, created_at, uid);
CREATE INDEX workloads_search_idx ON workloads USING gin ((namespace || '/' || name) gin_trgm_ops);
CREATE INDEX workloads_namespace_name_idx ON workloads (namespace, name);
COMMENT ON TABLE workloads IS 'One row per job object; requested is the greatest need over the stages, by resource';

CREATE TABLE pod_groups (
    workload_uid TEXT COLLATE "C" NOT NULL,
    index INTEGER NOT NULL,
    name TEXT NOT NULL,
    policy TEXT NOT NULL,
    minimum INTEGER,
    topology JSONB,
    CONSTRAINT pod_groups_pkey PRIMARY KEY (workload_uid, index),
    CONSTRAINT pod_groups_policy_check CHECK (policy IN ('gang', 'basic')),
    CONSTRAINT pod_groups_minimum_check CHECK (minimum >= 0),
    CONSTRAINT pod_groups_workload_uid_fkey FOREIGN KEY(workload_uid) REFERENCES workloads (uid) ON DELETE CASCADE
);

CREATE TABLE pod_sets (
    workload_uid TEXT COLLATE "C" NOT NULL,
    group_index INTEGER NOT NULL,
    index INTEGER NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    reclaimed INTEGER NOT NULL,
    min_count INTEGER,
    first_stage INTEGER NOT NULL,
    last_stage INTEGER NOT NULL,
    requests JSONB DEFAULT '{}'::jsonb NOT NULL,
    placement JSONB DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pod_sets_pkey PRIMARY KEY (workload_uid, group_index, index),
    CONSTRAINT pod_sets_workload_uid_group_index_fkey FOREIGN KEY(workload_uid, group_index)
        REFERENCES pod_groups (workload_uid, index) ON DELETE CASCADE,
    CONSTRAINT pod_sets_count_check CHECK (count >= 0),
    CONSTRAINT pod_sets_reclaimed_check CHECK (reclaimed BETWEEN 0 AND count),
    CONSTRAINT pod_sets_min_count_check CHECK (min_count BETWEEN 0 AND count),
    CONSTRAINT pod_sets_stages_check CHECK (first_stage <= last_stage)
);
COMMENT ON TABLE pod_sets
    IS 'requests are those of one pod; placement holds selectors, affinity, tolerations, topology, ports';

CREATE TABLE admissions (
    workload_uid TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    admission JSONB DEFAULT '{}'::jsonb NOT NULL,
    admitted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    evicted_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    cause TEXT DEFAULT '' NOT NULL,
    cause_message TEXT DEFAULT '' NOT NULL,
    by TEXT DEFAULT '' NOT NULL,
    open BOOLEAN GENERATED ALWAYS AS (ended_at IS NULL) STORED NOT NULL,
    CONSTRAINT admissions_pkey PRIMARY KEY (workload_uid, attempt),
    CONSTRAINT admissions_open_key UNIQUE (workload_uid, attempt, open),
    CONSTRAINT admissions_attempt_check CHECK (attempt > 0),
    CONSTRAINT admissions_workload_uid_fkey FOREIGN KEY(workload_uid) REFERENCES workloads (uid) ON DELETE CASCADE
);
CREATE UNIQUE INDEX admissions_one_open_idx ON admissions (workload_uid) WHERE ended_at IS NULL;
COMMENT ON TABLE admissions IS 'Every admission of a workload; at most one is open, and a charged workload has it';

CREATE TABLE ledger (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    workload_uid TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    "user" TEXT COLLATE "C" NOT NULL,
    flavor TEXT COLLATE "C" NOT NULL,
    resource TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT ledger_pkey PRIMARY KEY (id),
    CONSTRAINT ledger_amount_check CHECK (amount >= 0),
    CONSTRAINT ledger_state_check CHECK (state IN ('reserved', 'draining', 'reclaimed-loan')),
    CONSTRAINT ledger_until_check CHECK (until >= since)
);
CREATE INDEX ledger_usage_idx ON ledger (queue, flavor, resource, state) INCLUDE (amount) WHERE until IS NULL;
CREATE INDEX ledger_workload_uid_since_idx ON ledger (workload_uid, since);
CREATE INDEX ledger_since_idx ON ledger (since);
CREATE UNIQUE INDEX ledger_open_idx ON ledger (workload_uid, flavor, resource, state) WHERE until IS NULL;
COMMENT ON TABLE ledger
    IS 'Append-only intervals; nothing refers to it and it outlives the workloads, so old parts can be cut off';

CREATE TABLE explanations (
    workload_uid TEXT COLLATE "C" NOT NULL,
    body JSONB DEFAULT '{}'::jsonb NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT explanations_pkey PRIMARY KEY (workload_uid),
    CONSTRAINT explanations_workload_uid_fkey FOREIGN KEY(workload_uid) REFERENCES workloads (uid) ON DELETE CASCADE
);

CREATE TABLE nodes (
    name TEXT COLLATE "C" NOT NULL,
    labels JSONB DEFAULT '{}'::jsonb NOT NULL,
    taints JSONB DEFAULT '[]'::jsonb NOT NULL,
    allocatable JSONB DEFAULT '{}'::jsonb NOT NULL,
    "foreign" JSONB DEFAULT '{}'::jsonb NOT NULL,
    ready BOOLEAN NOT NULL,
    unschedulable BOOLEAN NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE nodes IS 'Nodes and what pods that we do not manage use on them, as the leader saw them';

CREATE TABLE facts (
    name TEXT COLLATE "C" NOT NULL,
    value JSONB DEFAULT 'null'::jsonb NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT facts_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE facts IS 'Single facts of the installation, with the time they were last written';

CREATE TABLE outbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    workload_uid TEXT COLLATE "C" NOT NULL,
    action TEXT NOT NULL,
    payload JSONB DEFAULT '{}'::jsonb NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    last_error TEXT DEFAULT '' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    not_before TIMESTAMP WITH TIME ZONE,
    CONSTRAINT outbox_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_action_check CHECK (action IN ('sync', 'event', 'annotate')),
    CONSTRAINT outbox_tries_check CHECK (tries >= 0)
);
CREATE INDEX outbox_created_at_idx ON outbox (created_at);
COMMENT ON TABLE outbox IS 'What the executors have to do at the API server; done rows are deleted';

CREATE TABLE leases (
    name TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name),
    CONSTRAINT leases_epoch_check CHECK (epoch >= 0)
);
CREATE UNIQUE INDEX leases_epoch_idx ON leases (name, epoch);

CREATE TABLE audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    who TEXT DEFAULT '' NOT NULL,
    action TEXT DEFAULT '' NOT NULL,
    object TEXT DEFAULT '' NOT NULL,
    before JSONB,
    after JSONB,
    source TEXT DEFAULT '' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_at_id_idx ON audit (at, id);
CREATE INDEX audit_object_id_idx ON audit (object, id);
COMMENT ON TABLE audit IS 'Append-only for every role';

ALTER TABLE workloads ADD CONSTRAINT workloads_open_admission_fkey FOREIGN KEY(uid, open_attempt, holds_open)
    REFERENCES admissions (workload_uid, attempt, open) DEFERRABLE INITIALLY DEFERRED;
"""

# ENABLE ALWAYS: they hold for every role, and with session_replication_role = replica too.
TRIGGERS = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_append_only;

CREATE TRIGGER ledger_append_only BEFORE DELETE OR TRUNCATE ON ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger ENABLE ALWAYS TRIGGER ledger_append_only;

CREATE TRIGGER ledger_ends_once BEFORE UPDATE ON ledger FOR EACH ROW
    WHEN (OLD.until IS NOT NULL OR NEW.until IS NULL OR
        (OLD.id, OLD.workload_uid, OLD.namespace, OLD.queue, OLD."user", OLD.flavor, OLD.resource, OLD.amount,
         OLD.state, OLD.since)
        IS DISTINCT FROM
        (NEW.id, NEW.workload_uid, NEW.namespace, NEW.queue, NEW."user", NEW.flavor, NEW.resource, NEW.amount,
         NEW.state, NEW.since))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger ENABLE ALWAYS TRIGGER ledger_ends_once;
"""

DROPS = """
ALTER TABLE workloads DROP CONSTRAINT workloads_open_admission_fkey;
DROP TABLE audit, leases, outbox, facts, nodes, explanations, ledger, admissions, pod_sets, pod_groups, workloads,
    config_objects, revisions;
DROP FUNCTION refuse_change();
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(TRIGGERS)


def downgrade() -> None:
    op.execute(DROPS)
