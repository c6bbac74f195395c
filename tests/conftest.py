"""Fixtures for every folder: an embedded PostgreSQL a session (a worker, under xdist), a fresh database a test."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis  # noqa: F401  its plugin imports it in the summary, where CPython 3.11.7 fails at times (recursion depth mismatch of the AST)
import psycopg
import pytest
import schemathesis.reporting.html.writer
import schemathesis.reporting.junitxml  # the same, at the end of a session
import structlog
from sqlalchemy import Engine, make_url

from queue_manager.store import migrate
from queue_manager.store.binaries import EmbeddedError
from queue_manager.store.database import conninfo, make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.store import Store

try:
    import schemathesis.reporting.allure  # noqa: F401  the same
except ImportError:
    # A package that it needs is not here. Else it would be compiled and tried again at the end.
    sys.modules["schemathesis.reporting.allure"] = None  # type: ignore[assignment]

_TEMPLATE = "template_of_tests"
_numbers = itertools.count(1)

# Until a test configures the log: tracebacks without the variables of every frame, which take minutes to draw.
_plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _plain])


@pytest.fixture(scope="session", autouse=True)
def _own_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Profiles of commands, which `up` writes too, are never those of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server for the session, without fsync."""
    _end_servers_of_killed_sessions()
    folder = Path(tempfile.mkdtemp(prefix="qm-test-"))
    try:
        with EmbeddedPostgres(folder, fsync=False) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """Name of a migrated, empty database that others are copied from."""
    _administer(postgres_server, f"CREATE DATABASE {_TEMPLATE}")
    engine = make_engine(postgres_server.url_of(_TEMPLATE))
    migrate.upgrade(engine)
    engine.dispose()
    return _TEMPLATE


@pytest.fixture
def database_url(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """URL of a fresh, migrated database of the test's own."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _administer(postgres_server, f"CREATE DATABASE {name} TEMPLATE {template_database}")
    yield postgres_server.url_of(name)
    _administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """URL of a fresh database without any table."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _administer(postgres_server, f"CREATE DATABASE {name}")
    yield postgres_server.url_of(name)
    _administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the test's own database."""
    engine = make_engine(make_url(database_url), lasting=True)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: Engine) -> Store:
    """A store on a fresh database of the test's own."""
    return Store(engine)


def _end_servers_of_killed_sessions() -> None:
    for folder in Path(tempfile.gettempdir()).glob("qm-test-*"):
        try:
            if time.time() - folder.stat().st_mtime > 60:  # a younger one may be about to start
                with EmbeddedPostgres(folder, fsync=False):  # ends the one left behind
                    pass
                shutil.rmtree(folder, ignore_errors=True)
        except (EmbeddedError, OSError):
            continue  # in use, or somebody else's


def _administer(server: EmbeddedPostgres, statement: str) -> None:
    with psycopg.connect(conninfo(server.url_of("postgres")), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[arg-type]
