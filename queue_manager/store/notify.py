"""Hints to whoever listens (`listen.py`): they say that something changed, never what; readers read the tables."""

from __future__ import annotations

from sqlalchemy import Connection, text

CHANGED = "queue_manager_changed"
"""Workloads, admissions, explanations or nodes changed."""

CONFIGURATION = "queue_manager_configuration"
"""The configuration has a new revision."""

INSTRUCTIONS = "queue_manager_instructions"
"""Somebody asks something of a workload."""

_NOTIFY = text("SELECT pg_notify(:channel, '')")


def notify(connection: Connection, channel: str) -> None:
    """Sends a hint when the transaction commits."""
    connection.execute(_NOTIFY, {"channel": channel})
