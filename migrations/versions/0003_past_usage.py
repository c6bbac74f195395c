"""Past usage: the end of an interval of the ledger can be looked up."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX ledger_until_idx ON ledger (until)")


def downgrade() -> None:
    op.execute("DROP INDEX ledger_until_idx")
