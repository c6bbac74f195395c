"""What has to be looked at: marks made by watch events, own writes and passing time, taken by the leader's loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from random import Random

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import (
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    TRAIN_JOBS,
    EventType,
    Object,
    Resource,
)
from queue_manager.controller.kubernetes_groups import OBJECTS as GROUP_OBJECTS
from queue_manager.controller.news import differs
from queue_manager.controller.picture import Picture
from queue_manager.controller.pod_table import read_pod
from queue_manager.controller.timers import Timers
from queue_manager.controller.view import is_of_a_pod
from queue_manager.kinds.registry import KINDS
from queue_manager.store.records import State, WorkloadRow

SLICE = 500
"""Workloads that are looked at without a break: who else uses the event loop, as the lease does, comes in between."""
AT_ONCE = 2000
"""Workloads that are all looked at before anything is decided: a few seconds. Of more, some may be decided about by
what they asked for when they were last looked at; who is admitted by that is looked at before it starts."""
LONGEST_PAUSE = 60.0
"""Seconds after which the loop looks round although nothing happened."""
CHILDREN = (JOBS, JOB_SETS)
CLAIMS = (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
WITH_ECHOES = frozenset({NODES, TRAIN_JOBS, *CHILDREN})


class Inbox:
    """`workloads` are uids, of objects or rows, to be looked at before anything is decided; a sweep over all of them
    has a SLICE of its own in each look. `nodes` are names. `events` is set while there is something to do."""

    def __init__(self, picture: Picture, clock: Clock, random: Random) -> None:
        self.workloads: set[str] = set()
        self.nodes: set[str] = set()
        self.events = asyncio.Event()
        self._picture = picture
        self._clock = clock
        self._swept: deque[str] = deque()
        self._later: set[str] = set()
        self._later_at = 0.0
        self.timers = Timers()
        self._later_pauses = Backoff(random, first=1.0, greatest=LONGEST_PAUSE)
        self._drains_at = 0.0

    @property
    def has_later(self) -> bool:
        """Whether something could not be looked at and waits for its next try."""
        return bool(self._later)

    @property
    def sweeping(self) -> bool:
        """Whether a sweep is not through yet."""
        return bool(self._swept)

    def take(self) -> list[str]:
        """The workloads to look at now, by uid, with the next ones of a sweep."""
        taken, self.workloads = self.workloads, set()
        taken.update(self._swept.popleft() for _ in range(min(SLICE, len(self._swept))))
        if self._swept:
            self.events.set()
        return sorted(taken)

    def take_nodes(self) -> set[str]:
        """The nodes to look at now."""
        taken, self.nodes = self.nodes, set()
        return taken

    def take_used(self) -> set[str]:
        """The nodes of which nobody's pods take something else than before."""
        taken = set(self._picture.pods.dirty_nodes)
        self._picture.pods.dirty_nodes.clear()
        return taken

    def touch(self, uid: str) -> None:
        """Marks one workload, or nothing for ""."""
        if uid:
            self.workloads.add(uid)
            self.events.set()

    def touch_all(self, uids: Iterable[str]) -> None:
        """Marks these workloads."""
        for uid in uids:
            self.touch(uid)

    def touch_where(self, wanted: Callable[[WorkloadRow], bool]) -> None:
        """Marks the workloads whose rows are wanted."""
        self.workloads.update(uid for uid, row in self._picture.rows.items() if wanted(row))

    def sweep(self, *, at_once: bool = False) -> None:
        """Looks at everything again: the safety net under the events. Decisions go on meanwhile, unless `at_once` or
        where there is little."""
        rows = self._picture.rows
        found = {uid for kind in KINDS for uid in self._picture.view.uids(kind.resource)}
        if at_once or len(rows) <= AT_ONCE:
            self.workloads |= found | rows.keys()
        else:
            # Nobody is stopped for a job that is gone.
            self.workloads |= rows.keys() - found
            # Who has come since is not in the database yet, and may go before all who wait.
            waiting = sorted(rows.values(), key=lambda row: (-row.priority, row.created_at, row.uid))
            self._swept = deque([*sorted(found - rows.keys()), *(row.uid for row in waiting)])
        self.events.set()

    def look_later(self, uids: Collection[str]) -> None:
        """What could not be looked at is marked again after a pause that grows."""
        if not uids:
            if not self._later:
                self._later_pauses.reset()
            return
        if not self._later:
            self._later_at = self._clock.monotonic() + self._later_pauses.next()
        self._later.update(uids)

    def on_event(self, resource: Resource, kind: EventType, new: Object | None, old: Object | None) -> None:
        """A watch event, as reflectors hand it over."""
        obj = new or old
        assert obj is not None
        if resource != PODS and resource not in WITH_ECHOES:
            self._picture.others_changed()
        elif resource in CHILDREN and new and old:
            self._picture.readings.follow(old, new)
        if resource == PODS:
            self.pod_event(obj, deleted=kind is EventType.DELETED)
            if not (
                self._picture.pods.dirty_workloads
                or self._picture.pods.dirty_bindings
                or self._picture.pods.dirty_nodes
            ):
                return
        elif resource in WITH_ECHOES and kind is EventType.MODIFIED and new and old and not differs(new, old):
            return
        elif resource in GROUP_OBJECTS:
            uid = self._picture.kubernetes_groups.note(resource, kind, obj, old)
            self.touch(uid if uid in self._picture.rows else "")  # Who has yet to come is looked at then.
            return
        elif resource == NODES:
            self.nodes.add(obj["metadata"]["name"])
        elif resource in CHILDREN or resource == TRAIN_JOBS:
            self._job_event(obj, deleted=kind is EventType.DELETED)
        elif resource in (NAMESPACES, LIMIT_RANGES):
            namespace = obj["metadata"].get("namespace") or obj["metadata"]["name"]
            self.touch_where(lambda row: row.namespace == namespace)
            if resource == NAMESPACES:
                self._touch_jobs_of(namespace)
        elif resource in CLAIMS:
            if kind is EventType.MODIFIED or is_of_a_pod(obj):
                return  # what a claim asks for never changes
            namespace = obj["metadata"]["namespace"]
            self.touch_where(lambda row: row.admission is None and row.namespace == namespace)
        else:
            self.touch_where(lambda row: row.admission is None)
        self.events.set()

    def _touch_jobs_of(self, namespace: str) -> None:
        for kind in KINDS:
            self.workloads.update(obj["metadata"]["uid"] for obj in self._picture.view.list(kind.resource, namespace))

    def _job_event(self, obj: Object, *, deleted: bool) -> None:
        uid = obj["metadata"]["uid"]
        if self._picture.owners.learn(obj):
            root = self._picture.owners.root(uid)
            for pod in self._picture.pods.pods_of(uid):
                self._picture.place_pod(pod, root)
        for candidate in self._picture.plain.reconsider((uid, *self._picture.owners.below(uid))):
            self.pod_event(candidate, deleted=False)
        root = self._picture.owners.root(uid)
        if deleted and root not in self._picture.rows:
            self._picture.owners.drop(uid)
        self.touch(root)

    def pod_event(self, obj: Object, *, deleted: bool) -> None:
        """A pod as it is now."""
        for uid in self._picture.plain.note(obj, deleted=deleted):
            self.touch(uid)
        if deleted:
            self._picture.pods.remove(obj["metadata"]["uid"])
        else:
            self._picture.place_pod(read_pod(obj), self._picture.root_of(obj))

    def take_due(self) -> None:
        """Marks what could not be looked at before, and once in a while what drains: time alone may release it."""
        now = self._clock.monotonic()
        if self._later and now >= self._later_at:
            self.workloads |= self._later
            self._later.clear()
        self.workloads |= self.timers.due(self._clock.now()) & self._picture.rows.keys()
        if now >= self._drains_at:
            self._drains_at = now + LONGEST_PAUSE
            self.touch_where(lambda row: row.state is State.DRAINING)

    def pause(self) -> float:
        """Seconds until something is to be looked at again, a minute at most."""
        pause = min(LONGEST_PAUSE, self._later_at - self._clock.monotonic()) if self._later else LONGEST_PAUSE
        if (when := self.timers.next()) is not None:
            pause = min(pause, (when - self._clock.now()).total_seconds() + 0.001)
        return pause
