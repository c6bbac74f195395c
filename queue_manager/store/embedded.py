"""PostgreSQL run by ourselves for a single machine: data in a folder, a Unix socket, no TCP.

`DIR/pg` is the data, with the socket in it; `DIR/lock` is held by the process that owns the server; its log is
`DIR/postgres.log`.

Started as root, the server runs as another user (`server_user`). That user needs no way to DIR: root opens the data
folder, the server inherits it and is told that its data are in `/proc/self/fd/N`. So DIR may lie below a 0700 home and
nobody's permissions change. (Its working directory would do too, but PostgreSQL 15 leaves and enters that by name.) Its
programs are copied when that user can't reach them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote

import psycopg

from queue_manager.store.binaries import ENVIRONMENT, EmbeddedError, ServerUser, find_binaries, server_user

ROLE = "queue_manager"
DATABASE = "queue_manager"
_SOCKET_LIMIT = 107
_LOG_LIMIT = 10 * 1024 * 1024
_STOP_SECONDS = 30.0
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "cluster_name": "queue-manager",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class FolderInUse(EmbeddedError):
    """Another process runs a server on the same folder."""


class EmbeddedPostgres:
    """A server on `folder` (made when missing). One process at a time owns it; a context manager starts and stops it.

    `fsync=False` is for tests: data don't survive a crash of the machine. `settings` override those of the server.
    """

    def __init__(self, folder: Path | str, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.data = self.folder / "pg"
        self._fsync = fsync
        self._settings = {**_SETTINGS, **({} if fsync else _UNSAFE), **(settings or {})}
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None
        self._opened: int | None = None
        self._user = ServerUser(os.geteuid(), os.getegid())

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database; EmbeddedError when the server was not started."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """SQLAlchemy URL of another database of the same server."""
        if self._sockets is None:
            raise EmbeddedError(f"the server on {self.folder} is not started")
        return f"postgresql+psycopg://{ROLE}@/{database}?host={quote(str(self._sockets), safe='/')}"

    @property
    def running(self) -> bool:
        """Whether the server process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the server."""
        return self._process.pid if self._process is not None else None

    def start(self, timeout: float = 60.0) -> str:
        """Starts the server, after ending one that a killed owner left behind, and returns the URL.

        `timeout` in seconds covers crash recovery. FolderInUse when another process owns the folder; EmbeddedError when
        there are no programs, the data are of another version, or the server does not come up (the end of its log).
        """
        if self.running:
            return self.url
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise EmbeddedError(f"can't use {self.folder} for the embedded database: {error.strerror}") from error
        try:
            self._start(timeout)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Ends connections and the server, in order (no recovery at the next start), and frees the folder."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._sockets is not None and self._sockets != self.data:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets = None
        self._close_data()
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        path = self.folder / "lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            owner = path.read_text().strip() or "unknown"
            raise FolderInUse(
                f"the data folder {self.folder} is in use by process {owner}; stop it first, or choose another folder"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _start(self, timeout: float) -> None:
        _end_leftover(self.data)
        made_by = self.data / "PG_VERSION"
        wanted = int(made_by.read_text()) if made_by.exists() else None
        self._user = server_user(self.data if wanted is not None else self.folder)
        binaries = find_binaries(self._user, wanted)
        if wanted is None:
            self._initialise(binaries)
        sockets = self._choose_sockets()
        seen = self._seen(self.data)
        with self._open_log() as log:
            self._process = subprocess.Popen(
                [binaries / "postgres", "-D", seen, *self._arguments(seen if sockets == self.data else str(sockets))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._process_options(),
            )
        self._close_data()
        self._await_ready(timeout)
        self._sockets = sockets
        self._create_database()

    def _process_options(self) -> dict[str, Any]:
        return {
            "cwd": "/",
            "env": ENVIRONMENT,
            "pass_fds": () if self._opened is None else (self._opened,),
            # Ctrl-C goes to the terminal's process group: the server must outlive the program's orderly end.
            "start_new_session": True,
            **self._user.switch,
        }

    def _seen(self, folder: Path) -> str:
        """The path of `folder` for the server's user."""
        self._close_data()
        if not self._user.switch:
            return str(folder)
        if not sys.platform.startswith("linux"):
            raise EmbeddedError("the embedded database can't be started as root on this system; use another user")
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._opened}"

    def _close_data(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def _initialise(self, binaries: Path) -> None:
        """Makes the cluster in `pg.new`, renamed when complete: an interrupted one is made again."""
        new = self.folder / "pg.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        os.chown(new, self._user.uid, self._user.gid)
        options = [
            "-U",
            ROLE,
            "--auth-local=trust",
            "--auth-host=reject",
            "-E",
            "UTF8",
            "--locale=C",
            "--data-checksums",
        ]
        if not self._fsync:
            options.append("--no-sync")
        command: list[str | Path] = [binaries / "initdb", "-D", self._seen(new), *options]
        answer = subprocess.run(command, check=False, capture_output=True, text=True, **self._process_options())
        if answer.returncode != 0:
            raise EmbeddedError(f"initdb failed in {self.folder}: {answer.stderr.strip() or answer.stdout.strip()}")
        new.rename(self.data)

    def _choose_sockets(self) -> Path:
        """The data folder, or a short temporary one when the kernel or libpq could not take the socket's path."""
        path = str(self.data / ".s.PGSQL.5432")
        if len(os.fsencode(path)) <= _SOCKET_LIMIT and not set(path) & set(',"'):
            return self.data
        sockets = Path(tempfile.mkdtemp(prefix="qm-pg-"))
        os.chown(sockets, self._user.uid, self._user.gid)
        return sockets

    def _arguments(self, sockets: str) -> list[str]:
        settings = {"unix_socket_directories": f'"{sockets}"', **self._settings}
        return [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]

    def _open_log(self) -> IO[bytes]:
        path = self.folder / "postgres.log"
        if path.exists() and path.stat().st_size > _LOG_LIMIT:
            path.rename(path.with_suffix(".log.1"))
        return open(path, "ab")

    def _await_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise EmbeddedError(f"PostgreSQL did not start on {self.folder}: {self._log_end()}")
            state = _pid_file(self.data)
            if len(state) > 7 and state[0] == str(self._process.pid) and state[7].strip() == "ready":
                return
            time.sleep(0.01)
        raise EmbeddedError(f"PostgreSQL on {self.folder} was not ready after {timeout:.0f} s: {self._log_end()}")

    def _log_end(self) -> str:
        lines = (self.folder / "postgres.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-5:])

    def _create_database(self) -> None:
        conninfo = self.url_of("postgres").replace("+psycopg", "", 1)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if known is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")


def holds_database(folder: Path | str) -> bool:
    """Whether an embedded database was made in a folder."""
    return Path(folder).expanduser().joinpath("pg", "PG_VERSION").is_file()


def _pid_file(data: Path) -> list[str]:
    """Lines of postmaster.pid: pid, data folder, start time, port, socket folder, address, shared memory, state."""
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    for asked in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):  # fast, immediate, not at all
        if process.poll() is None:
            process.send_signal(asked)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    process.wait()


def _end_leftover(data: Path) -> None:
    """Ends a server whose owner was killed and removes what a killed one left.

    We hold the folder's lock, so whatever runs on the data has no owner. It is ended and not taken over: sessions of
    the killed owner may hold locks, and the settings may have changed.
    """
    if not data.is_dir():
        return
    state = _pid_file(data)
    pid = int(state[0]) if state and state[0].strip().isdigit() else 0
    for asked in (signal.SIGINT, signal.SIGQUIT):
        if _serves(pid, data):
            with suppress(ProcessLookupError):
                os.kill(pid, asked)
            _wait_until(lambda: not _serves(pid, data))
    if not _wait_until(lambda: not _workers_on(data)):
        raise EmbeddedError(f"a server that a former run left still works on {data} (process {pid}) and does not end")
    # After a crash the pids in these files may belong to anything, and PostgreSQL itself would refuse to start then.
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"):
        (data / name).unlink(missing_ok=True)
    if len(state) > 4 and Path(state[4]).name.startswith("qm-pg-"):
        shutil.rmtree(state[4], ignore_errors=True)


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _STOP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _workers_on(data: Path) -> bool:
    """Whether any process works on `data`, children of a killed server too: a new one beside them would destroy it."""
    processes = os.listdir("/proc") if Path("/proc").exists() else []
    return any(_serves(int(name), data) for name in processes if name.isdigit())


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is a PostgreSQL on `data`: a server works in its data folder."""
    if pid <= 0:
        return False
    if Path("/proc/self/cwd").exists():
        try:
            return os.path.samefile(f"/proc/{pid}/cwd", data)
        except (OSError, ValueError):
            return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return "postgres" in answer.stdout and str(data) in answer.stdout
