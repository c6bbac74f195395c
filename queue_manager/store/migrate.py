"""Brings the schema of a database to the version this program needs, and back."""

from __future__ import annotations

import re
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

import queue_manager
from queue_manager.store.schema import metadata

PARTITION = re.compile(r"(ledger|workload_history)_(open|rest|[0-9]{4}_[0-9]{2})$")
_LOCK = 0x716D6D6967  # "qmmig": two processes that start at once migrate one after the other


class SchemaMismatch(Exception):
    """The schema is not the one this program needs; the message says what to run."""


def migrations_folder() -> Path:
    """Where the migrations lie: in the wheel `queue_manager/_migrations`, in a checkout the top-level folder."""
    package = Path(queue_manager.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def upgrade(engine: Engine, revision: str = "head") -> str:
    """Migrates up to `revision` in one transaction, returns the schema's revision; several processes may at once."""
    with engine.begin() as connection:
        command.upgrade(_locked(connection), revision)
        return current(connection) or ""


def downgrade(engine: Engine, revision: str) -> str:
    """Migrates down to `revision` (`base` removes everything) in one transaction. Data of dropped tables are lost."""
    with engine.begin() as connection:
        command.downgrade(_locked(connection), revision)
        return current(connection) or ""


def check(engine: Engine) -> None:
    """SchemaMismatch unless the schema is at the newest revision this program knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    with engine.connect() as connection:
        found = current(connection)
    if found == head:
        return
    if found is None:
        raise SchemaMismatch("the database has no tables of ours yet: run `queue-manager db upgrade`")
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found not in known:
        raise SchemaMismatch(f"the database has schema {found}, made by a newer version; this one knows up to {head}")
    raise SchemaMismatch(f"the database has schema {found}, {head} is needed: run `queue-manager db upgrade`")


def current(connection: Connection) -> str | None:
    """Revision of the schema, None when there is none."""
    return MigrationContext.configure(connection).get_current_revision()


def differences(connection: Connection) -> list[object]:
    """What differs between the migrated schema and the tables of `schema.py`; for tests and `db check`."""

    def comparable(item: object, name: str | None, kind: str, reflected: bool, compared: object) -> bool:
        # Alembic can't compare expressions; a test compares the catalogs. Partitions come and go.
        return not (kind == "index" and str(name).endswith("_search_idx")) and not PARTITION.match(str(name))

    context = MigrationContext.configure(connection, opts={"include_object": comparable})
    return list(compare_metadata(context, metadata))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    return config


def _locked(connection: Connection) -> Config:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    return _config(connection)
