"""Usage over time from the ledger of a year: how long each question takes, and by which plan."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, text

from benchmarks.report import Report
from queue_manager.config.moments import edges, parse_moment, parse_step
from queue_manager.store import migrate, usage_over_time
from queue_manager.store.database import make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.requests import RequestStore
from queue_manager.store.usage_over_time import Asked

SIZES = {"full": 1_000_000, "small": 20_000}
"""Workloads that ended, in 13 months: each with three resources that were reserved for five hours, then draining."""
MONTHS, QUEUES, LIVE, MOST = 13, 200, 2_000, 50_000
GPU = "nvidia.com/gpu"

RESOURCES = f"(VALUES ('{GPU}', 32::bigint), ('cpu', 512000), ('memory', 4398046511104)) c (resource, amount)"
LEDGER = f"""
SELECT history_keep(now() - interval '{MONTHS} months', now(), '-infinity', '-infinity');
INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since, until, kind,
    priority_class)
SELECT 'past-' || lpad(i::text, 8, '0'), 'ns-' || i % {QUEUES}, 'team-' || i % {QUEUES}, 'user-' || i % 1000, 'h100',
    c.resource, c.amount, s.state, at + s.after, at + s.after + s.lasts,
    CASE WHEN i % 10 = 0 THEN 'JobSet' ELSE 'TrainJob' END, (ARRAY['', 'high', 'low'])[i % 3 + 1]
FROM (SELECT i, now() - interval '1 day' - i * (interval '{MONTHS * 30} days' / :count) AS at
    FROM generate_series(1, :count) i) n
CROSS JOIN {RESOURCES}
CROSS JOIN (VALUES ('reserved', interval '0', interval '5 hours'), ('draining', interval '5 hours', interval '12 s'))
    s (state, after, lasts);
INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since, kind)
SELECT 'live-' || i, 'ns-' || i % {QUEUES}, 'team-' || i % {QUEUES}, 'user-' || i % 1000, 'h100', c.resource, c.amount,
    'reserved', now() - i * interval '1 minute', 'TrainJob' FROM generate_series(1, {LIVE}) i CROSS JOIN {RESOURCES};
"""


def run(size: str, keep: Path | None) -> list[Report]:
    """One report. With `keep` the plans are left there as `usage-plans.txt`."""
    count = SIZES[size]
    report = Report(f"usage: the ledger of {count} workloads that ended in {MONTHS} months, {LIVE} that run")
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "database") as database:
        engine = make_engine(database.url)
        migrate.upgrade(engine)
        began = time.perf_counter()
        _make_ledger(engine, count)
        report.note(f"the ledger was made in {time.perf_counter() - began:.0f} s; each question is asked three times")
        plans = [f"{count} workloads in {MONTHS} months\n"]
        for name, asked in _questions(datetime.now(UTC)).items():
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                usage_over_time.accumulate(asked.edges, RequestStore(engine).usage_steps(asked, MOST))
                seconds.append(time.perf_counter() - began)
            report.times(name, seconds)
            plans.append(f"== {name}\n{_plan(engine, asked)}")
        if keep is not None:
            (keep / "usage-plans.txt").write_text("\n\n".join(plans) + "\n")
        engine.dispose()
    return [report]


def _questions(now: datetime) -> Mapping[str, Asked]:
    def asked(since: str, until: str, step: str, by: tuple[str, ...], **more: str) -> Asked:
        begin, end = parse_moment(since, now), parse_moment(until, now)
        buckets = edges(begin, end, parse_step(step), 1000) if step else [begin, end]
        queues = (more.pop("queue"),) if "queue" in more else None
        return Asked(buckets, (*by, "resource"), more, queues)

    return {
        "last month by queue, GPUs": asked("last-month", "this-month", "", ("queue",), resource=GPU),
        "last month by user and class, GPUs": asked(
            "last-month", "this-month", "", ("user", "priorityClass"), resource=GPU
        ),
        "last month by queue and day": asked("last-month", "this-month", "1d", ("queue",)),
        "half a year ago, a month by queue, GPUs": asked("210d", "180d", "", ("queue",), resource=GPU),
        "7 days of a queue by user and day": asked("7d", "now", "1d", ("user",), queue="team-7"),
        "a year of a queue by month": asked("365d", "now", "month", ("user",), queue="team-7"),
        "a year by queue and month, GPUs": asked("365d", "now", "month", ("queue",), resource=GPU),
        "a year by queue and month": asked("365d", "now", "month", ("queue",)),
    }


def _make_ledger(engine: Engine, count: int) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in filter(str.strip, LEDGER.split(";\n")):
            connection.execute(text(statement), {"count": count} if ":count" in statement else {})
        connection.execute(text("VACUUM ANALYZE"))


def _plan(engine: Engine, asked: Asked) -> str:
    with engine.connect() as connection:
        statement = f"EXPLAIN (ANALYZE, COSTS OFF, BUFFERS) {usage_over_time.query(asked).text}"
        rows = connection.execute(text(statement), usage_over_time.arguments(asked, MOST))
        return "\n".join(row[0] for row in rows)
