"""Prometheus metrics of the leader, read off the live state when scraped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from queue_manager.controller.controller import Controller
from queue_manager.controller.counters import READY_BUCKETS
from queue_manager.controller.term import Term
from queue_manager.engine.configuration import Cell, ResourceGroup

PREFIX = "queue_manager_"
SECONDS = 10.0
"""How long a scrape waits for the controller's loop."""


class ControllerCollector(Collector):
    """Amounts are in base units (milli-CPU, bytes, counts)."""

    def __init__(self, controller: Controller) -> None:
        """To be made on the controller's event loop."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterable[Metric]:
        """Everything an operator graphs: queues, cells, cycle, outbox, watches, leadership. Callable in any thread."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            return list(self._collect())
        return asyncio.run_coroutine_threadsafe(self._collected(), self._loop).result(SECONDS)

    async def _collected(self) -> list[Metric]:
        return list(self._collect())

    def _collect(self) -> Iterator[Metric]:
        term = self._controller.term
        yield GaugeMetricFamily(PREFIX + "leader", "1 while this process leads", value=int(term is not None))
        if term is None:
            return
        yield GaugeMetricFamily(PREFIX + "epoch", "Epoch of the leader's lease", value=term.epoch)
        yield from _workloads(term)
        yield from _cells(term)
        yield from _lifecycle(term)
        yield from _progress(term)


def _workloads(term: Term) -> Iterator[Metric]:
    family = GaugeMetricFamily(PREFIX + "workloads", "Workloads by queue and state", labels=["queue", "state"])
    counts = {(queue, state.value): count for (queue, state), count in term.picture.rows.counts.items()}
    for name in term.picture.compiled.configuration.queues:
        counts.setdefault((name, "waiting"), 0)
        counts.setdefault((name, "running"), 0)
    for (queue, state), count in sorted(counts.items()):
        family.add_metric([queue, state], count)
    yield family


def _cells(term: Term) -> Iterator[Metric]:
    labels = ["node", "flavor", "resource"]
    used = GaugeMetricFamily(PREFIX + "used", "Charged amount of a queue or cohort, draining included", labels=labels)
    nominal = GaugeMetricFamily(PREFIX + "nominal", "Nominal quota of a queue or cohort", labels=labels)
    for node, cells in sorted(term.picture.engine.usage().items()):
        for cell, amount in sorted(cells.items()):
            used.add_metric([node, *cell], amount)
    configuration = term.picture.compiled.configuration
    for name, cohort in sorted(configuration.cohorts.items()):
        for cell, amount in _nominal(cohort.resource_groups):
            nominal.add_metric([name, *cell], amount)
    for name, queue in sorted(configuration.queues.items()):
        for cell, amount in _nominal(queue.resource_groups):
            nominal.add_metric([name, *cell], amount)
    yield used
    yield nominal


def _nominal(groups: tuple[ResourceGroup, ...]) -> Iterator[tuple[Cell, int]]:
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                yield Cell(flavor.flavor, resource), quota.nominal


def _lifecycle(term: Term) -> Iterator[Metric]:
    counters = term.counters
    evictions = CounterMetricFamily(PREFIX + "evictions", "Workloads evicted", labels=["reason", "cause"])
    for (reason, cause), count in sorted(counters.evictions.items()):
        evictions.add_metric([reason, cause], count)
    yield evictions
    deactivations = CounterMetricFamily(PREFIX + "deactivations", "Workloads deactivated", labels=["cause"])
    for cause, count in sorted(counters.deactivations.items()):
        deactivations.add_metric([cause], count)
    yield deactivations
    waits = HistogramMetricFamily(PREFIX + "ready_wait_seconds", "From the admission until all pods were ready")
    total, buckets = 0, []
    for bound in (*READY_BUCKETS, None):
        total += counters.ready_waits[bound]
        buckets.append(("+Inf" if bound is None else str(float(bound)), total))
    waits.add_metric([], buckets, counters.ready_seconds)
    yield waits
    waiting = GaugeMetricFamily(PREFIX + "checks_waiting", "Reserved workloads that wait for a check", labels=["check"])
    rows = term.picture.rows
    names = [name for uid in rows.reserved for name in term.reconciler.waits_for(rows[uid])]
    for name, count in sorted(Counter(names).items()):
        waiting.add_metric([name], count)
    yield waiting


def _progress(term: Term) -> Iterator[Metric]:
    counters = term.counters
    for name, help_text, value in (
        ("cycles", "Passes of the leader's loop", counters.cycles),
        ("cycle_seconds", "Seconds spent in passes", counters.cycle_seconds),
        ("admissions", "Workloads admitted", counters.admissions),
        ("lost_rows", "Rows that changed under a commit and were read again", counters.lost),
    ):
        yield CounterMetricFamily(PREFIX + name, help_text, value=value)
    yield GaugeMetricFamily(PREFIX + "cycle_last_seconds", "Duration of the last pass", value=counters.last_seconds)
    yield GaugeMetricFamily(PREFIX + "outbox_age_seconds", "Age of the oldest action not done", value=term.outbox_age())
    yield GaugeMetricFamily(
        PREFIX + "writes_backlog",
        "Starts and stops that have yet to be written; where they are many, nobody more is admitted",
        value=term.executors.backlog(),
    )
    yield GaugeMetricFamily(
        PREFIX + "writes_paused_seconds",
        "Seconds for which the API server has taken no writes, 0 while it takes them",
        value=term.executors.outage.age,
    )
    lag = GaugeMetricFamily(
        PREFIX + "watch_lag_seconds", "Seconds since a watch last proved to be alive", labels=["resource"]
    )
    for resource, reflector in term.view.reflectors.items():
        lag.add_metric([resource.plural], reflector.lag)
    yield lag
