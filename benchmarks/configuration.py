"""The configuration: applying a file with many queues, and planning it on a large live state."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import IO, Any

import yaml
from sqlalchemy import text as sql

from benchmarks.machine import spent_by
from benchmarks.report import Report
from queue_manager.cli.client import Client
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.store import migrate
from queue_manager.store.database import make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.leases import CONTROLLER
from queue_manager.store.records import AdmissionRow, Change, LedgerEntry, LedgerState, State, WorkloadRow
from queue_manager.store.store import Store

QUEUES = {"full": 1000, "small": 50}
WORKLOADS = {"full": 50_000, "small": 1000}
RUNNING = 0.4
"""Share of the workloads that run; the rest waits."""
ROUNDS = 5
GPU = "nvidia.com/gpu"
CHUNK = 2000
PATIENCE = 600.0
"""Seconds to wait for an answer: a busy machine is to be told by the figure."""
PER_QUEUE = 64
"""GPUs of a queue's own."""
EXPLAINED = 200
"""Explanations that are asked for, one after the other."""
EXPLANATIONS = """
INSERT INTO explanations (workload_uid, body, at) SELECT uid, jsonb_build_object('reason', 'WaitingForQuota', 'message',
    '12 GPUs short in ' || queue, 'position', 3, 'since', created_at, 'asOf', now(), 'estimatedStart', NULL, 'blockers',
    jsonb_build_array(jsonb_build_object('type', 'Quota', 'message', '12 GPUs short', 'node', queue, 'flavor', 'h100',
    'resource', 'nvidia.com/gpu', 'requested', 16, 'available', 4, 'missing', 12, 'holders', '["ns-1/job-1"]'::jsonb))),
    now() FROM workloads WHERE state = 'waiting' ON CONFLICT DO NOTHING;
"""


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: apply, then plans."""
    queues, workloads = QUEUES[size], WORKLOADS[size]
    report = Report(f"configuration: a file with {queues} queues, {workloads} workloads ({RUNNING:.0%} running)")
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "database") as database:
        engine = make_engine(database.url)
        migrate.upgrade(engine)
        store = Store(engine)
        file = Path(folder) / "company.yaml"
        file.write_text(company_file(queues, PER_QUEUE))
        with api_process(database.url) as (client, pid):
            _applies(report, client, file, queues)
            fill(store, queues, workloads)
            _first_plan(report, client, queues, pid)
            _plans(report, client, queues, pid)
            _explains(report, store, client, pid)
        engine.dispose()
    return [report]


def _applies(report: Report, client: Client, file: Path, queues: int) -> None:
    server = client.connection.server
    command = [sys.executable, "-m", "queue_manager.cli.main", "apply", "-f", str(file), "--server", server]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    report.value("queue-manager apply, all new", f"{time.perf_counter() - started:.2f} s", "<= 2 s")
    everything, nothing = [], []
    for number in range(ROUNDS):
        text = company_file(queues, PER_QUEUE + number + 1)
        for samples in (everything, nothing):
            started = time.perf_counter()
            client.apply(text)
            samples.append(time.perf_counter() - started)
    client.apply(file.read_text())
    report.times("PUT, every queue changes", everything, "<= 2 s")
    report.times("PUT, nothing changes", nothing)


def _first_plan(report: Report, client: Client, queues: int, pid: int) -> None:
    """Everything is new to the copy of the live state, unless it has followed already while it was filled."""
    started, before = time.perf_counter(), spent_by(pid)
    client.plan(company_file(queues, PER_QUEUE // 2))
    report.value("plan, the first after all workloads came", f"{time.perf_counter() - started:.2f} s")
    report.value("  processor time of the server", f"{spent_by(pid) - before:.2f} s")


def _plans(report: Report, client: Client, queues: int, pid: int) -> None:
    for what, text in (
        ("every queue gets less", company_file(queues, PER_QUEUE // 2)),
        ("every queue gets more", company_file(queues, PER_QUEUE * 2)),
        ("one queue gets less", yaml.safe_dump(_queue(0, PER_QUEUE // 2))),
    ):
        samples, spent, found = [], [], {}
        for _ in range(3):
            started, before = time.perf_counter(), spent_by(pid)
            found = client.plan(text)
            samples.append(time.perf_counter() - started)
            spent.append(spent_by(pid) - before)
        report.times(f"plan, {what}", samples, "<= 5 s")
        report.times("  processor time of the server", spent)
        lists = ("overQuota", "preemptible", "wouldStop", "wouldStart", "neverStart")
        report.note(f"{what}: " + ", ".join(f"{name} {len(found[name])}" for name in lists))


def _explains(report: Report, store: Store, client: Client, pid: int) -> None:
    """Why workloads wait, where so many do; without a new connection for each, as a program asks."""
    with store.engine.begin() as connection:
        connection.execute(sql(EXPLANATIONS))
    waiting = [row for row in store.load_workloads() if row.state is State.WAITING]
    samples, before = [], spent_by(pid)
    for row in waiting[:: max(1, len(waiting) // EXPLAINED)]:
        started = time.perf_counter()
        client.explanation(row.namespace, row.name)
        samples.append(time.perf_counter() - started)
    report.times(f"explanation, {len(waiting)} wait", samples, "<= 100 ms")
    report.value("  processor time of the server for each", f"{1000 * (spent_by(pid) - before) / len(samples):.1f} ms")


def company_file(queues: int, gpus: int) -> str:
    documents = [_object("Flavor", "h100", {}), _object("PriorityClass", "high", {"value": 100})]
    documents.append(_object("Cohort", "company", {}))
    documents += [_object("Cohort", f"department-{n}", {"parent": "company"}) for n in range(10)]
    documents += [_queue(number, gpus) for number in range(queues)]
    return yaml.dump_all(documents, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))


def _queue(number: int, gpus: int) -> dict[str, Any]:
    quotas = [
        {"name": GPU, "nominalQuota": gpus},
        {"name": "cpu", "nominalQuota": 16 * gpus},
        {"name": "memory", "nominalQuota": f"{128 * gpus}Gi"},
    ]
    group = {
        "coveredResources": [GPU, "cpu", "memory"],
        "flavors": [{"name": "h100", "resources": quotas}],
    }
    spec = {
        "cohort": f"department-{number % 10}",
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"reclaimWithinCohort": "Any"},
    }
    return _object("Queue", f"team-{number:04}", spec)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "queue-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def fill(store: Store, queues: int, workloads: int) -> None:
    """Running workloads up to the quota of each queue, and waiting ones of some fifty shapes."""
    now, random = datetime.now(UTC), Random(6)
    epoch = store.acquire_lease(CONTROLLER, "benchmark", timedelta(hours=1))
    assert epoch is not None
    running = int(workloads * RUNNING)
    per_queue = max(1, running // queues)
    each = max(1, PER_QUEUE // per_queue)
    changes = []
    for number in range(workloads):
        at = now - timedelta(seconds=workloads - number)
        if number < running:
            changes.append(_running(_row(number, number % queues, 1, each, at), at))
        else:
            row = _row(number, random.randrange(queues), random.choice((1, 2, 4, 8, 16)), random.randrange(1, 11), at)
            changes.append(Change(row=row))
    for start in range(0, len(changes), CHUNK):
        store.commit(epoch, None, now, changes[start : start + CHUNK])
    with store.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")


def _row(number: int, queue: int, pods: int, gpus: int, at: datetime) -> WorkloadRow:
    pod_set = PodSet("node", pods, {GPU: gpus, "cpu": 16_000 * gpus, "memory": 2**37 * gpus})
    return WorkloadRow(
        uid=f"uid-{number:06}",
        kind="TrainJob",
        namespace=f"ns-{queue:04}",
        name=f"job-{number:06}",
        created_at=at,
        state=State.WAITING,
        local_queue=f"team-{queue:04}",
        queue=f"team-{queue:04}",
        user="ada",
        pod_groups=(PodGroup("main", (pod_set,)),),
    )


def _running(row: WorkloadRow, at: datetime) -> Change:
    pod_set = row.pod_groups[0].pod_sets[0]
    charge = {Cell("h100", resource): amount * pod_set.count for resource, amount in pod_set.requests.items()}
    assignment = PodSetAssignment("node", pod_set.count, dict.fromkeys(pod_set.requests, "h100"))
    admitted = int(at.timestamp() * 1_000_000)
    admission = AdmissionRow(
        attempt=1, admission=Admission(row.uid, row.queue, (assignment,), charge, admitted), admitted_at=at
    )
    ledger = tuple(LedgerEntry(cell, amount, LedgerState.RESERVED) for cell, amount in charge.items())
    return Change(row=replace(row, state=State.RUNNING, attempt=1, admission=admission), ledger=ledger)


@contextlib.contextmanager
def api_process(url: str) -> Iterator[tuple[Client, int]]:
    """`queue-manager api` as a process, and its pid."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "queue_manager.cli.main", "api", "--port", str(port)]
    environment = {**os.environ, "QM_DATABASE": url}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment, stderr=errors)
        try:
            server = f"http://127.0.0.1:{port}"
            _wait_ready(f"{server}/readyz", process, errors)
            yield Client(server, timeout=PATIENCE), process.pid
        finally:
            process.terminate()
            process.wait()


def _wait_ready(url: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """Returns once `url` answers. Raises RuntimeError with what the process has said when that ended."""
    while process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.1)
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip()
    raise RuntimeError(f"queue-manager api has ended with {process.returncode}: {said}")
