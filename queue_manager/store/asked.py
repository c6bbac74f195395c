"""What a row asks for, as the engine takes it."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern

from queue_manager.config.compiled import Compiled
from queue_manager.engine.workload import Workload
from queue_manager.store.readings import own_class
from queue_manager.store.records import WorkloadRow
from queue_manager.store.times import to_microseconds


def workload_of(
    row: WorkloadRow, compiled: Compiled, namespace_labels: Mapping[str, str], checkpointed_at: int = 0
) -> Workload:
    """A row with what its priority class says now. `checkpointed_at` (microseconds) is told by its object alone."""
    priority_class = compiled.priority_classes.get(own_class(row))
    return Workload(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        queue=row.queue,
        created=to_microseconds(row.created_at),
        pod_groups=row.pod_groups,
        priority=row.priority,
        may_preempt=row.may_preempt,
        preemptible=row.preemptible,
        user=row.user,
        groups=row.groups,
        topology=row.topology,
        not_before=to_microseconds(row.not_before) if row.not_before else 0,
        requeued=to_microseconds(row.requeued_at) if row.requeued_at else 0,
        max_run_time=max(1, row.max_run_time - row.past_run_time) if row.max_run_time else 0,
        min_run_time=priority_class.min_run_time if priority_class is not None else 0,
        checkpointed_at=checkpointed_at,
        namespace_labels=namespace_labels,
        local_queue=intern(f"{row.namespace}/{row.local_queue}"),
    )
