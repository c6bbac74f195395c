"""Serving an application: what it holds is given back when the server stops."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from api.app import create_app
from queue_manager.cli.roles import listen_on, serve_http
from queue_manager.store.store import Store
from tests.api.world import configure, queue, text


async def test_the_process_of_plans_ends_with_the_server(store: Store):
    configure(store)
    app = create_app(store, registry=CollectorRegistry())
    listening = listen_on("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    serving = asyncio.create_task(serve_http(app, listening))
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        answer = await client.post("/api/v1/config/plan", content=text(queue("nlp", "research", 40)))
    assert answer.status_code == 200, answer.text
    [process] = app.state.context.planner.processes()
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_streams_end_with_the_server_at_once_instead_of_being_waited_for(store: Store):
    app = create_app(store, registry=CollectorRegistry())
    listening = listen_on("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    serving = asyncio.create_task(serve_http(app, listening, app.state.hub.close))
    async with (
        httpx2.AsyncClient(base_url=url, timeout=120) as client,
        client.stream("GET", "/api/v1/events") as answer,
    ):
        lines = answer.aiter_lines()
        while await anext(lines) != "event: ready":
            pass
        serving.cancel()
        # A stream that the server cuts off instead of ending it is an error here.
        assert [line async for line in lines if line.startswith("event")] == []
    with suppress(asyncio.CancelledError):
        await serving
