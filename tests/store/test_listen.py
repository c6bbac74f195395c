"""Hints: they come with commits, and again after the connection was lost."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta

from sqlalchemy import text

from queue_manager.store.listen import listen
from queue_manager.store.notify import CHANGED, CONFIGURATION
from queue_manager.store.records import Change, ConfigObject
from queue_manager.store.store import Store
from tests.store.builders import NOW, lead, workload

PATIENCE = 20


async def test_hints_come_with_commits_only(store: Store) -> None:
    epoch = lead(store)
    async with aclosing(listen(store)) as hints, asyncio.timeout(PATIENCE):
        assert [await anext(hints), await anext(hints)] == [CHANGED, CONFIGURATION]  # connected: anything may be new
        store.acquire_lease("controller", "one", timedelta(hours=1))
        store.commit(epoch, None, NOW, [])
        store.apply_configuration([], author="", reason="", now=NOW, source="")
        store.apply_configuration([ConfigObject("Queue", "a", {})], author="", reason="", now=NOW, source="")
        assert await anext(hints) == CONFIGURATION
        store.commit(epoch, None, NOW, [Change(row=workload())])
        assert await anext(hints) == CHANGED
        store.save_nodes(epoch, [], [], NOW)  # nothing changed
        store.commit(epoch, None, NOW, [Change(row=workload("b"))])
        assert await anext(hints) == CHANGED


async def test_a_lost_connection_is_made_again(store: Store) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with aclosing(listen(store, [CHANGED], sleep=sleep)) as hints, asyncio.timeout(PATIENCE):
        assert await anext(hints) == CHANGED
        with store.engine.begin() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name"),
                {"name": "queue-manager-listen"},
            )
        assert await anext(hints) == CHANGED  # after the reconnect
        store.commit(lead(store), None, NOW, [Change(row=workload())])
        assert await anext(hints) == CHANGED
    assert len(waits) == 1


async def test_pauses_grow_while_the_database_is_away(database_url: str) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 12:
            raise asyncio.CancelledError

    hints = listen(database_url.replace("host=/", "host=/nowhere/"), sleep=sleep)
    with suppress(asyncio.CancelledError):
        await anext(hints)
    assert max(waits) <= 10
    assert 0.1 <= waits[0] <= 0.2
    assert waits[-1] >= 5
