"""The REST API over a year of history: pages of workloads, explanations, and what the server can do at most."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from urllib.parse import urlencode

import aiohttp
import yaml
from sqlalchemy import Engine, text

from benchmarks.configuration import EXPLANATIONS, api_process, company_file, fill
from benchmarks.machine import Meter, with_children
from benchmarks.report import Report
from queue_manager.store import migrate
from queue_manager.store.database import make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.list_queries import shape_of, statement
from queue_manager.store.listing import arguments, make_cursor
from queue_manager.store.records import State, WorkloadFilter
from queue_manager.store.store import Store

SIZES = {"full": (1_000_000, 60.0, 20.0), "small": (20_000, 5.0, 3.0)}
"""Workloads that ended; seconds of the steady and of each saturated part."""
LIVE, QUEUES, RATE, CONNECTIONS = 2_000, 200, 20, 8
MONTHS = 13

# One statement a table: what a year of an installation leaves behind, 13 months up to now.
HISTORY = f"""
SELECT history_keep(now() - interval '{MONTHS} months', now(), '-infinity', '-infinity');
INSERT INTO workload_history (uid, version, kind, namespace, name, created_at, state, queue, priority, "user",
    finished_at, row, pod_groups, pod_sets, admissions)
SELECT uid, 4, CASE WHEN i % 10 = 0 THEN 'JobSet' ELSE 'TrainJob' END, 'ns-' || lpad((i % {QUEUES})::text, 4, '0'),
    'train-' || substr(md5(uid), 1, 10), at, CASE WHEN i % 20 = 0 THEN 'failed' ELSE 'finished' END, queue, i % 3 * 100,
    'user-' || i % 1000, at + interval '5 hours',
    jsonb_build_object('local_queue', queue, 'priority_class', '', 'may_preempt', true, 'preemptible', true,
        'attempt', 1, 'reason', '', 'message', '4 of 4 pods succeeded', 'past_run_time', 17000000000,
        'groups', '[]'::jsonb, 'inputs', '{{}}'::jsonb, 'requested', '{{"nvidia.com/gpu": 32}}'::jsonb,
        'checks', '[]'::jsonb, 'requeues', 0),
    jsonb_build_array(jsonb_build_object('workload_uid', uid, 'index', 0, 'name', 'main', 'policy', 'gang',
        'minimum', NULL, 'topology', NULL, 'disruption', 'single')),
    jsonb_build_array(jsonb_build_object('workload_uid', uid, 'group_index', 0, 'index', 0, 'name', 'node', 'count', 4,
        'reclaimed', 0, 'min_count', NULL, 'first_stage', 0, 'last_stage', 0, 'placement', '{{}}'::jsonb,
        'requests', '{{"nvidia.com/gpu": 8, "cpu": 128000, "memory": 1099511627776}}'::jsonb)),
    jsonb_build_array(jsonb_build_object('workload_uid', uid, 'attempt', 1, 'queue', queue, 'admitted_at', at,
        'started_at', at, 'ended_at', at + interval '5 hours', 'cause', 'Succeeded', 'admission',
        jsonb_build_object('queue', queue, 'pod_sets', '[]'::jsonb, 'admitted', 1,
        'charge', '[["h100", "nvidia.com/gpu", 32]]'::jsonb)))
FROM (SELECT i, 'past-' || lpad(i::text, 8, '0') AS uid, 'team-' || lpad((i % {QUEUES})::text, 4, '0') AS queue,
    now() - interval '1 day' - i * (interval '{MONTHS * 30} days' / :count) AS at
    FROM generate_series(1, :count) i) n;
