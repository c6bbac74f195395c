"""Plays a load at an API server, in a process of its own: creates the Jobs, is their job controller, notes when what
happened.

`python -m benchmarks.load.player LOAD --kubeconfig FILE --out FILE [--part N] [--floor]`. It prints "ready" and waits
for a line on its input, so that the caller's meters start with it. With `--floor` it also starts each Job as soon as it
is there: what generator and API server cost without anybody who decides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from benchmarks.load.loads import LOADS, Class, Load, Shape, job_body, queue_name
from benchmarks.load.record import JobRecord, Play, Running
from queue_manager.cluster.credentials import Access, Credentials

CONNECTIONS = 64
PATIENCE = 1800.0
"""Seconds without any Job finishing after which the play is given up."""
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


class _Metadata(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    resourceVersion: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Spec(msgspec.Struct):
    suspend: bool = False


class _Status(msgspec.Struct):
    conditions: list[_Condition] = msgspec.field(default_factory=list)


class _Job(msgspec.Struct):
    """What is read of a Job: the rest is not decoded."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    code: int = 0


class _Event(msgspec.Struct):
    type: str
    object: _Job


_event = msgspec.json.Decoder(_Event).decode


class PlayFailed(Exception):
    """The API server refused what the play needs, or nothing moves any more."""


@dataclass(slots=True)
class _Live:
    record: JobRecord
    each: Class
    shape: Shape
    path: str
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: bool = True
    stop_untold: bool = False
    """It was unsuspended, and its status does not say yet that it is suspended again."""


