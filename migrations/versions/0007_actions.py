"""Moving, reprioritising, evicting: wishes for it, labels that have yet to be written, the outbox entry that writes."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

WISHES = ("hold", "release", "check")
ACTIONS = ("sync", "event", "annotate")


def upgrade() -> None:
    op.execute("ALTER TABLE workloads ADD COLUMN relabels JSONB DEFAULT '[]'::jsonb NOT NULL")
    _listed("instructions", "wish", (*WISHES, "move", "reprioritise", "evict"))
    _listed("outbox", "action", (*ACTIONS, "relabel"))


def downgrade() -> None:
    # An older version can't carry them out: their audit lines stay, as those of all that made no sense any more.
    op.execute("DELETE FROM instructions WHERE wish IN ('move', 'reprioritise', 'evict')")
    op.execute("DELETE FROM outbox WHERE action = 'relabel'")
    _listed("instructions", "wish", WISHES)
    _listed("outbox", "action", ACTIONS)
    op.execute("ALTER TABLE workloads DROP COLUMN relabels")


def _listed(table: str, column: str, values: tuple[str, ...]) -> None:
    words = ", ".join(f"'{value}'" for value in values)
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_{column}_check")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_check CHECK ({column} IN ({words}))")
