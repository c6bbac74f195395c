"""What database and engine do without an API server: workloads that are admitted and end, as many as they can."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.machine import Meter, sync_write, with_children
from benchmarks.report import Report
from queue_manager.config.compiled import compile_objects
from queue_manager.controller.garbage import settle_garbage
from queue_manager.controller.transitions import Facts, admit, finish
from queue_manager.engine.configuration import CellQuota, Configuration, Flavor, FlavorQuotas, Queue, ResourceGroup
from queue_manager.engine.copies import replace
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.kinds.kind import Finished, Outcome
from queue_manager.store import migrate
from queue_manager.store.asked import workload_of
from queue_manager.store.database import make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.leases import CONTROLLER
from queue_manager.store.records import Change, Committed, State, WorkloadRow
from queue_manager.store.store import Store
from queue_manager.store.times import to_microseconds

SIZES = {"full": (50_000, 2_000, 10_000), "small": (1_500, 100, 400)}
"""Workloads that wait at first, that run at once, that end while one batch size is measured."""
BATCHES = (10, 100, 500)
"""Ends that are gathered into one decision; the last as under load."""
QUEUES, SHAPES = 30, 50
GPU = "nvidia.com/gpu"
CHUNK = 2000
NOTHING = compile_objects(())


def run(size: str, keep: Path | None) -> list[Report]:
    """One report; PostgreSQL with fsync."""
    waiting, places, ends = SIZES[size]
    report = Report(f"decisions: {waiting} wait, {places} run in {QUEUES} queues; database and engine alone")
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "database") as database:
        engine = make_engine(database.url)
        migrate.upgrade(engine)
        found = _Side(Store(engine), places)
        found.fill(waiting + places)
        settle_garbage()
        for batch in BATCHES:
            count = min(batch, places)
            meter = Meter({"postgres": with_children(database.pid or 0)})
            own, laps = time.process_time(), found.laps.copy()
            for _ in range(ends // count):
                found.turn(count)
            passed, spent = meter.read()
            own, done = time.process_time() - own, ends // count * count
            rate, wanted = done / passed, ">= 2,500 a second" if batch == BATCHES[-1] else ""
            report.value(f"admitted and ended, {count} to a decision", f"{rate:.0f} a second", wanted)
            parts = {"this process": own, **spent}
            words = ", ".join(f"{name} {1000 * used / done:.3f}" for name, used in parts.items())
            laps = {name: seconds - laps.get(name, 0.0) for name, seconds in found.laps.items()}
            walls = ", ".join(f"{name} {1000 * seconds / done:.3f}" for name, seconds in laps.items())
            report.value("  processor milliseconds for each", words)
            report.value("  milliseconds for each", walls)
        report.note(f"a synced write takes {sync_write(Path(folder)):.2f} ms here")
        engine.dispose()
    return [report]


@dataclass(slots=True)
class _Side:
    """The leader's side: rows and engine in memory, each decision committed before the next."""

    store: Store
    places: int
    rows: dict[str, WorkloadRow] = field(default_factory=dict)
    running: deque[str] = field(default_factory=deque)
    laps: dict[str, float] = field(default_factory=dict)
    engine: Engine = field(default_factory=Engine)
    epoch: int = 0
    created: int = 0

    def fill(self, count: int) -> None:
        """Queues in one cohort, and so many workloads; as many as there are places are admitted."""
        epoch = self.store.acquire_lease(CONTROLLER, "benchmark", timedelta(hours=10))
        assert epoch is not None
        self.epoch = epoch
        self.engine.configure(_configuration(self.places))
        for begin in range(0, count, CHUNK):
            self._arrive(min(CHUNK, count - begin))
        self._admit()
        with self.store.engine.connect() as connection:
            connection.exec_driver_sql("ANALYZE")

    def turn(self, count: int) -> None:
        """So many end, as many are admitted and started."""
        self._end([self.running.popleft() for _ in range(count)])
        self._admit()

    def _arrive(self, count: int) -> None:
        now = datetime.now(UTC)
        fresh = list(_fresh(range(self.created, self.created + count), now))
        self.created += count
        self._commit("arrive", [Change(row=row, request_changed=True) for row in fresh], now)
        for row in fresh:
            self.engine.upsert_workload(workload_of(self.rows[row.uid], NOTHING, {}))

    def _end(self, uids: list[str]) -> None:
        now = datetime.now(UTC)
        facts = Facts(now=now, exists=True, finished=Finished(Outcome.SUCCEEDED, "all pods succeeded"), drained=True)
        ends = [finish(self.rows[uid], facts, State.FINISHED, "Succeeded", "all pods succeeded") for uid in uids]
        self._commit("end", ends, now)
        began = time.perf_counter()
        for uid in uids:
            del self.rows[uid]
            self.engine.evict(uid)
            self.engine.release(uid)
            self.engine.remove_workload(uid)
        self._lap("engine", began)

    def _admit(self) -> None:
        """A pass; what it starts is confirmed with the next commit of starts, as the API server would show it."""
        now, began = datetime.now(UTC), time.perf_counter()
        plan = self.engine.plan(to_microseconds(now))
        changes = [admit(self.rows[admission.uid], admission, now) for admission in plan.admissions]
        self._lap("engine", began)
        committed = self._commit("admit", changes, now)
        self.running.extend(change.row.uid for change in changes)
        started = [
            Change(row=replace(row, state=State.RUNNING, admission=replace(row.admission, started_at=now)))
            for row in (self.rows[change.row.uid] for change in changes)
            if row.admission is not None
        ]
        self._commit("start confirmed", started, now)
        began = time.perf_counter()
        self.store.outbox_done(self.epoch, [entry.id for entry in committed.outbox], now)
        self._lap("outbox done", began)

    def _commit(self, what: str, changes: list[Change], now: datetime) -> Committed:
        began = time.perf_counter()
        committed = self.store.commit(self.epoch, None, now, changes, self.rows)
        if committed.lost:
            raise RuntimeError(f"{len(committed.lost)} changes were lost, with one writer")
        for change in changes:
            self.rows[change.row.uid] = replace(change.row, version=committed.versions[change.row.uid])
        self._lap(what, began)
        return committed

    def _lap(self, what: str, began: float) -> None:
        self.laps[what] = self.laps.get(what, 0.0) + time.perf_counter() - began


def _configuration(places: int) -> Configuration:
    quotas = FlavorQuotas("h100", {GPU: CellQuota(places // QUEUES + 1), "cpu": CellQuota(10**9)})
    group = ResourceGroup((GPU, "cpu"), (quotas,))
    queues = {name: Queue(name, resource_groups=(group,)) for name in map(_queue, range(QUEUES))}
    return Configuration(flavors={"h100": Flavor("h100")}, queues=queues)


def _queue(number: int) -> str:
    return f"team-{number % QUEUES:02}"


def _fresh(numbers: range, now: datetime) -> Iterator[WorkloadRow]:
    for number in numbers:
        pod_set = PodSet("main", 1, {GPU: 1, "cpu": 1000 + number // QUEUES % SHAPES})
        queue = _queue(number)
        yield WorkloadRow(
            uid=f"00000000-0000-4000-8000-{number:012}",
            kind="Job",
            namespace=queue,
            name=f"job-{number:06}",
            created_at=now + timedelta(microseconds=number),
            state=State.WAITING,
            local_queue="work",
            queue=queue,
            user=queue,
            pod_groups=(PodGroup("main", (pod_set,)),),
        )
