"""Plans for several processes of one server: one of them has the planner, the others ask it over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from starlette.concurrency import run_in_threadpool

from queue_manager.store.records import ConfigObject

from .effects import Effects
from .worker import Planner, Task, TooBusyError, WorkerLostError


class PlannerElsewhere:
    """Asks the planner at the other end of a pipe, as if it were here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._open: dict[int, Future[Effects]] = {}
        self._number = 0
        self._ended = False
        threading.Thread(target=self._read, daemon=True, name="plans").start()

    async def effects(
        self, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
    ) -> Effects:
        """As `Planner.effects`."""
        return await asyncio.wrap_future(await run_in_threadpool(self._ask, Task(before, after, revision, now)))

    def warm(self) -> None:
        """Who has the planner sees to that."""

    def close(self) -> None:
        """Ends the pipe; who has the planner ends its process."""
        self._connection.close()

    def _ask(self, task: Task) -> Future[Effects]:
        asked: Future[Effects] = Future()
        with self._lock:
            if self._ended:
                raise WorkerLostError
            self._number += 1
            self._open[self._number] = asked
            try:
                self._connection.send((self._number, task))
            except OSError:
                raise WorkerLostError from None
        return asked

    def _read(self) -> None:
        while True:
            try:
                number, answer = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                asked = self._open.pop(number)
            _give(asked, answer)
        with self._lock:
            self._ended = True
            waiting = list(self._open.values())
        for asked in waiting:
            _give(asked, WorkerLostError())


def _give(asked: Future[Effects], answer: Effects | Exception) -> None:
    if not asked.set_running_or_notify_cancel():
        return  # who asked has gone
    if isinstance(answer, Exception):
        asked.set_exception(answer)
    else:
        asked.set_result(answer)


def answer_plans(planner: Planner, connection: Connection) -> None:
    """Gives what is asked for at the other end of a pipe to the planner, until that is closed."""
    lock = threading.Lock()

    def tell(number: int, answer: Any) -> None:
        with lock, contextlib.suppress(OSError):  # who asked has ended
            connection.send((number, answer))

    def tell_result(number: int, asked: Future[Effects]) -> None:
        tell(number, asked.exception() or asked.result())

    while True:
        try:
            number, task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            planner.ask(task).add_done_callback(partial(tell_result, number))
        except (TooBusyError, WorkerLostError) as error:
            tell(number, error)
