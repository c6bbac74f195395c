"""History by month: ended workloads in one table of rows that tell all, the ledger's closed intervals; both in
partitions, which are made ahead and dropped by a function that belongs to who migrates. Indexes of lists that sort."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

HISTORY = """
CREATE TABLE workload_history (
    uid TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    "user" TEXT COLLATE "C" NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    row JSONB DEFAULT '{}'::jsonb NOT NULL,
    pod_groups JSONB DEFAULT '[]'::jsonb NOT NULL,
    pod_sets JSONB DEFAULT '[]'::jsonb NOT NULL,
    admissions JSONB DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT workload_history_pkey PRIMARY KEY (uid, finished_at)
) PARTITION BY RANGE (finished_at);
COMMENT ON TABLE workload_history IS
    'Workloads that ended, by month of their end; row, pod_groups, pod_sets and admissions are those of the '
    'live tables';
CREATE INDEX workload_history_created_at_uid_idx ON workload_history (created_at, uid);
CREATE INDEX workload_history_queue_created_at_uid_idx ON workload_history (queue, created_at, uid);
CREATE INDEX workload_history_namespace_created_at_uid_idx ON workload_history (namespace, created_at, uid);
CREATE INDEX workload_history_user_created_at_uid_idx ON workload_history ("user", created_at, uid);
CREATE INDEX workload_history_state_created_at_uid_idx ON workload_history (state, created_at, uid);
CREATE INDEX workload_history_kind_created_at_uid_idx ON workload_history (kind, created_at, uid);
CREATE INDEX workload_history_priority_created_at_uid_idx ON workload_history (priority, created_at, uid);
CREATE INDEX workload_history_namespace_name_uid_idx ON workload_history (namespace, name, uid);
CREATE INDEX workload_history_finished_at_uid_idx ON workload_history (finished_at, uid);
CREATE INDEX workload_history_search_idx ON workload_history USING gin ((namespace || '/' || name) gin_trgm_ops);
CREATE TABLE workload_history_rest PARTITION OF workload_history DEFAULT;

CREATE INDEX workloads_kind_created_at_uid_idx ON workloads (kind, created_at, uid);
CREATE INDEX workloads_priority_created_at_uid_idx ON workloads (priority, created_at, uid);
CREATE INDEX workloads_namespace_name_uid_idx ON workloads (namespace, name, uid);
DROP INDEX workloads_namespace_name_idx;
"""

LEDGER_COLUMNS = """
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
    CONSTRAINT ledger_amount_check CHECK (amount >= 0),
    CONSTRAINT ledger_state_check CHECK (state IN ('reserved', 'draining', 'reclaimed-loan')),
    CONSTRAINT ledger_until_check CHECK (until >= since)
"""
SET_ASIDE = """
ALTER TABLE ledger RENAME TO ledger_before;
ALTER SEQUENCE ledger_id_seq RENAME TO ledger_before_id_seq;
DROP TRIGGER ledger_append_only ON ledger_before;
DROP TRIGGER ledger_ends_once ON ledger_before;
DROP INDEX ledger_usage_idx, ledger_workload_uid_since_idx, ledger_since_idx, ledger_until_idx, ledger_open_idx;
ALTER TABLE ledger_before DROP CONSTRAINT ledger_amount_check, DROP CONSTRAINT ledger_state_check,
    DROP CONSTRAINT ledger_until_check;
"""
INDEXES = """
CREATE INDEX ledger_workload_uid_since_idx ON ledger (workload_uid, since);
CREATE INDEX ledger_since_idx ON ledger (since);
CREATE INDEX ledger_until_idx ON ledger (until);
"""
OPEN_INDEXES = """
CREATE UNIQUE INDEX ledger_open_idx ON {0} (workload_uid, flavor, resource, state) WHERE until IS NULL;
CREATE INDEX ledger_usage_idx ON {0} (queue, flavor, resource, state) INCLUDE (amount) WHERE until IS NULL;
"""
MOVE = """
INSERT INTO ledger OVERRIDING SYSTEM VALUE SELECT * FROM ledger_before;
SELECT setval(pg_get_serial_sequence('ledger', 'id'), (SELECT COALESCE(max(id), 0) + 1 FROM ledger_before), false);
DROP TABLE ledger_before;
"""
# ENABLE ALWAYS: they hold for every role, and with session_replication_role = replica too.
TRIGGERS = """
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
OPEN_TRIGGER = """
CREATE TRIGGER ledger_append_only BEFORE DELETE OR TRUNCATE ON ledger_open
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_open ENABLE ALWAYS TRIGGER ledger_append_only;
"""

