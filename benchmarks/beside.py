"""The controller's cycle while the API is asked: the controller, the API and PostgreSQL as processes of their own."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.churn import finish_job
from benchmarks.configuration import api_process, company_file
from benchmarks.machine import Meter, with_children
from benchmarks.report import Report
from benchmarks.rest import QUEUES, make_history, mixed_pages, requests_at_rate, span_of
from benchmarks.world import BARE, World, create_all, world
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import JOBS, Query
from queue_manager.cluster.transport import ApiServer
from queue_manager.store.records import State
from tests.e2e.product import config, job, queue, wait_for

SIZES = {"full": (200_000, 400, 200, 40.0), "small": (2_000, 20, 10, 5.0)}
"""Workloads that ended, waiting Jobs, running Jobs; seconds of each part."""
RATE, READS = 5.0, 50
"""Jobs that end, and Jobs that come, a second; requests a second."""
PARTS = ("alone", "beside the API", "alone again", "beside the API again")
LIMITS = {"rateLimit": {"requestsPerSecond": 1_000_000, "burst": 1_000_000}}


@dataclass(frozen=True, slots=True)
class Cycles:
    """Passes of the controller in a part: how many, their seconds, and its processor seconds."""

    count: float
    seconds: float
    processor: float

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.count + other.count, self.seconds + other.seconds, self.processor + other.processor)

    def words(self) -> str:
        count = self.count or 1
        cycle, processor = 1000 * self.seconds / count, 1000 * self.processor / count
        return f"{cycle:.2f} ms a cycle, {processor:.2f} ms of processor time ({self.count:.0f} cycles)"


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: the same load of Jobs without and with requests, twice."""
    ended, waiting, places, seconds = SIZES[size]
    report = Report(
        f"beside: {RATE:.0f} Jobs end and {RATE:.0f} come a second, {waiting} wait, {places} run, {ended} ended; "
        f"{READS} requests a second, {seconds:.0f} s a part"
    )
    with ExitStack() as stack:
        made = stack.enter_context(world(keep, **BARE))
        product = stack.enter_context(made.product.running())
        product.configure(config("Flavor", "gpus"), queue("team", places), config("Settings", "default", LIMITS))
        product.configure(company_file(QUEUES, 64))
        make_history(made.store.engine, ended)
        namespace = made.cluster.new_namespace("bench")
        create_all(made.cluster, (job(f"job-{number:06}", "team") for number in range(waiting + places)), namespace)

        def filled() -> bool:
            counts = product.store.queue_counts().get("team", {})
            return counts.get(State.WAITING, 0) == waiting and not product.store.pending_outbox()

        wait_for(filled, f"{waiting} Jobs wait", 600)
        client, pid = stack.enter_context(api_process(made.database.url))
        asyncio.run(_measure(report, made, namespace, client.connection.server, pid, seconds))
    report.note(made.floor())
    return [report]


async def _measure(report: Report, made: World, namespace: str, server: str, pid: int, seconds: float) -> None:
    api = ApiServer(Credentials.default(str(made.cluster.kubeconfig)), user_agent="benchmark")
    found: dict[bool, Cycles] = {False: Cycles(0, 0, 0), True: Cycles(0, 0, 0)}
    try:
        async with aiohttp.ClientSession(server, headers={"Accept-Encoding": "identity"}) as session:
            turnover = asyncio.create_task(_turn_over(api, namespace))
            await asyncio.sleep(5)
            paths = _reads(made, namespace)
            await requests_at_rate(session, paths, READS, 3.0)
            for number, part in enumerate(PARTS):
                busy = number % 2 == 1
                meter = Meter({**made.processes(), "api": with_children(pid)})
                before = await asyncio.to_thread(made.product.metrics)
                if busy:
                    asked = await requests_at_rate(session, paths, READS, seconds)
                    report.times(f"  requests, {part}", asked.seconds)
                    report.value("  requests that failed", str(asked.failed))
                else:
                    await asyncio.sleep(seconds)
                passed, spent = meter.read()
                cycles = _between(before, await asyncio.to_thread(made.product.metrics), spent["our controller"])
                report.value(f"controller, {part}", cycles.words())
                cores = ", ".join(f"{name} {used / passed:.2f}" for name, used in spent.items() if used > 0.01 * passed)
                report.value("  cores", cores)
                found[busy] = found[busy] + cycles
                assert not turnover.done(), turnover.exception()
            turnover.cancel()
    finally:
        await api.close()
    alone, beside = found[False], found[True]
    longer = beside.seconds / beside.count / (alone.seconds / alone.count)
    dearer = beside.processor / beside.count / (alone.processor / alone.count)
    report.value("a cycle beside the API to one alone", f"{longer:.2f} times as long", "<= 1.25")
    report.value("  by processor time", f"{dearer:.2f} times")


def _between(before: str, after: str, processor: float) -> Cycles:
    def counted(name: str) -> float:
        first, last = (float(_value(text, name)) for text in (before, after))
        return last - first

    return Cycles(counted("queue_manager_cycles_total"), counted("queue_manager_cycle_seconds_total"), processor)


def _value(text: str, name: str) -> str:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"the controller's /metrics has no {name}"
    return found[1]


def _reads(made: World, namespace: str) -> Iterator[str]:
    """Pages of ten kinds, and every fifth request the tree, an explanation, or one workload."""
    pages = mixed_pages(span_of(made.store), Random(1))
    waiting = [row for row in made.store.load_workloads() if row.state is State.WAITING][-100:]
    ones = itertools.cycle(f"/api/v1/workloads/{row.namespace}/{row.name}" for row in waiting)
    for number in itertools.count():
        match number % 15:
            case 0:
                yield "/api/v1/tree"
            case 5:
                yield f"{next(ones)}/explanation"
            case 10:
                yield next(ones)
            case _:
                yield next(pages)


async def _turn_over(api: ApiServer, namespace: str) -> None:
    """Ends the Job that was started first, and creates one, so many times a second."""
    page = await api.list(JOBS, Query(namespace=namespace))
    running = deque(sorted(item["metadata"]["name"] for item in page.items if not item["spec"].get("suspend")))
    known = set(running)

    async def watch() -> None:
        async for event in api.watch(JOBS, page.resource_version, Query(namespace=namespace)):
            name = event.object["metadata"].get("name", "")
            if name and not event.object["spec"].get("suspend") and name not in known:
                known.add(name)
                running.append(name)

    watching = asyncio.create_task(watch())
    due = time.perf_counter()
    try:
        for number in itertools.count():
            due += 1 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if running:
                await finish_job(api, namespace, running.popleft(), 1)
            await api.create(JOBS, namespace, job(f"new-{number:06}", "team"))
    finally:
        watching.cancel()
