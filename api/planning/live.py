"""A copy of the live state: an engine that knows what the leader's knows, from what it keeps in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from queue_manager.config.compiled import Compiled
from queue_manager.engine.configuration import Node
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Taint, Workload
from queue_manager.kinds.kind import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from queue_manager.store.asked import workload_of
from queue_manager.store.readings import (
    UNKNOWN_PRIORITY_CLASS,
    UNKNOWN_QUEUE,
    own_class,
    resolve_queue,
    with_priority_class,
)
from queue_manager.store.records import CHARGED, NodeRow, State, WorkloadRow
from queue_manager.store.wishes import PENDING_EVALUATION


@dataclass(frozen=True, slots=True)
class Live:
    """What the store says at one moment. `past_usage` answers for the rules of a history; `namespaces` are the labels
    of each, None where no leader has told them yet."""

    rows: Sequence[WorkloadRow]
    nodes: Sequence[NodeRow]
    now: datetime
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    past_usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Labels of a namespace; the one that every namespace has where nothing is known of it."""
        return (self.namespaces or {}).get(namespace) or {"kubernetes.io/metadata.name": namespace}

    def workload(self, row: WorkloadRow, compiled: Compiled) -> Workload:
        """A row as the engine takes it."""
        return workload_of(row, compiled, self.labels_of(row.namespace))


def add_nodes(engine: Engine, nodes: Iterable[NodeRow], *, foreign: bool = True) -> None:
    """Tells an engine of the nodes; without `foreign` as if nobody else used them."""
    for node in nodes:
        engine.upsert_node(
            Node(
                node.name,
                node.labels,
                node.allocatable,
                tuple(Taint(key, value, effect) for key, value, effect in node.taints),
                node.ready,
                node.unschedulable,
                node.foreign if foreign else {},
            )
        )


def tell(engine: Engine, row: WorkloadRow, live: Live, compiled: Compiled) -> None:
    """What an engine has to know of a row: who waits in a queue, and who is charged."""
    if row.admission is None and not waits(row):
        return
    engine.upsert_workload(live.workload(row, compiled))
    if row.admission is not None:
        draining = row.state is State.DRAINING
        engine.restore_admission(row.admission.admission, draining=draining, evicted_by=row.admission.by)


def waits(row: WorkloadRow) -> bool:
    """Whether it takes part in the order of a queue."""
    return row.state is State.WAITING and bool(row.queue)


def under(compiled: Compiled, before: Compiled, live: Live) -> list[WorkloadRow]:
    """The rows as they will be read under another configuration: their queue and priority class may mean something
    else, or nothing. What runs stays as it is."""
    if _reading_rules(compiled) == _reading_rules(before):
        return list(live.rows)
    return [row if row.state in CHARGED else _read_again(row, compiled, before, live) for row in live.rows]


def _reading_rules(compiled: Compiled) -> tuple[object, ...]:
    """All of a configuration that decides how a row is read."""
    configuration = compiled.configuration
    selectors = {name: queue.namespace_selector for name, queue in configuration.queues.items()}
    return configuration.local_queues, compiled.priority_classes, selectors


def _read_again(row: WorkloadRow, compiled: Compiled, before: Compiled, live: Live) -> WorkloadRow:
    queue, problem = _queue_of(row, compiled, live)
    if queue != _queue_of(row, before, live)[0]:
        reason = UNKNOWN_QUEUE if problem else PENDING_EVALUATION
        row = replace(row, queue=queue, reason=reason if row.state is State.WAITING else row.reason)
    name = own_class(row)
    if before.priority_classes.get(name) == compiled.priority_classes.get(name):
        return row
    if row.state is State.HELD and row.reason == UNKNOWN_PRIORITY_CLASS:
        row = replace(row, state=State.WAITING, reason=PENDING_EVALUATION)
    again = with_priority_class(row, compiled, name, PRIORITY_CLASS_LABEL)
    return again if row.state is State.WAITING else replace(again, state=row.state, reason=row.reason)


def _queue_of(row: WorkloadRow, compiled: Compiled, live: Live) -> tuple[str, str]:
    return resolve_queue(compiled, row.namespace, live.labels_of(row.namespace), row.local_queue, QUEUE_LABEL)
