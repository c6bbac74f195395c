"""Migrations up and down, the tables of `schema.py` against them, and rules that the database itself enforces."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

import queue_manager
from queue_manager.store import migrate
from queue_manager.store.database import make_engine
from queue_manager.store.records import Change, ConfigObject, State
from queue_manager.store.schema import ledger, metadata
from queue_manager.store.store import Store
from tests.store.builders import NOW, add, admit, admitted, lead, reserved, workload

_PARTITIONS = "(SELECT inhrelid::regclass::text FROM pg_inherits)"
_CATALOG = {
    "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name, is_identity, "
    "generation_expression FROM information_schema.columns WHERE table_schema = 'public' "
    f"AND table_name <> 'alembic_version' AND table_name NOT IN {_PARTITIONS}",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace AND contype <> 'n' AND conrelid::regclass::text <> 'alembic_version' "
    f"AND conrelid::regclass::text NOT IN {_PARTITIONS}",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes "
    f"WHERE schemaname = 'public' AND tablename <> 'alembic_version' AND tablename NOT IN {_PARTITIONS}",
    "storage": "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'public'::regnamespace "
    "AND relkind IN ('r', 'p') AND reloptions IS NOT NULL",
    "comments": "SELECT relname, obj_description(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace "
    "AND relkind IN ('r', 'p') AND relname <> 'alembic_version' AND NOT relispartition",
}


def catalog(connection: Connection) -> dict[str, list[object]]:
    return {what: sorted(map(str, connection.execute(text(query)))) for what, query in _CATALOG.items()}


def fill(store: Store) -> int:
    """Something in every table."""
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    admit(store, epoch, row)
    store.commit(epoch, None, NOW, [Change(row=workload("b"), explanation={"blockers": []})])
    store.apply_configuration(
        [ConfigObject("Flavor", "h100", {})], author="ada", reason="first", now=NOW, source="test"
    )
    store.put_fact("adopted", True)
    return epoch


def test_the_migrated_schema_is_that_of_the_tables(engine: Engine, empty_database_url: str) -> None:
    made = make_engine(empty_database_url)
    with made.begin() as connection:
        connection.execute(text("CREATE EXTENSION pg_trgm"))
        metadata.create_all(connection)
        expected = catalog(connection)
    made.dispose()
    with engine.connect() as connection:
        assert catalog(connection) == expected
        assert migrate.differences(connection) == []


def test_up_and_down_and_up_again_on_data(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    with pytest.raises(migrate.SchemaMismatch, match="no tables of ours yet"):
        migrate.check(engine)
    head = migrate.upgrade(engine)
    assert migrate.upgrade(engine) == head
    migrate.check(engine)
    fill(Store(engine))
    assert migrate.downgrade(engine, "base") == ""
    with engine.connect() as connection:
        left = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'")
        )
        assert left.all() == []
        assert connection.execute(text("SELECT count(*) FROM pg_proc WHERE proname = 'refuse_change'")).scalar() == 0
    assert migrate.upgrade(engine) == head
    fill(Store(engine))
    engine.dispose()


def test_the_ledger_and_revisions_are_told_what_they_lacked(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine)
    store = Store(engine)
    epoch = fill(store)
    (row,) = add(store, epoch, workload("c", kind="JobSet", priority_class="high"))
    ended = replace(admit(store, epoch, row), state=State.FINISHED, admission=None)
    store.commit(epoch, None, NOW + timedelta(hours=1), [Change(row=ended, ledger=())])
    assert store.move_to_history(NOW + timedelta(days=1), 10) == 1
    store.apply_configuration(
        [ConfigObject("LocalQueue", "default", {}, "team"), ConfigObject("Queue", "nlp", {})],
        author="ada",
        reason="",
        now=NOW,
        source="test",
    )
    queries = (
        "SELECT workload_uid, kind, priority_class, since, until FROM ledger ORDER BY workload_uid",
        "SELECT number, touched FROM revisions ORDER BY number",
    )

    def told() -> list[object]:
        with engine.connect() as connection:
            return [connection.execute(text(query)).all() for query in queries]

    before = told()
    assert [row[1:3] for row in before[0]] == [("JobSet", "high"), ("TrainJob", "")]  # type: ignore[attr-defined]
    assert before[1][1].touched == ["LocalQueue", "LocalQueue/team/default", "Queue", "Queue/nlp"]  # type: ignore[index]
    migrate.downgrade(engine, "0010")
    migrate.upgrade(engine)
    assert told() == before
    with engine.begin() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(text("UPDATE ledger SET kind = 'Job'"))
    engine.dispose()


def test_several_processes_may_migrate_at_once(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    with ThreadPoolExecutor(1) as pool, engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": migrate._LOCK})
        second = pool.submit(migrate.upgrade, engine)
        with pytest.raises(TimeoutError):
            second.result(0.3)
        connection.commit()
        assert second.result(30)
    engine.dispose()


def test_a_newer_schema_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrate.SchemaMismatch, match=r"9999, made by a newer version"):
        migrate.check(engine)


def test_migrations_of_an_installed_wheel(
    tmp_path: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(migrate.migrations_folder(), tmp_path / "100% queue_manager" / "_migrations")
    monkeypatch.setattr(queue_manager, "__file__", str(tmp_path / "100% queue_manager" / "__init__.py"))
    assert migrate.migrations_folder().name == "_migrations"
    engine = make_engine(empty_database_url)
    assert migrate.upgrade(engine)
    engine.dispose()


APPEND_ONLY = (
    "UPDATE audit SET who = 'nobody'",
    "UPDATE audit SET who = 'nobody' WHERE false",
    "DELETE FROM audit",
    "TRUNCATE audit",
    "DELETE FROM ledger",
    "TRUNCATE ledger",
    "UPDATE ledger SET amount = 1",
    "UPDATE ledger SET since = since - interval '1 hour'",
    "UPDATE ledger SET until = NULL",
    "UPDATE ledger SET until = now(), queue = 'other'",
)


def test_the_audit_and_the_ledger_are_append_only(store: Store) -> None:
    fill(store)
    for role in ("origin", "replica"):  # the second is past ordinary triggers
        for statement in APPEND_ONLY:
            with store.engine.begin() as connection:
                connection.execute(text(f"SET LOCAL session_replication_role = {role}"))
                with pytest.raises(DBAPIError, match=r"is append-only: (UPDATE|DELETE|TRUNCATE) refused"):
                    connection.execute(text(statement))


def test_an_interval_ends_once(store: Store) -> None:
    fill(store)
    store.keep_history(NOW, NOW, NOW)  # the month of NOW, whichever today's is
    end = text("UPDATE ledger SET until = since + interval '1 minute'")
    with store.engine.begin() as connection:
        assert connection.execute(end).rowcount == 1
    with store.engine.begin() as connection, pytest.raises(DBAPIError, match=r"ledger_\d{4}_\d\d is append-only"):
        connection.execute(end)


def test_the_ledgers_trigger_looks_at_every_column(engine: Engine) -> None:
    with engine.connect() as connection:
        definition = connection.execute(
            text("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'ledger_ends_once' AND tgparentid = 0")
        ).scalar_one()
    for column in ledger.columns:
        quoted = f'"{column.name}"' if column.name == "user" else column.name
        assert f"new.{quoted}" in definition, column.name


IMPOSSIBLE = (
    ("UPDATE workloads SET state = 'running' WHERE uid = 'b'", "workloads_charged_has_admission_check"),
    ("UPDATE workloads SET state = 'waiting' WHERE uid = 'uid-1'", "workloads_charged_has_admission_check"),
    ("UPDATE workloads SET state = 'lost' WHERE uid = 'b'", "workloads_state_check"),
    ("UPDATE workloads SET state = 'failed' WHERE uid = 'b'", "workloads_ended_has_time_check"),
    ("UPDATE workloads SET state = 'running', open_attempt = 7 WHERE uid = 'b'", "workloads_open_admission_fkey"),
    ("UPDATE admissions SET ended_at = now()", "workloads_open_admission_fkey"),
    ("DELETE FROM admissions", "workloads_open_admission_fkey"),
    (
        "INSERT INTO admissions (workload_uid, attempt, queue, admitted_at) VALUES ('uid-1', 2, 'q', now())",
        "admissions_one_open_idx",
    ),
    (
        'INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since) '
        'SELECT workload_uid, namespace, queue, "user", flavor, resource, 1, state, since FROM ledger',
        "ledger_open_idx",
    ),
    (
        'INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since) '
        "VALUES ('x', 'n', 'q', 'u', 'f', 'r', -1, 'reserved', now())",
        "ledger_amount_check",
    ),
    ("UPDATE ledger SET until = since - interval '1 second'", "ledger_until_check"),
    ("UPDATE pod_sets SET reclaimed = count + 1", "pod_sets_reclaimed_check"),
    ("DELETE FROM revisions", "config_objects_revision_fkey"),
)


def test_the_database_itself_refuses_what_can_not_be(store: Store) -> None:
    fill(store)
    for statement, constraint in IMPOSSIBLE:
        with pytest.raises(IntegrityError, match=constraint), store.engine.begin() as connection:
            connection.execute(text(statement))


def test_the_ledger_outlives_a_forgotten_workload(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    row = admit(store, epoch, row)
    done = replace(row, state=State.FINISHED, admission=None)
    store.commit(epoch, None, NOW, [Change(row=done, ledger=(), explanation={})])
    store.commit(epoch, None, NOW, [Change(row=admitted(add(store, epoch, workload("b"))[0]), ledger=reserved())])
    assert store.move_to_history(NOW, 10) == 0  # ended at NOW, not before
    assert store.move_to_history(NOW.replace(year=2027), 10) == 1
    store.keep_history(NOW, NOW.replace(year=2027), NOW - timedelta(days=1))
    assert store.get_workloads(["uid-1"]) == []
    assert [row.uid for row in store.load_workloads(ended=True)] == ["b"]
    assert len(store.history("uid-1").intervals) == 1
    assert store.check(NOW) == []
    with store.engine.connect() as connection:
        for table in ("pod_groups", "pod_sets", "admissions", "explanations"):
            rows = connection.execute(text(f"SELECT count(*) FROM {table} WHERE workload_uid = 'uid-1'"))
            assert rows.scalar() == 0, table
