"""The demo: jobs that arrive in the simulated cluster, and what the live view shows of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

import structlog

from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.live import Snapshot
from queue_manager.cluster.port import TRAIN_JOBS, ApiError
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.simulated.fleet import demo_jobs

log = structlog.get_logger(__name__)

EVENTS = 200
SHOWN = 200
LIVE = ("waiting", "held", "reserved", "starting", "running", "draining")
WORDS: Mapping[str, str] = {
    "waiting": "waits",
    "starting": "is admitted",
    "running": "runs",
    "draining": "stops",
    "finished": "has finished",
    "failed": "has failed",
    "held": "is held",
}


async def play(cluster: SimulatedCluster, random: Random) -> None:
    """Submits the demo's jobs as their users would, each at its time, until cancelled."""
    loop = asyncio.get_running_loop()
    start, run = loop.time(), random.getrandbits(20)
    for arrival in demo_jobs(random):
        await asyncio.sleep(max(0.0, start + arrival.after - loop.time()))
        name = f"{arrival.job['metadata']['name']}-{run:05x}"
        job = {**arrival.job, "metadata": {**arrival.job["metadata"], "name": name}}
        try:
            await cluster.as_user(arrival.user).create(TRAIN_JOBS, arrival.namespace, job)
        except ApiError as error:
            log.warning("a demo job was refused", job=name, error=str(error))


class DemoView:
    """Snapshots for the live view, read through the API as anybody would."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._client = Client(url, token)
        self._states: dict[str, str] = {}
        self._events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS)

    def snapshot(self) -> Snapshot:
        """What is there now; blocks for a few requests."""
        try:
            tree = self._client.tree()
            newest = self._client.get("/api/v1/workloads", limit=SHOWN)["items"]
            # One that has waited or run for long is not among the newest.
            live = self._client.get("/api/v1/workloads", {"state": LIVE}, limit=SHOWN)["items"]
            workloads = list({item["uid"]: item for item in (*newest, *live)}.values())
        except CommandError as error:
            return {"title": "Queue Manager", "url": self._url, "notes": [error.message]}
        self._note(workloads)
        return {
            "title": "Queue Manager (demo)",
            "url": self._url,
            "tree": tree.get("items", [tree]),
            "workloads": workloads,
            "events": list(self._events),
        }

    def _note(self, workloads: list[Mapping[str, Any]]) -> None:
        """Turns changes of state since the last snapshot into events."""
        for item in sorted(workloads, key=lambda item: str(item["created"])):
            state, uid = item["state"], item["uid"]
            if self._states.get(uid) == state:
                continue
            first = uid not in self._states
            self._states[uid] = state
            if first and state in ("finished", "failed"):
                continue
            why = f": {item['message']}" if state in ("draining", "held") and item.get("message") else ""
            text = f"{item['namespace']}/{item['name']} {WORDS.get(state, state)}{why}"
            self._events.append({"at": datetime.now(UTC), "text": text})
