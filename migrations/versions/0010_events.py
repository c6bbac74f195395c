"""Events for readers of the API's stream, and answers to requests that may be sent again."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    type TEXT NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    body JSONB DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (id),
    CONSTRAINT events_type_check CHECK (type IN ('workload', 'action', 'configuration'))
);
CREATE INDEX events_at_id_idx ON events (at, id);
COMMENT ON TABLE events IS
    'What changed, for a day or so; written last in the transaction of the change, in the order of the commits';

CREATE TABLE replays (
    who TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL,
    begun_at TIMESTAMP WITH TIME ZONE NOT NULL,
    status INTEGER,
    media_type TEXT DEFAULT '' NOT NULL,
    body BYTEA,
    CONSTRAINT replays_pkey PRIMARY KEY (who, key)
);
CREATE INDEX replays_begun_at_idx ON replays (begun_at);
COMMENT ON TABLE replays IS
    'Requests with an Idempotency-Key, for a day: what was asked, and the answer once there is one';
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE events, replays")