"""


@dataclass(slots=True)
class Asked:
    """Requests and how long each was waited for."""

    seconds: list[float] = field(default_factory=list)
    bytes: int = 0
    failed: int = 0


def run(size: str, keep: Path | None) -> list[Report]:
    """One report. With `keep` the plans of the lists' queries are left there as `plans.txt`."""
    count, steady, saturated = SIZES[size]
    report = Report(f"rest: {count} workloads that ended and {LIVE} live ones, {QUEUES} queues; pages of 100")
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "database") as database:
        engine = make_engine(database.url)
        migrate.upgrade(engine)
        store = Store(engine)
        with api_process(database.url) as (client, pid):
            limits = {"rateLimit": {"requestsPerSecond": 1_000_000, "burst": 1_000_000}}
            settings = {
                "apiVersion": "queue-manager.io/v1",
                "kind": "Settings",
                "metadata": {"name": "default"},
                "spec": limits,
            }
            client.apply(company_file(QUEUES, 64) + "\n---\n" + yaml.safe_dump(settings))
            fill(store, QUEUES, LIVE)
            began = time.perf_counter()
            make_history(engine, count)
            report.note(f"the history was made in {time.perf_counter() - began:.0f} s")
            if keep is not None:
                (keep / "plans.txt").write_text(_plans(store, count))
            server = client.connection.server

            def meter() -> Meter:
                return Meter({"api": with_children(pid), "postgres": with_children(database.pid or 0)})

            asyncio.run(_measure(report, store, server, meter, steady, saturated))
        engine.dispose()
    return [report]


