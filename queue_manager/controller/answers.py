"""What executors ask of the leader's term and tell it, answered from its picture."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.cluster.port import TRAIN_JOBS, Object, Resource
from queue_manager.controller.intake import resolved_again
from queue_manager.controller.news import differs
from queue_manager.controller.picture import Picture
from queue_manager.controller.reports import Reports
from queue_manager.kinds.kind import Kind, Lookup, Placement, Unresolvable
from queue_manager.store.records import WorkloadRow


class Answers:
    """The `Brain` of the executors. `valid` says whether the lease still holds, `touch` marks a workload to be looked
    at, `events` whether events are wanted."""

    def __init__(
        self,
        picture: Picture,
        reports: Reports,
        touch: Callable[[str], None],
        valid: Callable[[], bool],
        events: Callable[[], bool],
    ) -> None:
        self._picture = picture
        self._reports = reports
        self._touch = touch
        self._valid = valid
        self._events = events

    @property
    def lookup(self) -> Lookup:
        """The caches."""
        return self._picture.view

    def row(self, uid: str) -> WorkloadRow | None:
        """The row as last committed."""
        return self._picture.rows.get(uid)

    def kind_of(self, row: WorkloadRow) -> Kind:
        """The kind of the row's object."""
        return self._picture.kind_of(row)

    def object_of(self, row: WorkloadRow) -> Object | None:
        """The newest state known of the row's object; None when it is gone."""
        return self._picture.object_of(row)

    def placement_of(self, row: WorkloadRow) -> Placement:
        """What the pods of an admitted workload must carry."""
        return self._picture.placement_of(row)

    def live_pods(self, uid: str) -> int:
        """Pods that have not ended."""
        return self._picture.pods.live(uid)

    def unsettled(self, uid: str, obj: Object | None) -> str:
        """What can still make pods for the workload, in words; "" when nothing can."""
        return self._picture.unsettled(uid, obj)

    def report_refused(self, uid: str, message: str) -> None:
        """An executor found that the start is refused for good."""
        self._reports.refused(uid, message)

    def report_stop_trouble(self, uid: str, message: str) -> None:
        """An executor can't stop a workload, or not as usual."""
        self._reports.stop_trouble(uid, message)

    def report_drained(self, uid: str) -> None:
        """An executor proved that no pod is left."""
        if uid in self._picture.rows:
            self._picture.drained.add(uid)
            self._touch(uid)

    def observe(self, resource: Resource, obj: Object) -> None:
        """An answer of the API server to a write of ours."""
        view = self._picture.view
        if resource in view.reflectors:
            uid = obj["metadata"].get("uid", "")
            known = view.by_uid(resource, uid)
            view.observe(resource, obj)
            if known is not None:
                self._picture.readings.follow(known, obj)
            if known is None or differs(obj, known):
                self._touch(self._picture.owners.root(uid))

    def may_write(self) -> bool:
        """Whether the lease still holds."""
        return self._valid()

    def tells_events(self) -> bool:
        """Whether events are written on the objects."""
        return self._events()

    async def refresh(self, row: WorkloadRow, obj: Object) -> bool:
        """Before a start: whether the object still asks for what was admitted (by Trainer's snapshot, if any)."""
        view, kind = self._picture.view, self.kind_of(row)
        if self._picture.readings.has_its_pods(row, obj):
            return True
        if kind.resource == TRAIN_JOBS:
            await view.read_snapshot(obj, ask_again=True)
        try:
            resolved = kind.resolve(obj, view)
        except Unresolvable:
            return True
        if resolved_again(row, resolved):
            return True
        self.report_refused(row.uid, "its pod sets changed after it was admitted")
        return False
