"""How many writes are on their way at once."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from queue_manager.cluster.port import Object
from queue_manager.cluster.simulated import VirtualClock
from queue_manager.controller.executor import PARALLEL_WRITES, Executors
from queue_manager.kinds.plain_pods import PLAIN_GROUPS, PlainPods
from queue_manager.store.records import Action, OutboxEntry, State
from tests.store.builders import admitted, workload


class Deletes:
    """An API server that answers so many deletes when it is told to."""

    def __init__(self, expected: int) -> None:
        self.at_once = self.most = 0
        self.answers, self.all_done = asyncio.Event(), asyncio.Event()
        self._left = expected

    async def delete(self, *_: Any, **__: Any) -> None:
        """As in `Cluster.delete`."""
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.answers.wait()
        self.at_once -= 1
        self._left -= 1
        if not self._left:
            self.all_done.set()


def group(uid: str, size: int) -> Object:
    """A group of running pods, as the kind takes it."""
    pods = [
        {"metadata": {"name": f"{uid}-{number}", "namespace": "ns", "uid": f"{uid}-{number}"}, "spec": {}}
        for number in range(size)
    ]
    metadata = {"name": uid, "namespace": "ns", "uid": uid, "labels": {}, "annotations": {}}
    return {"metadata": metadata, "spec": {"pods": pods, "suspend": False}}


async def test_all_groups_that_are_stopped_share_the_writes_at_once() -> None:
    server = Deletes(400)
    groups = {f"g{number}": group(f"g{number}", 100) for number in range(4)}
    rows = {uid: admitted(workload(uid), state=State.DRAINING) for uid in groups}
    brain: Any = SimpleNamespace(
        row=rows.get,
        kind_of=lambda row: PlainPods(PLAIN_GROUPS),
        object_of=lambda row: groups[row.uid],
        lookup=None,
        may_write=lambda: True,
        live_pods=lambda uid: 100,
    )
    cluster: Any = server
    executors = Executors(cluster, brain, VirtualClock(), Random(0))
    for uid in groups:
        executors.submit(OutboxEntry(uid=uid, action=Action.SYNC))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert server.most == PARALLEL_WRITES
    server.answers.set()
    await asyncio.wait_for(server.all_done.wait(), 10)
    assert server.most == PARALLEL_WRITES
    await executors.close()
