"""Blocking calls of the database, made in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InThread(Protocol):
    """Makes a blocking call without blocking the event loop; calls are made in order."""

    def __call__(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Awaitable[T]: ...


def one_thread() -> InThread:
    """Runs blocking database calls in order, off the event loop."""
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def call(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, partial(function, *arguments, **named))

    return call
