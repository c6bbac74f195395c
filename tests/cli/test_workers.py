"""Several processes behind one socket: they count together, ask one planner, and none of them is missed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx2
import pytest

from queue_manager.cli.workers import cores
from queue_manager.store.store import Store
from tests.api.world import SMALL, configure, document, queue, text

BURST = 20


@dataclass(slots=True)
class Server:
    """`queue-manager api` with two processes that answer."""

    url: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def started(self) -> list[int]:
        """Those that answer, or have answered."""
        self.log.seek(0)
        lines = [json.loads(line) for line in self.log.read().decode().splitlines() if line.startswith("{")]
        return [line["pid"] for line in lines if line["event"] == "a process of the API starts"]

    def ask(self, path: str, body: str | None = None) -> httpx2.Response:
        """On a connection of its own, so that any process may answer."""
        return httpx2.request("GET" if body is None else "POST", f"{self.url}{path}", content=body, timeout=120)

    @contextlib.contextmanager
    def alone(self, pid: int) -> Iterator[None]:
        """While the other processes are stopped, whatever is asked one of them answers."""
        others = [each for each in self.started() if each != pid and not is_gone(each)]
        for each in others:
            os.kill(each, signal.SIGSTOP)
        try:
            until(self.answers)
            yield
        finally:
            for each in others:
                os.kill(each, signal.SIGCONT)

    def answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return self.ask("/healthz").status_code == 200
        except httpx2.HTTPError:
            return False


def until(check: Callable[[], object], seconds: float = 120) -> None:
    """Polls until something is so."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it is not so after all this time"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for each in found for child in each.read_text().split())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    limits = document("Settings", "default", {"rateLimit": {"requestsPerSecond": 1, "burst": BURST}})
    configure(store, [*SMALL, limits])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "queue_manager.cli.main", "api", "--port", str(port), "--workers", "2"]
    environment = {**os.environ, "QM_DATABASE": store.engine.url.render_as_string(hide_password=False)}
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, env=environment, stderr=log) as process:
        try:
            yield Server(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()


def test_a_caller_is_counted_once_and_a_plan_is_made_in_one_place(server: Server):
    until(server.answers)
    plan, plans, codes = text(queue("nlp", "research", 40)), [], []
    for pid in server.started():  # a process knows the setting once it has read the configuration
        with server.alone(pid):
            plans.append(server.ask("/api/v1/config/plan", plan))
    began = time.monotonic()
    for pid in server.started():
        with server.alone(pid):
            codes += [server.ask("/api/v1/tree").status_code for _ in range(BURST)]
    assert [answer.status_code for answer in plans] == [200, 200]
    assert len({answer.json()["hash"] for answer in plans}) == 1
    assert 1 <= codes.count(200) <= BURST + 1 + time.monotonic() - began
    assert codes.count(200) + codes.count(429) == 2 * BURST
    assert [children(pid) for pid in server.started()] == [[], []]  # no plans of their own


def test_one_that_ends_is_replaced_and_all_end_in_order(server: Server):
    until(server.answers)
    first, second = server.started()
    os.kill(first, signal.SIGKILL)
    until(lambda: len(server.started()) == 3)
    with server.alone(server.started()[2]):
        assert server.ask("/readyz").status_code == 200
    assert not is_gone(second)
    server.process.terminate()
    assert server.process.wait(60) == 0
    assert all(is_gone(pid) for pid in server.started())


def test_none_outlives_the_one_that_started_them(server: Server):
    until(server.answers)
    pids = children(server.process.pid)
    assert set(server.started()) <= set(pids)
    server.process.kill()
    until(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.parametrize(
    ("quota", "most"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 1000), ("", 1000)]
)
def test_no_more_processes_than_there_are_cores_to_use(tmp_path: Path, quota: str, most: int):
    file = tmp_path / "cpu.max"
    if quota:
        file.write_text(quota)
    assert cores(file) == min(most, len(os.sched_getaffinity(0)))
