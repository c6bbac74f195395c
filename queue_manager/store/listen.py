"""Listens for hints of `notify.py` on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

import psycopg
import structlog
from psycopg import sql

from queue_manager.store.database import conninfo
from queue_manager.store.notify import CHANGED, CONFIGURATION
from queue_manager.store.store import Store

_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0
_ALIVE_SECONDS = 30.0

log = structlog.get_logger()


async def listen(
    source: Store | str,
    channels: Sequence[str] = (CHANGED, CONFIGURATION),
    *,
    random: Random | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[str]:
    """Yields the channel of each hint, for ever; `source` is a store or a database URL.

    Hints can be lost while the connection is away, so every channel is yielded after each (re)connect. A lost
    connection is made again with growing, jittered pauses and a warning. Close the iterator (`aclose`) or cancel the
    task to end.
    """
    url = source if isinstance(source, str) else source.engine.url.render_as_string(hide_password=False)
    jitter = random or Random()
    wait = _FIRST_WAIT
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                conninfo(url), autocommit=True, application_name="queue-manager-listen", connect_timeout=10
            ) as connection:
                for channel in channels:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                for channel in channels:
                    yield channel
                wait = _FIRST_WAIT
                while True:
                    async for hint in connection.notifies(timeout=_ALIVE_SECONDS):
                        yield hint.channel
                    await connection.execute("SELECT 1")  # notices a server that went away without a word
        except psycopg.Error as error:
            log.warning("not listening to the database", error=str(error).strip(), retry_seconds=round(wait, 1))
        await sleep(wait * jitter.uniform(0.5, 1.0))
        wait = min(wait * 2, _LONGEST_WAIT)
