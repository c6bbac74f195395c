"""What the labels of a job mean under a configuration: its queue and its priority. The leader reads objects by it, a
plan reads rows again by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_manager.config.compiled import Compiled, PriorityClass, Settings
from queue_manager.engine.configuration import Topology
from queue_manager.engine.copies import replace
from queue_manager.engine.selectors import meets_all
from queue_manager.store.records import State, WorkloadRow

UNKNOWN_QUEUE = "UnknownQueue"
UNKNOWN_PRIORITY_CLASS = "UnknownPriorityClass"
KUBERNETES_CLASS = "PriorityClass/"
"""Start of the key of a row's inputs that names the PriorityClass of Kubernetes its priority is from."""


@dataclass(frozen=True, slots=True)
class Basis:
    """All of a configuration that the row of a job is read by. Quotas are none of it: where a hundred thousand wait,
    reading them again takes minutes. `selectors` are the namespace selectors of queues, `local_queues` what each
    stands for."""

    settings: Settings
    priority_classes: Mapping[str, PriorityClass]
    topologies: Mapping[str, Topology]
    selectors: Mapping[str, object]
    local_queues: Mapping[str, str]


def basis_of(compiled: Compiled) -> Basis:
    """What rows are read by with this configuration."""
    known = compiled.configuration
    return Basis(
        compiled.settings,
        compiled.priority_classes,
        known.topologies,
        {name: queue.namespace_selector for name, queue in known.queues.items()},
        {name: local.queue for name, local in known.local_queues.items()},
    )


def resolve_queue(
    compiled: Compiled, namespace: str, labels: Mapping[str, str], local_queue: str, label: str
) -> tuple[str, str]:
    """(queue, "") or ("", what is wrong with the job's `label` and what would be right). `labels` are those of the
    namespace."""
    local = compiled.configuration.local_queues.get(f"{namespace}/{local_queue}")
    if local is not None:
        return local.queue, ""
    queue = compiled.configuration.queues.get(local_queue)
    if queue is None:
        return "", (
            f'metadata.labels["{label}"]: there is no local queue "{local_queue}" in namespace "{namespace}"'
            f" and no queue of that name"
        )
    if queue.namespace_selector is None or not meets_all(queue.namespace_selector, labels):
        return "", f'metadata.labels["{label}"]: namespace "{namespace}" may not use queue "{local_queue}"'
    return queue.name, ""


def with_priority_class(row: WorkloadRow, compiled: Compiled, name: str, label: str) -> WorkloadRow:
    """A row whose job names a priority class by `label`: held where there is none of that name (workloads.md D9)."""
    found = compiled.priority_classes.get(name)
    if found is None:
        message = f'metadata.labels["{label}"]: there is no priority class "{name}"'
        return replace(row, state=State.HELD, reason=UNKNOWN_PRIORITY_CLASS, message=message, priority_class=name)
    return replace(
        row,
        priority=found.value,
        priority_class=name,
        may_preempt=found.may_preempt,
        preemptible=found.preemptible,
    )


def own_class(row: WorkloadRow) -> str:
    """The priority class that its job names; "" where the priority is nobody's or from a PriorityClass of Kubernetes,
    which may have the same name."""
    return "" if KUBERNETES_CLASS + row.priority_class in row.inputs else row.priority_class
