"""Two roles of a real PostgreSQL: the one that the program runs as can't change what is written for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError

from queue_manager.store import migrate
from queue_manager.store.database import DatabaseError, make_engine
from queue_manager.store.grants import upgrade_apart
from queue_manager.store.store import Store
from tests.store.builders import NOW, lead
from tests.store.test_schema import fill

ROLE = "runs"


@pytest.fixture
def admin(empty_database_url: str) -> Iterator[Engine]:
    """The owner, on an empty database, and a role `runs` beside it."""
    engine = make_engine(empty_database_url)
    with engine.begin() as connection:
        if not connection.execute(text("SELECT FROM pg_roles WHERE rolname = 'runs'")).all():
            connection.execute(text("CREATE ROLE runs LOGIN PASSWORD 'runs'"))
    yield engine
    engine.dispose()


@pytest.fixture
def runs(admin: Engine) -> Iterator[Engine]:
    """The run-time role, after the migrations."""
    upgrade_apart(admin, ROLE)
    engine = make_engine(make_url(admin.url).set(username=ROLE, password=ROLE))
    yield engine
    engine.dispose()


def test_the_program_works_as_the_run_time_role(runs: Engine) -> None:
    migrate.check(runs)
    assert migrate.upgrade(runs)  # there is nothing to do, for which no right is needed
    fill(Store(runs))
    store = Store(runs)
    store.move_to_history(NOW, 10)
    store.keep_history(NOW, NOW, NOW)
    assert store.check(NOW) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET who = 'nobody'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "DELETE FROM ledger",
        "TRUNCATE ledger",
        "DROP TABLE audit",
        "ALTER TABLE audit DISABLE TRIGGER audit_append_only",
        "DROP TRIGGER audit_append_only ON audit",
        "CREATE TABLE mine (a int)",
        "UPDATE alembic_version SET version_num = '1'",
        "TRUNCATE workloads CASCADE",
    ],
)
def test_it_lacks_the_grants_for_what_is_written_for_good(runs: Engine, statement: str) -> None:
    store = Store(runs)
    store.audit("ada", "hold", "x", None, None, "token", "", NOW)
    with pytest.raises(DBAPIError, match=r"permission denied|must be owner"), runs.begin() as connection:
        connection.execute(text(statement))
    assert len(store.audit_entries()) == 1


@pytest.mark.parametrize("statement", ["UPDATE audit SET who = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
def test_the_owner_is_stopped_by_the_trigger(admin: Engine, runs: Engine, statement: str) -> None:
    Store(runs).audit("ada", "hold", "x", None, None, "token", "", NOW)
    with pytest.raises(DBAPIError, match="append-only"), admin.begin() as connection:
        connection.execute(text(statement))


def test_tables_of_a_role_that_did_both_are_taken_over(admin: Engine) -> None:
    with admin.begin() as connection:
        connection.execute(text("GRANT CREATE ON SCHEMA public TO runs"))
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
    alone = make_engine(make_url(admin.url).set(username=ROLE, password=ROLE))
    migrate.upgrade(alone)
    fill(Store(alone))
    upgrade_apart(admin, ROLE)
    with pytest.raises(DBAPIError, match="permission denied"), alone.begin() as connection:
        connection.execute(text("DELETE FROM audit"))
    with pytest.raises(DBAPIError, match="must be owner"), alone.begin() as connection:
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))
    assert lead(Store(alone))
    alone.dispose()


def test_roles_that_would_protect_nothing_are_refused(admin: Engine) -> None:
    owner = admin.url.username or ""
    with pytest.raises(DatabaseError, match="name one role"):
        upgrade_apart(admin, owner)
    with pytest.raises(DatabaseError, match="no role 'nobody'"):
        upgrade_apart(admin, "nobody")
    with admin.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS great"))
        connection.execute(text("CREATE ROLE great SUPERUSER"))
    with pytest.raises(DatabaseError, match="superuser"):
        upgrade_apart(admin, "great")
