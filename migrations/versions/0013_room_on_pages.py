"""Pages of new admissions are filled by half: what becomes of one is written beside it, and no index is told."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE admissions SET (fillfactor = 50)")


def downgrade() -> None:
    op.execute("ALTER TABLE admissions RESET (fillfactor)")
