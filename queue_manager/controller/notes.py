"""Events and annotations on job objects: what their users read. They never stand in the way of a start."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import EVENTS, ApiError, Cluster, Object, PatchType, Resource
from queue_manager.controller.brain import Brain
from queue_manager.controller.event_bodies import event_body, event_name
from queue_manager.controller.labels import carriers, labels_on, lacks
from queue_manager.controller.messages import Messages
from queue_manager.controller.outage import Outage, not_leading
from queue_manager.controller.tasks import Tasks
from queue_manager.store.records import ENDED, Action, OutboxEntry, WorkloadRow

log = structlog.get_logger(__name__)

PARALLEL_NOTES = 2
"""Events and annotations written at once: few, so that they never stand in the way of a start."""
NOTE_DELAY = 0.1
"""Seconds that events wait: the start goes first."""


class Notes:
    """`settled` is told the ids of outbox entries that are done, `relabelled` whose labels are on their way no more;
    `busy` tells whether jobs are being started or stopped; in an `outage` nothing is sent before its pause is over."""

    def __init__(
        self,
        cluster: Cluster,
        brain: Brain,
        clock: Clock,
        random: Random,
        settled: Callable[[set[int]], None],
        relabelled: Callable[[str], None],
        busy: Callable[[], bool],
        outage: Outage,
        component: str,
    ) -> None:
        self._cluster = cluster
        self._brain = brain
        self._clock = clock
        self._random = random
        self._settled = settled
        self._relabelled = relabelled
        self._component = component
        self._outage = outage
        self._slots = asyncio.Semaphore(PARALLEL_NOTES)
        self._tasks = Tasks()
        self.messages = Messages(cluster, brain, clock, random, self._slots, busy, outage)
        self._relabels: Counter[str] = Counter()

    def submit(self, entry: OutboxEntry, last: WorkloadRow | None) -> None:
        """Takes over an outbox row; `last` is the row it was decided with, for when the workload has ended since."""
        if entry.action is Action.ANNOTATE or (entry.action is Action.EVENT and not self._brain.tells_events()):
            # Annotations are asked for by older versions only: each object is held against its row when a term begins.
            self._settled({entry.id})
            return
        actions = {Action.EVENT: self._send_event, Action.RELABEL: self._relabel}
        if entry.action is Action.RELABEL:
            self._relabels[entry.uid] += 1
        self._tasks.spawn(self._with_retries(entry, actions[entry.action], last))

    def relabels(self, uid: str) -> bool:
        """Whether labels of the workload may still be on their way."""
        return self._relabels[uid] > 0

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self.messages.forget(uid)

    async def close(self) -> None:
        """Cancels every task; what they had not finished is still in the outbox."""
        await self._tasks.close()
        await self.messages.close()

    async def _with_retries(
        self,
        entry: OutboxEntry,
        action: Callable[[WorkloadRow, OutboxEntry], Awaitable[None]],
        last: WorkloadRow | None,
    ) -> None:
        backoff = Backoff(self._random, first=0.5, greatest=60.0)
        await self._clock.sleep(NOTE_DELAY)
        while True:
            pause = 0.0
            try:
                async with self._slots:
                    await self._outage.wait()
                    row = self._brain.row(entry.uid)
                    if row is None and last is not None and (entry.action is Action.EVENT or last.state in ENDED):
                        row = last
                    if row is not None and not self._brain.may_write():
                        raise not_leading()
                    if row is not None:
                        await action(row, entry)
                break
            except ApiError as error:
                if not error.transient and not (error.conflict and backoff.failures < 5):
                    log.info("not sent", workload=entry.uid, action=entry.action.value, error=str(error))
                    if entry.action is Action.RELABEL:
                        await self._tell_not_relabelled(entry, error)
                    break
                pause = backoff.next(error.retry_after)
            await self._clock.sleep(pause)
        if entry.action is Action.RELABEL:
            self._relabels -= Counter((entry.uid,))  # without what comes to zero
        self._settled({entry.id})
        if entry.action is Action.RELABEL:
            self._relabelled(entry.uid)

    async def _send_event(self, row: WorkloadRow, entry: OutboxEntry) -> None:
        """Creates the event, once only: its name is that of the outbox entry."""
        obj = self._brain.object_of(row)
        for resource, about in self._brain.kind_of(row).noted_on(obj) if obj is not None else ():
            await self._send_event_about(resource, about, row, entry)

    async def _send_event_about(self, resource: Resource, about: Object, row: WorkloadRow, entry: OutboxEntry) -> None:
        payload, component, now = entry.payload, self._component, self._clock.now()
        name = event_name(about, f"{row.uid[:8]}{entry.id:08x}")
        said = (payload["reason"], payload["message"], payload["type"])
        body = event_body(name, resource, about, *said, component, now)
        try:
            await self._cluster.create(EVENTS, row.namespace, body)
        except ApiError as error:
            if not error.conflict:
                raise
            # Sent before, and not noted as done: whoever sent it was killed.

    async def _relabel(self, row: WorkloadRow, entry: OutboxEntry) -> None:
        """Writes the labels that the row says its objects have yet to get, on what they are now."""
        obj = self._brain.object_of(row)
        for resource, found in carriers(obj, self._brain.kind_of(row)) if obj is not None else ():
            metadata = found["metadata"]
            said = labels_on(found)
            wanted = {r.key: r.after for r in row.relabels if lacks(r, said.get(r.key, ""), row)}
            if not wanted:
                continue
            versions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            body: Object = {"metadata": {**versions, "labels": wanted}}
            try:
                self._brain.observe(
                    resource,
                    await self._cluster.patch(resource, row.namespace, metadata["name"], body, PatchType.MERGE),
                )
            except ApiError as error:
                if error.conflict:
                    # Somebody was faster: decided anew from what it is now.
                    self._brain.observe(resource, await self._cluster.get(resource, row.namespace, metadata["name"]))
                if not error.not_found:
                    raise

    async def _tell_not_relabelled(self, entry: OutboxEntry, error: ApiError) -> None:
        """The row counts as if its labels were written; people have to know that they are not."""
        row = self._brain.row(entry.uid)
        if row is None or not row.relabels or not self._brain.tells_events():
            return
        labels = ", ".join(f"{relabel.key}={relabel.after}" for relabel in row.relabels)
        message = f"The API server refuses the label {labels}, which counts nonetheless: {error.message}"
        payload = {"reason": "RelabelRefused", "message": message, "type": "Warning"}
        try:
            await self._send_event(row, replace(entry, action=Action.EVENT, payload=payload))
        except ApiError as refused:
            log.info("not sent", workload=entry.uid, action="event", error=str(refused))
