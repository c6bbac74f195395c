"""Read by mypy in test_types.py, never run: what a type checker knows of both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from queue_manager.client import AsyncClient, Client, Versioned
from queue_manager.client.call import Call
from queue_manager.client.operations import hold
from queue_manager.client.types import Document, Explanation, State, Workload


def waits(client: Client) -> None:
    assert_type(client.workload("team", "job"), Workload)
    assert_type(client.workloads(queue="a"), Iterator[Workload])
    assert_type(client.explanation("team", "job")["position"], int | None)
    assert_type(client.object("Queue", "a"), Versioned[Document])
    assert_type(client.send(hold("team", "job", reason="x")), Workload)
    assert_type(hold("team", "job", reason="x"), Call[Workload])
    assert_type(client.export_audit(), Iterator[str])
    assert_type(client.usage(by=["user"])["items"][0]["usedSeconds"], int)
    client.hold("team", "job")  # type: ignore[call-arg]
    client.workloads(state=["wating"])  # type: ignore[list-item]
    client.workload("team", "job")["nmae"]  # type: ignore[misc]


async def asynchronous(client: AsyncClient) -> None:
    assert_type(await client.workload("team", "job"), Workload)
    assert_type(client.workloads(queue="a"), AsyncIterator[Workload])
    assert_type(await client.explanation("team", "job"), Explanation)
    assert_type(client.export_audit(), AsyncIterator[str])
    async for job in client.workloads():
        assert_type(job["state"], State)
    await client.hold("team", "job")  # type: ignore[call-arg]