class Player:
    """One play of one load."""

    def __init__(self, load: Load, access: Access, session: aiohttp.ClientSession, floor: bool) -> None:
        self._load = load
        self._session = session
        self._access = access
        self._floor = floor
        self._headers = {"User-Agent": "load-player", "Accept": "application/json"}
        if access.authorization:
            self._headers["Authorization"] = access.authorization
        self._live: dict[tuple[str, str], _Live] = {}
        self._finished = 0
        self._moved = 0.0
        self._done = asyncio.Event()
        self._error: BaseException | None = None
        self.play = Play(load.name)

    async def run(self, begin: asyncio.Event) -> Play:
        """Everything, from `begin` to the last Job's end."""
        version = await self._version()
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch(version))
            await begin.wait()
            self._moved = time.perf_counter()
            generators = [
                group.create_task(self._generate(queue, each))
                for queue in range(self._load.queues)
                for each in self._load.classes
            ]
            guard = group.create_task(self._guard())
            await self._done.wait()
            for task in (watcher, guard, *generators):
                task.cancel()
        if self._error is not None:
            raise PlayFailed(str(self._error)) from self._error
        return self.play

    # --- the generator --------------------------------------------------------------------------------------------

    async def _generate(self, queue: int, each: Class) -> None:
        """Creates the Jobs of a class in one queue, one each interval, as Kueue's runner does: it sleeps first."""
        namespace = queue_name(queue)
        shapes = [shape for shape in each.shapes for _ in range(shape.count)]
        random.Random(f"{namespace}/{each.name}").shuffle(shapes)
        due = time.perf_counter()
        for number, shape in enumerate(shapes):
            due += each.interval / 1000
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            name = f"{each.name}-{number:04}"
            record = JobRecord(each.name, queue, shape.total, time.perf_counter())
            self.play.jobs.append(record)
            self._live[namespace, name] = _Live(record, each, shape, f"{JOBS.format(namespace)}/{name}")
            await self._write("POST", JOBS.format(namespace), job_body(name, each, shape))

    # --- the watch ------------------------------------------------------------------------------------------------

    async def _version(self) -> str:
        async with self._session.get(
            self._url("/apis/batch/v1/jobs"), params={"limit": "1"}, **self._options()
        ) as answer:
            answer.raise_for_status()
            return str(msgspec.json.decode(await answer.read())["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        try:
            while True:
                version = await self._watch_once(version)
        except Exception as error:
            self._fail(error)

    async def _watch_once(self, version: str) -> str:
        parameters = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None)
        url = self._url("/apis/batch/v1/jobs")
        async with self._session.get(url, params=parameters, timeout=timeout, **self._options()) as answer:
            answer.raise_for_status()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                at = time.perf_counter()
                for line in lines:
                    if not line:
                        continue
                    event = _event(line)
                    if event.type == "ERROR":
                        raise PlayFailed(f"the watch ended with an error: {line[:300]!r}")
                    version = event.object.metadata.resourceVersion
                    if event.type != "BOOKMARK":
                        self._seen(event.object, at)
        return version

    def _seen(self, job: _Job, at: float) -> None:
        live = self._live.get((job.metadata.namespace, job.metadata.name))
        if live is None:
            return
        record = live.record
        if not record.seen:
            record.seen = at
        if any(each.type == "Complete" and each.status == "True" for each in job.status.conditions):
            if not record.finished:
                record.finished = record.runs[-1].until = self._moved = at
                self._finished += 1
                if self._finished == self._load.jobs:
                    self._done.set()
            return
        if job.spec.suspend != live.suspended:
            live.suspended = job.spec.suspend
            if live.suspended:
                record.runs[-1].until = at
            else:
                record.runs.append(Running(at))
                live.stop_untold = True
            live.changed.set()
        if live.task is None:
            live.task = asyncio.get_running_loop().create_task(self._control(live))
            live.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    # --- the job controller ---------------------------------------------------------------------------------------

    async def _control(self, live: _Live) -> None:
        """Marks the Job started whenever it is unsuspended, and finished after its run time without a stop."""
        if self._floor:
            await self._write("PATCH", live.path, {"spec": {"suspend": False}})
        while not live.record.finished:
            live.changed.clear()
            if live.suspended:
                if live.stop_untold:
                    live.stop_untold = False
                    await self._write("PATCH", f"{live.path}/status", {"status": _stopped()})
            else:
                ends = live.record.runs[-1].since + live.each.runs / 1000
                if await self._write("PATCH", f"{live.path}/status", {"status": _started(live.shape.pods)}, (422,)):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ends - time.perf_counter()):
                            await live.changed.wait()
                    if not live.changed.is_set() and await self._write(
                        "PATCH", f"{live.path}/status", {"status": _finished(live.shape.pods)}, (422,)
                    ):
                        return
            await live.changed.wait()

    # --- requests -------------------------------------------------------------------------------------------------

    def _url(self, path: str) -> str:
        return self._access.host + path

    def _options(self) -> dict[str, object]:
        options: dict[str, object] = {"headers": self._headers, "allow_redirects": False}
        if self._access.tls is not None:
            options["ssl"] = self._access.tls
        return options

    async def _write(self, method: str, path: str, body: object, refusals: tuple[int, ...] = ()) -> bool:
        """One write; False where it is answered with one of `refusals`, as when the Job was suspended meanwhile."""
        data = msgspec.json.encode(body)
        options = self._options()
        kind = "application/json" if method == "POST" else "application/merge-patch+json"
        options["headers"] = {**self._headers, "Content-Type": kind}
        while True:
            async with self._session.request(method, self._url(path), data=data, **options) as answer:  # type: ignore[arg-type]
                content = await answer.read()
                if answer.status == 429:
                    self.play.throttled += 1
                    await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
                    continue
            self.play.writes += 1
            if answer.status < 300:
                return True
            if answer.status in refusals:
                return False
            raise PlayFailed(f"{method} {path}: {answer.status} {content[:500]!r}")

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(5)
            if time.perf_counter() - self._moved > PATIENCE / 10 and self.play.jobs:
                self._fail(PlayFailed(f"no Job finished for {PATIENCE / 10:.0f} s, {self._finished} have"))

    def _fail(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._done.set()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _started(pods: int) -> dict[str, object]:
    return {"startTime": _now(), "active": pods, "ready": pods, "conditions": [_condition("Suspended", "False")]}


def _stopped() -> dict[str, object]:
    return {"startTime": None, "active": None, "ready": None, "conditions": [_condition("Suspended", "True")]}


def _finished(pods: int) -> dict[str, object]:
    conditions = [_condition(kind, "True") for kind in ("SuccessCriteriaMet", "Complete")]
    ended = {"completionTime": _now(), "succeeded": pods, "active": None, "ready": 0}
    return {**ended, "conditions": [_condition("Suspended", "False"), *conditions]}


def _condition(kind: str, status: str) -> dict[str, str]:
    now = _now()
    return {"type": kind, "status": status, "reason": "Played", "lastProbeTime": now, "lastTransitionTime": now}


async def _main(options: argparse.Namespace) -> None:
    load = LOADS[options.load].scaled(options.part) if options.part > 1 else LOADS[options.load]
    access = Credentials.default(str(options.kubeconfig)).access()
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        begin = asyncio.Event()
        player = Player(load, access, session, options.floor)
        task = asyncio.create_task(player.run(begin))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begin.set()
        options.out.write_bytes(msgspec.json.encode(await task))


def main() -> None:
    """Plays; the record is in the file when the process ends with 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=list(LOADS))
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--floor", action="store_true")
    options = parser.parse_args()
    uvloop.run(_main(options))


if __name__ == "__main__":
    main()
