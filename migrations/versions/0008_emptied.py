"""Workloads of plain pods say since when nobody has made new pods for them."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE workloads ADD COLUMN emptied_at TIMESTAMP WITH TIME ZONE")


def downgrade() -> None:
    op.execute("ALTER TABLE workloads DROP COLUMN emptied_at")
