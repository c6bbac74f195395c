"""Several processes that answer on one socket, and the one that starts them, replaces those that end, and makes plans.

The first process answers nothing itself: it has the socket, the database's migrations (and the server, where that is
embedded), the planner, and what all share (`api/shared.py`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from sqlalchemy import Engine

from api.planning.elsewhere import answer_plans
from api.planning.worker import Planner
from api.shared import Shared

log = structlog.get_logger(__name__)

Options = TypeVar("Options")

PATIENCE = 10.0
"""Seconds that a process has to finish what it has begun, before it is killed."""
PAUSES = (0.0, 1.0, 5.0, 30.0)
"""Seconds before a process that has ended is replaced: at once, and longer the more of them end soon after another."""
CALM = 60.0
"""Seconds without an end after which the next one is the first again."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a process is started with: a socket that listens, the database's URL, what all share, and its pipe to the
    planner."""

    listening: socket.socket
    database: str
    shared: Shared
    planner: Connection
    workers: int


def cores(quota: Path) -> int:
    """Cores that this process may use: those that it may run on, and no more than its control group gives it time for
    (`cpu.max`: microseconds of a period, and the period)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        most, period = quota.read_text().split()
        if most != "max":
            count = min(count, -(-int(most) // int(period)))
    return max(1, count)


def run_workers(
    engine: Engine,
    listening: socket.socket,
    workers: int,
    work: Callable[[Given, Options], None],
    options: Options,
) -> None:
    """Runs `work` in several processes until SIGINT or SIGTERM; then ends them in order."""
    planner = Planner(engine)
    planner.warm()
    crew = _Crew(engine, listening, workers, work, options, planner)
    try:
        with _signals() as signalled:
            crew.run(signalled)
    finally:
        crew.end()
        planner.close()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that can be read once SIGINT or SIGTERM has come."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    handlers = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ours
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()


class _Crew(Generic[Options]):
    """The processes that run."""

    def __init__(
        self,
        engine: Engine,
        listening: socket.socket,
        workers: int,
        work: Callable[[Given, Options], None],
        options: Options,
        planner: Planner,
    ) -> None:
        self._database = engine.url.render_as_string(hide_password=False)
        self._listening, self._workers, self._work, self._options = listening, workers, work, options
        self._planner = planner
        self._shared = Shared()
        self._processes: list[SpawnProcess] = []
        self._ends = 0
        self._last_end = -CALM

    def run(self, signalled: socket.socket) -> None:
        """Until the socket can be read."""
        while True:
            while len(self._processes) < self._workers:
                self._processes.append(self._start())
            ready = wait([signalled, *(process.sentinel for process in self._processes)])
            ended = [process for process in self._processes if process.sentinel in ready]
            for process in ended:
                log.error("a process of the API has ended", pid=process.pid, code=process.exitcode)
                self._processes.remove(process)
            if signalled in ready or (ended and wait([signalled], self._pause())):
                return

    def _pause(self) -> float:
        now = time.monotonic()
        self._ends = 0 if now - self._last_end > CALM else self._ends + 1
        self._last_end = now
        return PAUSES[min(self._ends, len(PAUSES) - 1)]

    def _start(self) -> SpawnProcess:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        given = Given(self._listening, self._database, self._shared, theirs, self._workers)
        process = context.Process(target=_begin, args=(self._work, given, self._options), name="api")
        process.start()
        log.info("a process of the API starts", pid=process.pid)
        theirs.close()  # so that its end is the end of what can be read
        threading.Thread(target=answer_plans, args=(self._planner, ours), daemon=True, name="plans").start()
        return process

    def end(self) -> None:
        """Ends all in order; those that take too long are killed."""
        for process in self._processes:
            process.terminate()
        until = time.monotonic() + PATIENCE
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _begin(work: Callable[[Given, Options], None], given: Given, options: Options) -> None:
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()
    work(given, options)


def _end_with_parent() -> None:
    """A process whose first one was killed would keep the socket, and answer for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
