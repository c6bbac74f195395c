"""Indexes of the history's lists end with the state: a list of one state skips the others in the index, not row by
row."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

LISTS = (
    ("created_at", "uid"),
    ("queue", "created_at", "uid"),
    ("namespace", "created_at", "uid"),
    ("user", "created_at", "uid"),
    ("kind", "created_at", "uid"),
    ("priority", "created_at", "uid"),
    ("namespace", "name", "uid"),
    ("finished_at", "uid"),
)


def _name(columns: tuple[str, ...]) -> str:
    return f"workload_history_{'_'.join(columns)}_idx"


def _make(columns: tuple[str, ...]) -> None:
    quoted = ", ".join(f'"{column}"' for column in columns)
    op.execute(f"CREATE INDEX {_name(columns)} ON workload_history ({quoted})")


def _drop(indexes: list[tuple[str, ...]]) -> None:
    """After all others are made: the history can be read while they are, and not from here to the end."""
    op.execute(f"DROP INDEX {', '.join(map(_name, indexes))}")


def upgrade() -> None:
    for columns in LISTS:
        _make((*columns, "state"))
    _drop([*LISTS])


def downgrade() -> None:
    for columns in LISTS:
        _make(columns)
    _drop([(*columns, "state") for columns in LISTS])
