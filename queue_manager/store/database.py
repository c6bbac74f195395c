"""Opens the database of a URL: any PostgreSQL 15 to 18, or the embedded one (`embedded:DIR`)."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
import psycopg
import structlog
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, OperationalError

from queue_manager.store.binaries import SUPPORTED
from queue_manager.store.embedded import EmbeddedPostgres

EMBEDDED = "embedded:"
DEFAULT_FOLDER = ".queue-manager"
"""Of `embedded:` alone."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0
_REFUSALS = ("28", "3D", "42")  # SQLSTATE classes: bad user or password, no such database, no right

log = structlog.get_logger()


class DatabaseError(Exception):
    """The database can't be used; the message says which and why, without passwords."""


@dataclass(slots=True)
class Database:
    """An open database. `close` (or the context manager) ends its connections and, when embedded, its server."""

    url: str
    engine: Engine
    version: int
    server: EmbeddedPostgres | None = None

    def close(self) -> None:
        """Ends all connections, then an embedded server; may be called twice."""
        self.engine.dispose()
        if self.server is not None:
            self.server.stop()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_database(
    url: str,
    *,
    timeout: float | None = 60.0,
    pool_size: int = 10,
    name: str = "queue-manager",
    on_wait: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Database:
    """Opens `url`, a PostgreSQL URL or `embedded:DIR`; `name` is the connections' application name.

    Waits `timeout` seconds (None: for ever) for a database that is not up, telling `on_wait` (default: the log) each
    time. DatabaseError when it stays away, refuses us, or is not of version 15 to 18; EmbeddedError as there.
    """
    if url.startswith(EMBEDDED):
        server = EmbeddedPostgres(url.removeprefix(EMBEDDED) or DEFAULT_FOLDER)
        try:
            database = _open(server.start(), timeout, pool_size, name, on_wait, sleep)
        except BaseException:
            server.stop()
            raise
        database.server = server
        return database
    return _open(url, timeout, pool_size, name, on_wait, sleep)


def normalise(url: str) -> URL:
    """A PostgreSQL URL for SQLAlchemy with psycopg 3; DatabaseError when it is none."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseError("the database must be a PostgreSQL URL or embedded:DIR") from None
    if parsed.drivername.partition("+")[0] not in ("postgresql", "postgres"):
        raise DatabaseError(f"{parsed.drivername} is not supported: a PostgreSQL URL or embedded:DIR is needed")
    return parsed.set(drivername="postgresql+psycopg")


def conninfo(url: str) -> str:
    """The same database for libpq and psycopg."""
    return normalise(url).set(drivername="postgresql").render_as_string(hide_password=False)


def make_engine(url: str | URL, *, pool_size: int = 10, name: str = "queue-manager", lasting: bool = False) -> Engine:
    """An engine with our settings: UTC, fast JSON, connections that notice a dead server. `lasting`: the server does
    not go away while the engine is used, so that connections need not be tried each time."""
    target = normalise(url) if isinstance(url, str) else url
    given = target.query.get("options", "")
    engine = create_engine(
        target,
        pool_size=pool_size,
        max_overflow=pool_size,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
        connect_args={
            "application_name": name,
            "options": f"{given} -c timezone=UTC -c jit=off -c idle_in_transaction_session_timeout=60s".strip(),
            "connect_timeout": 10,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,  # ms; keepalives notice nothing while something sent is not acknowledged
        },
    )
    if not lasting:
        event.listen(engine, "checkout", partial(_try, engine))
    return engine


def _try(engine: Engine, connection: Any, record: object, proxy: object) -> None:
    """Tries a connection before its use if its server has said something unasked: farewell, as a rule. The pool's own
    try asks all of them each time, which takes as long as a small transaction."""
    try:
        poll = select.poll()  # not `select`, which takes no file beyond the first 1,024
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):
            engine.dialect.do_ping(connection)
    except psycopg.Error as error:
        raise InvalidatePoolError from error


def _open(
    url: str,
    timeout: float | None,
    pool_size: int,
    name: str,
    on_wait: Callable[[str], None] | None,
    sleep: Callable[[float], None],
) -> Database:
    parsed = normalise(url)
    engine = make_engine(parsed, pool_size=pool_size, name=name)
    try:
        _await(engine, timeout, on_wait or log.warning, sleep)
        version = _version(engine)
    except BaseException:
        engine.dispose()
        raise
    return Database(parsed.render_as_string(hide_password=False), engine, version)


def _await(
    engine: Engine, timeout: float | None, on_wait: Callable[[str], None], sleep: Callable[[float], None]
) -> None:
    waited, wait = 0.0, _FIRST_WAIT
    while True:
        try:
            with engine.connect():
                return
        except OperationalError as error:
            why = str(error.orig).strip().splitlines()[0]
            if _refused(error) or (timeout is not None and waited >= timeout):
                raise DatabaseError(f"can't use the database {_shown(engine)}: {why}") from error
        on_wait(f"waiting for the database {_shown(engine)}: {why} (next try in {wait:.1f} s)")
        sleep(wait)
        waited += wait
        wait = min(wait * 2, _LONGEST_WAIT)


def _refused(error: OperationalError) -> bool:
    """Whether the server answered that it does not want us; waiting would not change that."""
    state = error.orig.sqlstate if isinstance(error.orig, psycopg.Error) else None
    if state is not None:
        return state.startswith(_REFUSALS)
    # libpq gives no SQLSTATE for refusals while connecting, only the server's text.
    text = str(error.orig)
    return "authentication failed" in text or "does not exist" in text or "no pg_hba.conf entry" in text


def _version(engine: Engine) -> int:
    with engine.connect() as connection:
        major = int((connection.dialect.server_version_info or (0,))[0])
    if major not in SUPPORTED:
        raise DatabaseError(f"PostgreSQL {major} at {_shown(engine)} is not supported: 15 to 18 are")
    return major


def _shown(engine: Engine) -> str:
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=True)
