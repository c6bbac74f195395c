"""The process that works out plans, so that neither admission nor the API waits for one."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import NamedTuple

from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from queue_manager.engine.engine import Engine
from queue_manager.store.database import make_engine
from queue_manager.store.records import ConfigObject
from queue_manager.store.store import Store

from .apart import Apart, EndedError
from .effects import Baseline, Effects, Question, effects_of, question_of
from .live import Live
from .live_copy import LiveCopy

AT_ONCE = 8
"""Plans asked for and not answered; who comes then is told to come again."""
GLANCE = 1.0
"""Seconds after which the process takes over what events tell of."""
FOLLOW = 30.0
"""Seconds without a plan after which it takes over everything, if any has changed."""
TASKS = 500
"""Plans after which a new process takes over, so that memory of a large state is given back."""


class TooBusyError(Exception):
    """Too many plans are being worked out."""


class WorkerLostError(Exception):
    """The process was killed at each try, or the server stops."""


class Task(NamedTuple):
    """A plan: objects of a configuration and those that take their place, by whose clock."""

    before: Sequence[ConfigObject]
    after: Sequence[ConfigObject]
    revision: int
    now: datetime


class Planner:
    """One process, started when the first plan is asked for, and one thread that talks to it, so plans are worked out
    one after the other. `engine` says which database it reads."""

    def __init__(self, engine: Database) -> None:
        self._url = engine.url.render_as_string(hide_password=False)
        self._thread = ThreadPoolExecutor(1, "plans")
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._open = 0
        self._closed = False

    async def effects(
        self, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
    ) -> Effects:
        """What happens to the live state when the objects `after` take the place of those `before` (of `revision`)."""
        return await asyncio.wrap_future(self.ask(Task(before, after, revision, now)))

    def ask(self, task: Task) -> Future[Effects]:
        """The same for who does not wait; TooBusyError, WorkerLostError at once."""
        with self._lock:
            if self._closed:
                raise WorkerLostError
            if self._open >= AT_ONCE:
                raise TooBusyError
            self._open += 1
            asked = self._thread.submit(self._ask, task)
        asked.add_done_callback(self._answered)  # not before: who gave up still keeps the process busy
        return asked

    def warm(self) -> None:
        """Has the process read the live state now, not when the first plan is asked for. Does not wait for it."""
        with self._lock:
            if not self._closed:
                self._thread.submit(self._ask, None)

    def _answered(self, _asked: Future[Effects]) -> None:
        with self._lock:
            self._open -= 1

    def _ask(self, task: Task | None) -> Effects:
        for _ in range(2):
            worker = self._ready()
            try:
                answer = worker.ask(task)
            except (EOFError, OSError):  # it was killed: a new one tries once more
                worker.end()
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise WorkerLostError

    def _ready(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise WorkerLostError
            if self._worker is not None and (self._worker.asked >= TASKS or not self._worker.alive()):
                self._worker.end()
                self._worker = None
            if self._worker is None:
                self._worker = _Worker(self._url)
            return self._worker

    def processes(self) -> list[int]:
        """Process ids of those that are running."""
        with self._lock:
            return [self._worker.pid] if self._worker is not None and self._worker.alive() else []

    def close(self) -> None:
        """Ends the process, whatever it works at; it changes nothing, so nothing is lost."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.end()
        self._thread.shutdown()


class _Worker:
    """The process as seen from the server. `asked` counts what it was given to do."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, url), name="plans", daemon=True)
        self._process.start()
        theirs.close()  # so that its end is the end of what can be read
        self.asked = 0

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, task: Task | None) -> Effects | Exception:
        """What it answers, nothing without a task: then it reads. Raises EOFError or OSError when it has ended."""
        self.asked += 1
        self._connection.send(task)
        answer: Effects | Exception = self._connection.recv()
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, url: str) -> None:
    _give_way()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us, who ends us in order
    gc.disable()  # what is kept lives as long as the process, and looking through it takes as long as a plan
    copy = LiveCopy(Store(make_engine(url)))
    apart = Apart()
    while True:
        _until_asked(connection, copy)
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            connection.send(_work(copy, task, apart))
        except Exception as error:
            _tell(connection, error)


def _give_way() -> None:
    """Takes no core from one who has just got something to do, as the controller has; but gets a fair share of it, for
    somebody waits for the plan, and a process that is `nice` is hardly given any on a busy machine."""
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _until_asked(connection: Connection, copy: LiveCopy) -> None:
    """Follows the live state. What fails here is told to who asks next."""
    due, more = time.monotonic() + FOLLOW, False
    while not connection.poll(0 if more else GLANCE):
        more = False
        with suppress(SQLAlchemyError):
            more = copy.catch_up()
            if not more and time.monotonic() >= due:
                copy.follow(datetime.now(UTC))
                gc.collect()
                due = time.monotonic() + FOLLOW


def _tell(connection: Connection, error: Exception) -> None:
    error.add_note(traceback.format_exc())
    try:
        connection.send(error)
    except Exception:  # not every exception can be sent
        connection.send(RuntimeError(traceback.format_exc()))


def _work(copy: LiveCopy, task: Task | None, apart: Apart) -> Effects:
    """The engine is used up in a copy of this process, which shares all memory that it does not change."""
    if task is None:
        copy.follow(datetime.now(UTC))
        return Effects()
    question, live, engine, baseline = _put(copy, task)
    gc.freeze()
    try:
        return apart.run(lambda: effects_of(question, live, engine, baseline))
    except EndedError:
        raise WorkerLostError from None


def _put(copy: LiveCopy, task: Task) -> tuple[Question, Live, Engine, Baseline]:
    before, after = copy.current(task.revision, task.before), copy.compiled(task.after, task.revision)
    live = copy.look(task.now, after.configuration.history or before.configuration.history)
    question = question_of(before, after, live)
    engine = copy.engine(question.played_before)
    return question, live, engine, copy.baseline(question)


def work_out(
    store: Store, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
) -> Effects:
    """Reads the live state and plays both configurations on it, here."""
    return effects_of(*_put(LiveCopy(store), Task(before, after, revision, now)))
