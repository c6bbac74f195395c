"""Lifecycle rules: readiness and checks of admissions, backoff and run time of workloads, instructions of people."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE workloads
    ADD COLUMN requeues INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN requeued_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN max_run_time BIGINT,
    ADD COLUMN past_run_time BIGINT DEFAULT 0 NOT NULL,
    ADD COLUMN checks JSONB DEFAULT '[]'::jsonb NOT NULL,
    ADD CONSTRAINT workloads_requeues_check CHECK (requeues >= 0),
    ADD CONSTRAINT workloads_max_run_time_check CHECK (max_run_time > 0),
    ADD CONSTRAINT workloads_past_run_time_check CHECK (past_run_time >= 0);

ALTER TABLE admissions
    ADD COLUMN checked_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN ready_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN unready_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN underlying TEXT DEFAULT '' NOT NULL;

CREATE TABLE instructions (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    workload_uid TEXT COLLATE "C" NOT NULL,
    wish TEXT NOT NULL,
    arguments JSONB DEFAULT '{}'::jsonb NOT NULL,
    who TEXT DEFAULT '' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT instructions_pkey PRIMARY KEY (id),
    CONSTRAINT instructions_workload_uid_fkey FOREIGN KEY(workload_uid) REFERENCES workloads (uid) ON DELETE CASCADE,
    CONSTRAINT instructions_wish_check CHECK (wish IN ('hold', 'release', 'check'))
);
CREATE INDEX instructions_workload_uid_id_idx ON instructions (workload_uid, id);
COMMENT ON TABLE instructions
    IS 'What people ask of workloads and the leader has yet to carry out; done rows are deleted';
"""

DROPS = """
DROP TABLE instructions;
ALTER TABLE admissions
    DROP COLUMN checked_at, DROP COLUMN ready_at, DROP COLUMN unready_at, DROP COLUMN underlying;
ALTER TABLE workloads
    DROP COLUMN requeues, DROP COLUMN requeued_at, DROP COLUMN max_run_time, DROP COLUMN past_run_time,
    DROP COLUMN checks;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DROPS)
