"""Opening a database: URLs, waiting, refusals, versions."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from queue_manager.store import database
from queue_manager.store.database import DatabaseError, conninfo, make_engine, normalise, open_database
from queue_manager.store.embedded import EmbeddedPostgres


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_every_postgresql_url_means_psycopg(scheme: str) -> None:
    url = normalise(f"{scheme}://user:p%40ss@db:5433/queues?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert (url.password, url.port, url.query["sslmode"]) == ("p@ss", 5433, "require")


def test_psycopg_gets_the_same_database(database_url: str) -> None:
    assert conninfo(database_url).startswith("postgresql://queue_manager@/test_")


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(DatabaseError, match="PostgreSQL URL or embedded:DIR"):
        open_database(url)


def test_an_open_database_speaks_utc_json_and_knows_its_version(database_url: str) -> None:
    with open_database(database_url, name="qm-test") as opened, opened.engine.connect() as connection:
        assert opened.version == 18
        at = datetime(2026, 11, 29, 12, tzinfo=UTC)
        row = connection.execute(
            text("SELECT CAST(:at AS timestamptz), CAST('{\"a\": [1]}' AS jsonb), current_setting('application_name')"),
            {"at": at},
        ).one()
        assert tuple(row) == (at, {"a": [1]}, "qm-test")
        assert row[0].utcoffset().total_seconds() == 0


def test_the_embedded_database_by_url() -> None:
    folder = Path(tempfile.mkdtemp(prefix="qm-d-"))
    try:
        with open_database(f"embedded:{folder}") as opened:
            assert opened.server is not None
            assert opened.server.running
            with opened.engine.connect() as connection:
                assert connection.execute(text("SELECT current_database()")).scalar() == "queue_manager"
        assert not opened.server.running
        opened.close()
    finally:
        shutil.rmtree(folder)


def test_waits_visibly_for_a_server_that_is_not_up() -> None:
    folder = Path(tempfile.mkdtemp(prefix="qm-d-"))
    server = EmbeddedPostgres(folder, fsync=False)
    url = server.start()
    server.stop()
    told: list[str] = []
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            server.start()

    try:
        with open_database(url, on_wait=told.append, sleep=sleep):
            pass
    finally:
        server.stop()
        shutil.rmtree(folder)
    assert pauses == [0.2, 0.4, 0.8]
    assert len(told) == 3
    assert told[0].startswith("waiting for the database postgresql://queue_manager@/queue_manager")
    assert "next try in 0.2 s" in told[0]


def test_gives_up_after_a_while_without_telling_the_password() -> None:
    told: list[str] = []
    pauses: list[float] = []
    with pytest.raises(DatabaseError) as caught:
        open_database(
            "postgresql://ada:secret@127.0.0.1:1/queues", timeout=30, on_wait=told.append, sleep=pauses.append
        )
    assert "Connection refused" in str(caught.value)
    assert sum(pauses) >= 30
    assert max(pauses) == 10
    assert "secret" not in str(caught.value) + "".join(told)


def test_does_not_wait_where_the_server_refuses(database_url: str) -> None:
    url = make_url(database_url).set(database="nowhere").render_as_string()
    with pytest.raises(DatabaseError, match='database "nowhere" does not exist'):
        open_database(url, sleep=lambda seconds: pytest.fail("waited"))


def test_other_versions_are_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SUPPORTED", range(15, 18))
    with pytest.raises(DatabaseError, match=r"PostgreSQL 18 at .* is not supported: 15 to 18 are"):
        open_database(database_url)


def test_options_of_the_url_are_kept(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"options": "-c work_mem=7MB"})
    with open_database(url.render_as_string()) as opened, opened.engine.connect() as connection:
        shown = connection.execute(text("SELECT current_setting('work_mem'), current_setting('timezone')")).one()
    assert tuple(shown) == ("7MB", "UTC")


def test_connections_that_the_server_has_ended_are_made_anew_before_their_use(database_url: str) -> None:
    engine, other = make_engine(database_url), make_engine(database_url)
    ask = text("SELECT pg_backend_pid()")
    with engine.connect() as one, engine.connect() as two:
        former = [one.execute(ask).scalar_one(), two.execute(ask).scalar_one()]
    with other.connect() as connection:
        end = text("SELECT pg_terminate_backend(pid, 20000) FROM unnest(CAST(:pids AS integer[])) AS pid")
        assert connection.execute(end, {"pids": former}).scalars().all() == [True, True]
    with engine.connect() as one, engine.connect() as two:
        assert not {one.execute(ask).scalar_one(), two.execute(ask).scalar_one()} & set(former)
    engine.dispose()
    other.dispose()