# They run as who migrates, for making and dropping tables is not what the program's own role need be able to do.
FUNCTIONS = """
CREATE FUNCTION history_month(parent text, rest text, key text, month timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    part text := parent || '_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
    first timestamptz := date_trunc('month', month AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    next timestamptz := (date_trunc('month', month AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
    moved bigint;
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, parent);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE %I >= $1 AND %I < $2', part, rest, key, key)
        USING first, next;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved > 0 THEN
        IF parent = 'ledger' THEN
            EXECUTE format('ALTER TABLE %I DISABLE TRIGGER ledger_append_only', rest);
        END IF;
        EXECUTE format('DELETE FROM %I WHERE %I >= $1 AND %I < $2', rest, key, key) USING first, next;
        IF parent = 'ledger' THEN
            EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER ledger_append_only', rest);
        END IF;
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, first, next);
    IF parent = 'ledger' THEN
        EXECUTE format('CREATE TRIGGER ledger_append_only BEFORE DELETE OR TRUNCATE ON %I '
            'FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', part);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER ledger_append_only', part);
    END IF;
    RETURN part;
END $$;

CREATE FUNCTION history_keep(first timestamptz, last timestamptz, workloads_before timestamptz,
        usage_before timestamptz) RETURNS TABLE (made text, dropped text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
DECLARE
    wanted timestamptz[];
    month timestamptz;
    part record;
BEGIN
    PERFORM pg_advisory_xact_lock(487814395235);
    SELECT array_agg(DISTINCT m) INTO wanted FROM (
        SELECT generate_series(date_trunc('month', first AT TIME ZONE 'UTC'), last AT TIME ZONE 'UTC', '1 month')
            AT TIME ZONE 'UTC' AS m
        UNION SELECT date_trunc('month', finished_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' FROM workload_history_rest
        UNION SELECT date_trunc('month', until AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' FROM ledger_open
            WHERE until IS NOT NULL) months;
    FOREACH month IN ARRAY wanted LOOP
        made := history_month('workload_history', 'workload_history_rest', 'finished_at', month);
        IF made IS NOT NULL THEN RETURN NEXT; END IF;
        made := history_month('ledger', 'ledger_open', 'until', month);
        IF made IS NOT NULL THEN RETURN NEXT; END IF;
    END LOOP;
    made := NULL;
    FOR part IN
        SELECT c.relname AS name, i.inhparent::regclass::text AS parent, (to_date(right(c.relname, 7), 'YYYY_MM')
            + interval '1 month') AT TIME ZONE 'UTC' AS ends
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('workload_history'::regclass, 'ledger'::regclass) AND c.relname ~ '_[0-9]{4}_[0-9]{2}$'
        ORDER BY 1
    LOOP
        IF part.ends <= (CASE part.parent WHEN 'ledger' THEN usage_before ELSE workloads_before END) THEN
            EXECUTE format('DROP TABLE %I', part.name);
            dropped := part.name;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION history_month(text, text, text, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION history_keep(timestamptz, timestamptz, timestamptz, timestamptz) FROM PUBLIC;

SELECT history_keep(now(), now() + interval '2 months', '-infinity', '-infinity');
"""

DROP_FUNCTIONS = """
DROP FUNCTION history_keep(timestamptz, timestamptz, timestamptz, timestamptz);
DROP FUNCTION history_month(text, text, text, timestamptz);
"""
BRING_BACK = """
CREATE TABLE workloads_back AS SELECT uid, row || jsonb_build_object('uid', uid, 'version', version, 'kind', kind,
    'namespace', namespace, 'name', name, 'created_at', created_at, 'state', state, 'queue', queue,
    'priority', priority, 'user', "user", 'finished_at', finished_at) AS row, pod_groups, pod_sets, admissions
    FROM workload_history;
"""


def upgrade() -> None:
    op.execute(HISTORY)
    op.execute(SET_ASIDE)
    op.execute(f"CREATE TABLE ledger ({LEDGER_COLUMNS}) PARTITION BY RANGE (until)")
    op.execute(
        "COMMENT ON TABLE ledger IS 'Append-only intervals, by month of their end (open ones in ledger_open); nothing "
        "refers to it and it outlives the workloads'"
    )
    op.execute(INDEXES)
    op.execute("CREATE TABLE ledger_open PARTITION OF ledger DEFAULT")
    op.execute(OPEN_INDEXES.format("ledger_open"))
    op.execute(MOVE)
    op.execute(TRIGGERS)
    op.execute(OPEN_TRIGGER)
    op.execute(FUNCTIONS)


def downgrade() -> None:
    op.execute(DROP_FUNCTIONS)
    op.execute(
        "CREATE INDEX workloads_namespace_name_idx ON workloads (namespace, name);"
        "DROP INDEX workloads_kind_created_at_uid_idx, workloads_priority_created_at_uid_idx, "
        "workloads_namespace_name_uid_idx;"
    )
    op.execute(BRING_BACK)
    for table, source in (
        ("workloads", "jsonb_build_array(b.row)"),
        ("pod_groups", "b.pod_groups"),
        ("pod_sets", "b.pod_sets"),
        ("admissions", "b.admissions"),
    ):
        columns = [
            f'"{name}"'
            for (name,) in op.get_bind().exec_driver_sql(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() "
                "AND is_generated = 'NEVER' AND table_name = %s ORDER BY ordinal_position",
                (table,),
            )
        ]
        op.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT r.{', r.'.join(columns)} FROM workloads_back b "
            f"CROSS JOIN LATERAL jsonb_populate_recordset(NULL::{table}, {source}) r"
        )
    op.execute("DROP TABLE workloads_back, workload_history")
    op.execute("DROP TRIGGER ledger_append_only ON ledger_open")
    op.execute(SET_ASIDE.replace("ledger_usage_idx, ", "").replace(", ledger_open_idx", ""))
    op.execute("DROP INDEX ledger_usage_idx, ledger_open_idx")
    op.execute(f"CREATE TABLE ledger ({LEDGER_COLUMNS}, CONSTRAINT ledger_pkey PRIMARY KEY (id))")
    op.execute(
        "COMMENT ON TABLE ledger IS "
        "'Append-only intervals; nothing refers to it and it outlives the workloads, so old parts can be cut off'"
    )
    op.execute(INDEXES)
    op.execute(OPEN_INDEXES.format("ledger"))
    op.execute(MOVE)
    op.execute(TRIGGERS)
