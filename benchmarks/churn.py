"""Many short Jobs through a small quota: how soon freed quota is used again, and what a Job costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.api_requests import api_requests
from benchmarks.machine import Meter
from benchmarks.report import Report
from benchmarks.world import BARE, World, create_all, world
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import JOBS, Object, PatchType, Query
from queue_manager.cluster.transport import ApiServer
from queue_manager.store.records import State
from tests.control_plane.kwok import COMPLETE_AFTER
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, TOPOLOGY, Product, config, job, queue, wait_for

SIZES = {"full": (1000, 100), "small": (60, 10)}
"""Jobs, and how many fit into the quota at once."""

BLOCKER = "blocker"
"""Holds the whole quota while the others queue."""


@dataclass(frozen=True, slots=True)
class Variant:
    """`real`: the real Job controller, scheduler and kwok end the Jobs. Else the benchmark says in their status that
    they ended, at once or `a_second` of them."""

    name: str
    real: bool = False
    a_second: float = 0.0


VARIANTS = (
    Variant("real Job controller, scheduler and kwok; pods end as soon as they run", real=True),
    Variant("no controller but ours, the benchmark marks a started Job finished at once"),
    Variant("no controller but ours, 20 Jobs marked finished a second", a_second=20.0),
)


def run(size: str, keep: Path | None) -> list[Report]:
    """One report for each way in which Jobs end."""
    return [_variant(variant, *SIZES[size], keep) for variant in VARIANTS]


def _variant(variant: Variant, jobs: int, quota: int, keep: Path | None) -> Report:
    report = Report(f"churn: {jobs} Jobs through a quota of {quota}; {variant.name}")
    parts: Mapping[str, Any] = {"jobset": False, "trainer": False} if variant.real else BARE
    with world(keep, **parts) as made, made.product.running() as product:
        if variant.real:
            made.cluster.create_nodes(gpu_fleet())
        topology = (TOPOLOGY, FLAVOR) if variant.real else (config("Flavor", "gpus"),)
        product.configure(*topology, queue("team", quota))
        namespace = made.cluster.new_namespace("bench")
        _fill(made, product, namespace, jobs, quota, variant)
        before, meter = api_requests(made.cluster), Meter(made.processes())
        play = asyncio.run(_play(made, namespace, jobs, variant))
        seconds = max(play.finished.values()) - play.began
        wait_for(lambda: _ended(product, jobs), "all workloads have ended", 120)
        wait_for(lambda: not product.store.pending_outbox(), "an empty outbox", 120)
        _report(report, play, quota, seconds, _decided(product))
        _costs(report, meter, before, api_requests(made.cluster), jobs, play)
    report.note(made.floor())
    return report


def _fill(made: World, product: Product, namespace: str, jobs: int, quota: int, variant: Variant) -> None:
    """One Job takes the quota, the others queue behind it; returns when all is quiet."""
    product.client.create(job(BLOCKER, "team", parallelism=quota), namespace)
    product.wait_state(namespace, BLOCKER, State.RUNNING, timeout=60)
    if variant.real:
        made.cluster.wait_pods(namespace, quota, timeout=120)
    create_all(made.cluster, (_short(f"job-{number:04}") for number in range(jobs)), namespace)

    def queued() -> bool:
        counts = product.store.queue_counts().get("team", {})
        return counts.get(State.WAITING, 0) == jobs and not product.store.pending_outbox()

    wait_for(queued, f"{jobs} workloads wait, nothing left to write", 300)
    time.sleep(1)


def _short(name: str) -> Object:
    body = job(name, "team")
    body["spec"]["template"]["metadata"] = {"annotations": {COMPLETE_AFTER: "0s"}}
    return body


def _ended(product: Product, jobs: int) -> bool:
    counts = product.store.queue_counts().get("team", {})
    return not sum(counts.values())


# --- playing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Play:
    """When the watch showed each Job started and finished, by name; and what the benchmark asked of the API server."""

    began: float = 0.0
    started: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)


async def _play(made: World, namespace: str, jobs: int, variant: Variant) -> Play:
    """Ends the blocker, then every Job as soon as it is started (or leaves that to the real controllers)."""
    play = Play()
    api = ApiServer(
        Credentials.default(str(made.cluster.kubeconfig)),
        user_agent="benchmark",
        observe=lambda verb, plural, status, seconds: play.asked.update([(verb, plural)]),
    )
    endings: asyncio.Queue[str] = asyncio.Queue()
    page = await api.list(JOBS, Query(namespace=namespace, limit=0))
    done = asyncio.Event()

    async def watch() -> None:
        async for event in api.watch(JOBS, page.resource_version, Query(namespace=namespace)):
            at, name = time.perf_counter(), event.object["metadata"].get("name", "")
            if not name.startswith("job-"):
                continue
            if not event.object["spec"].get("suspend") and name not in play.started:
                play.started[name] = at
                endings.put_nowait(name)
            if _is_complete(event.object) and name not in play.finished:
                play.finished[name] = at
                if len(play.finished) == jobs:
                    done.set()
                    return

    async def end_jobs() -> None:
        due = time.perf_counter()
        while True:
            name = await endings.get()
            if variant.a_second:
                due = max(due + 1 / variant.a_second, time.perf_counter())
                await asyncio.sleep(due - time.perf_counter())
            await finish_job(api, namespace, name, 1)

    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            # Several at once, as the Job controller does it; one where the pace is given.
            enders = (
                [] if variant.real else [group.create_task(end_jobs()) for _ in range(1 if variant.a_second else 8)]
            )
            play.began = time.perf_counter()
            if variant.real:
                await asyncio.to_thread(made.cluster.finish_pods, namespace, f"batch.kubernetes.io/job-name={BLOCKER}")
            else:
                await finish_job(api, namespace, BLOCKER, (SIZES["full"][1]))
            async with asyncio.timeout(600):
                await done.wait()
            for task in (watcher, *enders):
                task.cancel()
    finally:
        await api.close()
    return play


def _is_complete(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


async def finish_job(api: ApiServer, namespace: str, name: str, succeeded: int) -> None:
    """Writes what the Job controller writes when all pods have succeeded."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"status": "True", "reason": "CompletionsReached", "lastProbeTime": now, "lastTransitionTime": now}
    status = {
        "startTime": now,
        "completionTime": now,
        "succeeded": succeeded,
        "conditions": [{"type": kind, **condition} for kind in ("SuccessCriteriaMet", "Complete")],
    }
    await api.patch(JOBS, namespace, name, {"status": status}, PatchType.MERGE, subresource="status")


