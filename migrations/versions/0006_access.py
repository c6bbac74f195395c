"""API tokens; where the lines of the audit log came from, and indexes for its filters; what subtrees have."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE tokens (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    name TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL,
    scopes JSONB DEFAULT '[]'::jsonb NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by TEXT DEFAULT '' NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    used_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    revoked_by TEXT DEFAULT '' NOT NULL,
    CONSTRAINT tokens_pkey PRIMARY KEY (id),
    CONSTRAINT tokens_hash_key UNIQUE (hash),
    CONSTRAINT tokens_hash_check CHECK (octet_length(hash) = 32)
);
CREATE UNIQUE INDEX tokens_name_idx ON tokens (name) WHERE revoked_at IS NULL;
COMMENT ON TABLE tokens IS 'API tokens; hash is the SHA-256 of the token, which nobody keeps';

CREATE TABLE allowances (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    cells JSONB DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT allowances_pkey PRIMARY KEY (kind, name)
);
COMMENT ON TABLE allowances IS 'What a subtree was given from above, which its own admins may share out';

ALTER TABLE audit ADD COLUMN address TEXT DEFAULT '' NOT NULL;
CREATE INDEX audit_who_at_id_idx ON audit (who, at, id);
CREATE INDEX audit_action_at_id_idx ON audit (action, at, id);
CREATE INDEX audit_prefix_idx ON audit (object text_pattern_ops, at, id);
"""
DOWN = """
DROP INDEX audit_prefix_idx, audit_action_at_id_idx, audit_who_at_id_idx;
ALTER TABLE audit DROP COLUMN address;
DROP TABLE allowances, tokens;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