def make_history(engine: Engine, count: int) -> None:
    """Workloads that ended over 13 months, and an explanation of each one that waits and has none."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in filter(str.strip, (HISTORY + EXPLANATIONS).split(";\n")):
            connection.execute(text(statement), {"count": count} if ":count" in statement else {})
        connection.execute(text("VACUUM ANALYZE"))


async def _measure(
    report: Report, store: Store, server: str, meter: Callable[[], Meter], steady: float, saturated: float
) -> None:
    span = span_of(store)
    waiting = [row for row in store.load_workloads() if row.state is State.WAITING][:300]
    connector = aiohttp.TCPConnector(limit=200)
    async with aiohttp.ClientSession(server, connector=connector, headers={"Accept-Encoding": "identity"}) as session:
        await requests_at_rate(session, mixed_pages(span, Random(0)), RATE, 5.0)  # connections, caches of the database
        mixed = await requests_at_rate(session, mixed_pages(span, Random(1)), RATE, steady)
        report.times(f"page, {RATE} a second, {steady:.0f} s", mixed.seconds, "p99 <= 50 ms")
        for name, query in _kinds(span, Random(2)).items():
            found = await requests_at_rate(session, iter(query, None), RATE, max(2.0, steady / 12))
            report.times(f"  {name}", found.seconds)
        paths = itertools.cycle(f"/api/v1/workloads/{row.namespace}/{row.name}/explanation" for row in waiting)
        explained = await requests_at_rate(session, paths, RATE, steady / 4)
        report.times(f"explanation, {RATE} a second", explained.seconds, "<= 100 ms")
        everywhere = _deep(span, Random(3))
        for what, asked in (
            ("pages asked for before (the first of all)", itertools.repeat("/api/v1/workloads?limit=100")),
            ("pages from anywhere, each for the first time", iter(everywhere, None)),
            ("the mix", mixed_pages(span, Random(4))),
        ):
            await _saturated(report, session, what, asked, meter(), saturated)
        failed = mixed.failed + explained.failed
        report.note(f"{failed} requests of the steady parts failed; nothing is compressed (Accept-Encoding: identity)")


def span_of(store: Store) -> tuple[float, float]:
    """When the first and the last of the history were created."""
    with store.engine.connect() as connection:
        ends = "extract(epoch FROM min(created_at)), extract(epoch FROM max(created_at))"
        first, last = connection.execute(text(f"SELECT {ends} FROM workload_history")).one()
    return float(first), float(last)


def _page(**query: str) -> str:
    return f"/api/v1/workloads?{urlencode({'limit': '100', **query})}"


def _deep(span: tuple[float, float], random: Random) -> Callable[[], str]:
    def path() -> str:
        at = datetime.fromtimestamp(random.uniform(*span), UTC)
        return _page(cursor=make_cursor("-created", [at, "past"]))

    return path


def _kinds(span: tuple[float, float], random: Random) -> Mapping[str, Callable[[], str]]:
    """What people and programs ask for."""
    queue = lambda: f"team-{random.randrange(QUEUES):04}"  # noqa: E731
    return {
        "the first page": lambda: _page(),
        "a page from anywhere": _deep(span, random),
        "of a queue": lambda: _page(queue=queue()),
        "of a cohort of 20 queues": lambda: _page(cohort=f"department-{random.randrange(10)}"),
        "of a user": lambda: _page(user=f"user-{random.randrange(1000)}"),
        "of a namespace, failed": lambda: _page(namespace=f"ns-{random.randrange(QUEUES):04}", state="failed"),
        "waiting": lambda: _page(state="waiting"),
        "of a kind, by priority": lambda: _page(kind="JobSet", sort="-priority"),
        "ended last": lambda: _page(sort="-finished"),
        "part of a name": lambda: _page(text=f"{random.randrange(16**4):04x}"),
    }


def mixed_pages(span: tuple[float, float], random: Random) -> Iterator[str]:
    """Paths of pages of all kinds, for ever."""
    kinds = list(_kinds(span, random).values())
    return iter(lambda: random.choice(kinds)(), None)


async def _get(session: aiohttp.ClientSession, path: str, asked: Asked, due: float) -> None:
    async with session.get(path) as answer:
        asked.bytes += len(await answer.read())
        asked.failed += answer.status != 200
    asked.seconds.append(time.perf_counter() - due)


async def requests_at_rate(session: aiohttp.ClientSession, paths: Iterator[str], rate: float, seconds: float) -> Asked:
    """Requests at fixed times, whether or not those before were answered; each is timed from when it was due."""
    asked, tasks, began = Asked(), [], time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(_get(session, next(paths), asked, due)))
    await asyncio.gather(*tasks)
    return asked


async def _saturated(
    report: Report, session: aiohttp.ClientSession, what: str, paths: Iterator[str], meter: Meter, seconds: float
) -> None:
    asked, until = Asked(), time.perf_counter() + seconds
    meter.start()

    async def one_after_the_other() -> None:
        while time.perf_counter() < until:
            await _get(session, next(paths), asked, time.perf_counter())

    own = time.process_time()
    await asyncio.gather(*(one_after_the_other() for _ in range(CONNECTIONS)))
    passed, spent = meter.read()
    count = len(asked.seconds)
    own = time.process_time() - own
    report.value(f"saturated, {what}", f"{count / passed:.0f} a second", ">= 200 a second")
    parts = {**spent, "this client": own}
    costs = ", ".join(f"{name} {1000 * used / count:.1f}" for name, used in parts.items())
    report.value("  processor milliseconds a request", f"{costs}; {asked.bytes / count / 1000:.0f} kB")
    report.times(f"  with {CONNECTIONS} connections", asked.seconds)


PLANNED = {
    "the newest": (WorkloadFilter(), "-created"),
    "of a queue": (WorkloadFilter(queues=("team-0007",)), "-created"),
    "of a cohort of 20 queues": (WorkloadFilter(queues=tuple(f"team-{n:04}" for n in range(7, 200, 10))), "-created"),
    "of a user, failed": (WorkloadFilter(user="user-7", states=(State.FAILED,)), "-created"),
    "of a namespace, failed": (WorkloadFilter(namespace="ns-0020", states=(State.FAILED,)), "-created"),
    "of a namespace, failed, of which there are none": (
        WorkloadFilter(namespace="ns-0007", states=(State.FAILED,)),
        "-created",
    ),
    "failed, ended last": (WorkloadFilter(states=(State.FAILED,)), "-finished"),
    "of a kind": (WorkloadFilter(kind="JobSet"), "-created"),
    "part of a name": (WorkloadFilter(text="abc4"), "-created"),
    "waiting": (WorkloadFilter(states=(State.WAITING,)), "-created"),
    "ended last": (WorkloadFilter(), "-finished"),
    "by priority": (WorkloadFilter(), "-priority"),
    "by name, of a namespace": (WorkloadFilter(namespace="ns-0007"), "name"),
}


def _plans(store: Store, count: int) -> str:
    """What PostgreSQL does for a page of each list, as it was done."""
    parts = [f"{count} workloads in {MONTHS} months\n"]
    with store.engine.connect() as connection:
        for name, (wanted, sort) in PLANNED.items():
            asked = statement(shape_of(wanted, sort, None, 101, content=not wanted.text))
            plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF, BUFFERS) {asked}", arguments(wanted, None))
            parts.append(f"== {name}, sort={sort}\n" + "\n".join(row[0] for row in plan))
    return "\n\n".join(parts) + "\n"