# --- reporting ------------------------------------------------------------------------------------------------------


def _decided(product: Product) -> list[float]:
    """When the controller had committed the admission of each short Job, by its log; as `time.perf_counter`, sorted."""
    offset = time.perf_counter() - time.time()
    lines = [line for line in product.log_lines() if line.get("event") == "admitted" and "/job-" in line["name"]]
    return sorted(datetime.fromisoformat(line["timestamp"]).timestamp() + offset for line in lines)


def _report(report: Report, play: Play, quota: int, seconds: float, decided: list[float]) -> None:
    """The k-th Job that ends frees the place that the (quota + k)-th takes: as one unit is like another, each freed
    unit is matched with the next start that needs it."""
    started, finished = sorted(play.started.values()), sorted(play.finished.values())
    reuse = [begin - end for begin, end in zip(started[quota:], finished, strict=False)]
    until_decided = [moment - end for moment, end in zip(decided[quota:], finished, strict=False)]
    report.times("finished seen -> freed unit used again", reuse, "p95 <= 200 ms while work waits")
    report.times("of it: until the next one was chosen", until_decided)
    report.value(
        "first place freed -> the whole quota used again",
        f"{1000 * (started[quota - 1] - play.began):.0f} ms for {quota}",
    )
    report.value("Jobs a second", f"{len(finished) / seconds:.1f} ({seconds:.1f} s)")


def _costs(
    report: Report,
    meter: Meter,
    before: Counter[tuple[str, str]],
    after: Counter[tuple[str, str]],
    jobs: int,
    play: Play,
) -> None:
    seconds, spent = meter.read()
    busiest = sorted(spent.items(), key=lambda item: -item[1])
    words = ", ".join(f"{name} {1000 * used / jobs:.1f}" for name, used in busiest if used / jobs > 0.0005)
    report.value("processor ms for each Job", f"{words} (all: {sum(spent.values()) / seconds:.2f} cores)")
    requests = after - before
    requests.subtract({("PATCH", f"{plural}/status"): n for (verb, plural), n in play.asked.items() if verb == "patch"})
    shown = ", ".join(f"{verb} {what} {n / jobs:.2f}" for (verb, what), n in requests.most_common() if n / jobs >= 0.01)
    report.value("API requests for each Job, the benchmark's own left out", shown)
