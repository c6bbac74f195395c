"""Pod groups say what becomes of them when a third party takes pods away."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE pod_groups ADD COLUMN disruption TEXT NOT NULL DEFAULT 'single'"
        " CONSTRAINT pod_groups_disruption_check CHECK (disruption IN ('single', 'all'))"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE pod_groups DROP COLUMN disruption")
