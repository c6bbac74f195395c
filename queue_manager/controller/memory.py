"""What a committed row changes in the memory of the leader."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.cluster.port import Object
from queue_manager.controller.executor import Executors
from queue_manager.controller.inbox import Inbox
from queue_manager.controller.lifecycle import next_look
from queue_manager.controller.picture import Picture
from queue_manager.controller.pod_gates import PodGates
from queue_manager.controller.reconciler import Reconciler
from queue_manager.store.records import CHARGED, ENDED, State, WorkloadRow


class Memory:
    """Keeps picture, inbox and whoever works on a workload in step with its row."""

    def __init__(
        self, picture: Picture, inbox: Inbox, reconciler: Reconciler, executors: Executors, gates: PodGates
    ) -> None:
        self._picture = picture
        self._inbox = inbox
        self._reconciler = reconciler
        self._executors = executors
        self._gates = gates
        self._back: set[str] = set()

    def load(self, row: WorkloadRow) -> None:
        """A row as read when the term begins; the engine is told later, when all caches are filled."""
        self._picture.rows[row.uid] = row
        self.time(row)

    def time(self, row: WorkloadRow) -> None:
        """Sees to it that the workload is looked at when time alone may change it."""
        self._picture.note_readiness(row)
        self._inbox.timers.put(row.uid, next_look(row, self._picture.compiled.settings))

    def apply(self, row: WorkloadRow, *, planned: bool) -> None:
        """A row as committed; the engine knows already what it has `planned` itself."""
        picture, old = self._picture, self._picture.rows.get(row.uid)
        if row.state in ENDED:
            picture.tell_engine(old, row)
            picture.pods.give_up(row.uid)
            self.forget(row.uid)
            return
        picture.rows[row.uid] = row
        self.time(row)
        if row.state is State.WAITING and old is not None and old.state is not State.WAITING:
            self._back.add(row.uid)
        if old is None:
            for pod in picture.pods.pods_of(row.uid):
                picture.place_pod(pod, row.uid)
            self._place(picture.plain.siblings(row))
        if not planned:
            picture.tell_engine(old, row)
        elif row.admission is not None:
            picture.bind(row)
        if row.admission is None:
            picture.sites.put(row.uid, set())
        picture.pods.charge(row.uid, row.state in CHARGED)
        if old is not None and old.state is State.DRAINING and row.state is not State.DRAINING:
            picture.pods.give_up(row.uid)
        if row.state not in CHARGED or (old is not None and old.attempt != row.attempt):
            picture.drained.discard(row.uid)
        resized = old is not None and old.admission != row.admission
        if old is None or old.state is not row.state or old.after_drain is not row.after_drain or resized:
            self._inbox.touch(row.uid)
        self._reconciler.reports.settled(row)
        self._executors.changed(old, row)

    def read_again(self, uid: str, row: WorkloadRow | None) -> None:
        """A row as the store has it, None where it is gone: somebody else has written it."""
        if row is None:
            self.forget(uid)
        else:
            self._picture.tell_engine(self._picture.rows.get(uid), row)
            self._picture.rows[uid] = row
            self._picture.pods.charge(uid, row.state in CHARGED)
            self.time(row)
            self._executors.changed(None, row)
        self._inbox.touch(uid)

    def forget(self, uid: str) -> None:
        """The workload has ended, or its row is gone."""
        row = self._picture.rows.get(uid)
        owners = (uid, *sorted(self._picture.owners.below(uid)))
        self._picture.forget(uid)
        self._inbox.timers.put(uid, None)
        self._reconciler.forget(uid)
        self._executors.forget(uid)
        self._gates.forget(uid)
        if row is not None:
            self._place(self._picture.plain.siblings(row))
        # It spoke for all pods below it for as long as it was known.
        self._place(self._picture.plain.reconsider(owners))

    def _place(self, pods: Iterable[Object]) -> None:
        """Whose these pods are has changed with a row."""
        for pod in pods:
            self._inbox.pod_event(pod, deleted=False)

    def take_back(self) -> list[str]:
        """Who waits again since this was asked last, by uid."""
        back, self._back = sorted(self._back), set()
        return back
