"""Hints to whoever listens (`listen.py`): they say that something changed, never what; readers read the tables."""

from __future__ import annotations

from sqlalchemy import Connection

from queue_manager.store.pipeline import in_words_of_driver

CHANGED = "queue_manager_changed"
"""Workloads, admissions, explanations or nodes changed."""

CONFIGURATION = "queue_manager_configuration"
"""The configuration has a new revision."""

INSTRUCTIONS = "queue_manager_instructions"
"""Somebody asks something of a workload."""

NOTIFY = in_words_of_driver("SELECT pg_notify(:channel, '')")


def notify(connection: Connection, channel: str) -> None:
    """Sends a hint when the transaction commits."""
    connection.exec_driver_sql(NOTIFY, {"channel": channel})
