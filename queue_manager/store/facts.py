"""Single facts of the installation, by name, with the time they were written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from queue_manager.store import codec

_PUT = text(
    "INSERT INTO facts (name, value, at) VALUES (:name, CAST(:value AS jsonb), COALESCE(:now, clock_timestamp())) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value, at = excluded.at"
)
_GET = text("SELECT value FROM facts WHERE name = :name")
_AT = text("SELECT at FROM facts WHERE name = :name")


def put(connection: Connection, name: str, value: Any, now: datetime | None) -> None:
    """Writes or replaces a fact, any JSON value."""
    connection.execute(_PUT, {"name": name, "value": codec.encode(value), "now": now})


def get(connection: Connection, name: str) -> Any:
    """Its value, None when there is none."""
    return connection.execute(_GET, {"name": name}).scalar()


def written_at(connection: Connection, name: str) -> datetime | None:
    """When it was last written."""
    at: datetime | None = connection.execute(_AT, {"name": name}).scalar()
    return at
