"""Events of ours on pods: why one stays behind its gate. Best effort: the decision stands without them."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import EVENTS, PODS, ApiError, Cluster, Object
from queue_manager.controller.event_bodies import event_body, event_name
from queue_manager.controller.tasks import Tasks
from queue_manager.kinds.patches import digest
from queue_manager.store.records import WorkloadRow

log = structlog.get_logger(__name__)

COMPONENT = "queue-manager"


class PodEvents:
    """Says each message about a pod once; its name keeps other processes from saying it again."""

    def __init__(self, cluster: Cluster, clock: Clock, may_write: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._may_write = may_write
        self._told: dict[str, set[str]] = {}
        self._tasks = Tasks()

    def tell(self, row: WorkloadRow, pod: Object, message: str) -> None:
        """A warning on a pod of the workload."""
        told = self._told.setdefault(row.uid, set())
        name = event_name(pod, digest([pod["metadata"]["uid"], message]))
        if name not in told and self._may_write():
            told.add(name)
            self._tasks.spawn(self._send(row, pod, name, message))

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._told.pop(uid, None)

    async def close(self) -> None:
        """Cancels what is being sent."""
        await self._tasks.close()

    async def _send(self, row: WorkloadRow, pod: Object, name: str, message: str) -> None:
        metadata = pod["metadata"]
        body = event_body(name, PODS, pod, "NoPlace", message, "Warning", COMPONENT, self._clock.now())
        try:
            await self._cluster.create(EVENTS, metadata["namespace"], body)
        except ApiError as error:
            if error.conflict:
                return  # said by a process before this one
            log.info("not sent", workload=row.uid, pod=metadata["name"], error=str(error))
            self._told.get(row.uid, set()).discard(name)
