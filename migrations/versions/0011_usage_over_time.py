"""The ledger says the kind and the priority class of what was charged; revisions say which objects they touched."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE ledger ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN priority_class TEXT COLLATE "C" NOT NULL DEFAULT '';
"""
# Each row is written anew, and with it its place in each index: these are made afterwards, in one go.
NO_INDEXES = "DROP INDEX ledger_workload_uid_since_idx, ledger_since_idx, ledger_until_idx"
INDEXES = """
CREATE INDEX ledger_workload_uid_since_idx ON ledger (workload_uid, since);
CREATE INDEX ledger_since_idx ON ledger (since);
CREATE INDEX ledger_until_idx ON ledger (until);
"""
# Before the trigger is there again: of a workload that is stored no more both stay empty.
FILL = """
SET LOCAL work_mem = '128MB';
UPDATE ledger l SET kind = w.kind, priority_class = w.priority_class
FROM (SELECT uid, kind, priority_class FROM workloads
    UNION ALL SELECT uid, kind, COALESCE(row ->> 'priority_class', '') FROM workload_history) w
WHERE w.uid = l.workload_uid;
RESET work_mem;
"""
ENDS_ONCE = """
CREATE TRIGGER ledger_ends_once BEFORE UPDATE ON ledger FOR EACH ROW
    WHEN (OLD.until IS NOT NULL OR NEW.until IS NULL OR
        (OLD.{columns})
        IS DISTINCT FROM
        (NEW.{columns_new}))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger ENABLE ALWAYS TRIGGER ledger_ends_once;
"""
BEFORE = ("id", "workload_uid", "namespace", "queue", '"user"', "flavor", "resource", "amount", "state", "since")
NOW = (*BEFORE, "kind", "priority_class")

TOUCHED = """
ALTER TABLE revisions ADD COLUMN touched TEXT[] COLLATE "C" NOT NULL DEFAULT '{}'::text[];
UPDATE revisions r SET touched = (
    SELECT array_agg(DISTINCT t.name) FROM jsonb_array_elements(r.diff) e
    CROSS JOIN LATERAL (VALUES (e ->> 'kind'),
        (concat_ws('/', e ->> 'kind', NULLIF(e ->> 'namespace', ''), e ->> 'name'))) t (name))
WHERE jsonb_array_length(r.diff) > 0;
CREATE INDEX revisions_at_number_idx ON revisions (at, number);
CREATE INDEX revisions_author_number_idx ON revisions (author, number);
CREATE INDEX revisions_touched_idx ON revisions USING gin (touched);
COMMENT ON TABLE revisions IS
    'Changes of the configuration; numbers have no gaps. touched names the objects of the diff as the audit log does, '
    'and their kinds';
"""
NOT_TOUCHED = """
DROP INDEX revisions_at_number_idx, revisions_author_number_idx, revisions_touched_idx;
ALTER TABLE revisions DROP COLUMN touched;
COMMENT ON TABLE revisions IS 'Changes of the configuration; numbers have no gaps';
"""


def _ends_once(columns: tuple[str, ...]) -> str:
    return ENDS_ONCE.format(columns=", OLD.".join(columns), columns_new=", NEW.".join(columns))


def upgrade() -> None:
    op.execute("DROP TRIGGER ledger_ends_once ON ledger")
    op.execute(COLUMNS)
    op.execute(NO_INDEXES)
    op.execute(FILL)
    op.execute(INDEXES)
    op.execute(_ends_once(NOW))
    op.execute(TOUCHED)


def downgrade() -> None:
    op.execute(NOT_TOUCHED)
    op.execute("DROP TRIGGER ledger_ends_once ON ledger")
    op.execute("ALTER TABLE ledger DROP COLUMN kind, DROP COLUMN priority_class")
    op.execute(_ends_once(BEFORE))
