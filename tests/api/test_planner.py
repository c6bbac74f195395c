"""The process that works out plans: it is replaced now and then, may be killed, and ends with the server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from api.app import create_app
from api.planning.effects import Effects
from api.planning.worker import Planner, WorkerLostError
from queue_manager.store.database import make_engine
from queue_manager.store.store import Store
from tests.store.builders import NOW

HANGS = 120
"""Seconds after which a plan that nobody works at is given up."""


@pytest.fixture
async def planner(store: Store) -> AsyncIterator[Planner]:
    planner = Planner(store.engine)
    yield planner
    planner.close()


def nothing(planner: Planner) -> Awaitable[Effects]:
    """A plan that changes nothing."""
    return planner.effects((), (), 0, NOW)


async def turns() -> None:
    """Lets those that have been started ask."""
    for _ in range(5):
        await asyncio.sleep(0)


async def several(planner: Planner, number: int) -> list[Effects]:
    async with asyncio.timeout(HANGS):
        return await asyncio.gather(*(nothing(planner) for _ in range(number)))


async def test_all_who_queue_are_answered_though_the_process_is_replaced(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("api.planning.worker.TASKS", 3)
    await nothing(planner)
    [first] = planner.processes()
    assert await several(planner, 5) == [Effects()] * 5
    [last] = planner.processes()
    assert last != first


async def test_all_who_wait_are_answered_by_one_successor_of_a_process_that_was_killed(planner: Planner):
    await nothing(planner)
    [process] = planner.processes()
    os.kill(process, signal.SIGSTOP)
    waiting = asyncio.ensure_future(several(planner, 4))
    await turns()
    os.kill(process, signal.SIGKILL)
    assert await waiting == [Effects()] * 4


async def test_a_process_that_was_killed_while_nobody_asked_is_replaced(planner: Planner):
    await nothing(planner)
    [process] = planner.processes()
    os.kill(process, signal.SIGKILL)
    assert await several(planner, 2) == [Effects()] * 2
    assert planner.processes() != [process]


async def test_closing_ends_a_process_that_is_at_work(planner: Planner):
    await nothing(planner)
    [process] = planner.processes()
    os.kill(process, signal.SIGSTOP)
    asked = asyncio.ensure_future(nothing(planner))
    await turns()
    planner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(WorkerLostError):
        await asked
    assert planner.processes() == []


async def test_what_goes_wrong_in_the_process_is_raised_here_and_the_next_plan_is_its_own():
    planner = Planner(make_engine("postgresql://nobody@127.0.0.1:1/nothing"))
    try:
        for _ in range(2):
            with pytest.raises(OperationalError, match="port 1 failed"):
                await nothing(planner)
    finally:
        planner.close()


def test_the_process_ends_with_the_application(store: Store):
    app = create_app(store, now=lambda: NOW, registry=CollectorRegistry())
    with TestClient(app, base_url="http://localhost"):
        planner: Planner = app.state.context.planner
        asyncio.run(several(planner, 1))
        [process] = planner.processes()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
