"""The process that works out plans, so that neither admission nor the API waits for one."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime

from sqlalchemy import Engine

from queue_manager.config.compiled import compile_objects
from queue_manager.store.database import make_engine
from queue_manager.store.records import ConfigObject
from queue_manager.store.store import Store

from .effects import Effects, effects_of
from .live import read

AT_ONCE = 8
"""Plans asked for and not answered; who comes then is told to come again."""
NICENESS = 10
TASKS = 50
"""Plans after which a new process takes over, so that memory of a large state is given back."""


class TooBusyError(Exception):
    """Too many plans are being worked out."""


class Planner:
    """One process, started when the first plan is asked for. `engine` says which database it reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._open = 0

    async def effects(
        self, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
    ) -> Effects:
        """What happens to the live state when the objects `after` take the place of those `before` (of `revision`)."""
        if self._open >= AT_ONCE:
            raise TooBusyError
        self._open += 1
        try:
            try:
                return await self._submit(before, after, revision, now)
            except BrokenProcessPool:  # it was killed: a new one tries once more
                self._drop()
                return await self._submit(before, after, revision, now)
        finally:
            self._open -= 1

    def _submit(
        self, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
    ) -> asyncio.Future[Effects]:
        with self._lock:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                url = self._engine.url.render_as_string(hide_password=False)
                self._pool = ProcessPoolExecutor(
                    1, context, initializer=_begin, initargs=(url,), max_tasks_per_child=TASKS
                )
            return asyncio.wrap_future(self._pool.submit(_work, before, after, revision, now))

    def _drop(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def processes(self) -> list[int]:
        """Process ids of those that are running."""
        with self._lock:
            return [] if self._pool is None else sorted(self._pool._processes)

    def close(self) -> None:
        """Ends the process."""
        self._drop()


_stores: list[Store] = []


def _begin(url: str) -> None:
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us, who ends us in order
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _stores[:] = [Store(make_engine(url))]


def _end_with_parent() -> None:
    """A parent that was killed can't end us."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _work(before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime) -> Effects:
    gc.disable()  # nothing of a plan is garbage before its end, and looking for some takes as long as the plan
    try:
        return work_out(_stores[0], before, after, revision, now)
    finally:
        gc.enable()


def work_out(
    store: Store, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
) -> Effects:
    """Reads the live state and plays both configurations on it."""
    old, new = compile_objects(before, revision), compile_objects(after, revision)
    history = new.configuration.history or old.configuration.history
    return effects_of(old, new, read(store, now, history))
