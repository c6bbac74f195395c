"""As of what objects were read, so that they are not read again for the same answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from queue_manager.cluster.port import JOB_SETS, JOBS, Object, Resource
from queue_manager.controller.news import differs
from queue_manager.store.records import WorkloadRow

ALONE = frozenset({JOBS, JOB_SETS})
"""What is read off the object and collections whose events are all `others`; a TrainJob has a snapshot as well."""


@dataclass(frozen=True, slots=True)
class _Reading:
    version: str
    others: int
    row: WorkloadRow


def _counts(obj: Object) -> Object:
    """The status without its conditions: what is read of it are counts of pods."""
    return {name: value for name, value in (obj.get("status") or {}).items() if name != "conditions"}


def _read(row: WorkloadRow) -> tuple[object, ...]:
    """What of a row is from its object and may have been changed since, and what decides how it is read."""
    labels = row.local_queue, row.queue, row.priority_class, row.priority, row.may_preempt, row.preemptible
    return row.state, labels, row.relabels, row.user, row.groups, row.max_run_time, row.topology


class Readings:
    """Which state of its object each row says."""

    def __init__(self) -> None:
        self._known: dict[str, _Reading] = {}
        self._others = 0

    def others_changed(self) -> None:
        """Something else that readings depend on has changed: LimitRanges, namespaces, the configuration ..."""
        self._others += 1

    def note(self, row: WorkloadRow, obj: Object, resource: Resource) -> None:
        """The row, once it is committed, says what the object asks for as it is now."""
        if resource in ALONE and (version := obj["metadata"].get("resourceVersion", "")):
            self._known[row.uid] = _Reading(version, self._others, row)

    def follow(self, old: Object, new: Object) -> None:
        """The object is another one now: most often by our messages, or by conditions of its own controller."""
        known = self._known.get(new["metadata"].get("uid", ""))
        if known is None or known.version != old["metadata"].get("resourceVersion"):
            return
        if not differs({**new, "status": _counts(new)}, {**old, "status": _counts(old)}):
            self._known[new["metadata"]["uid"]] = replace(known, version=new["metadata"].get("resourceVersion", ""))

    def is_current(self, row: WorkloadRow, obj: Object) -> bool:
        """Whether reading the object again could only give the row."""
        known = self._known.get(row.uid)
        if known is None or not self.has_its_pods(row, obj):
            return False
        return row.inputs is known.row.inputs and _read(row) == _read(known.row)

    def has_its_pods(self, row: WorkloadRow, obj: Object) -> bool:
        """Whether the row has the pod sets that the object has now."""
        known = self._known.get(row.uid)
        if known is None or known.row.pod_groups is not row.pod_groups:
            return False  # not equal ones alone: the change with those that were read may have been refused
        return (known.version, known.others) == (obj["metadata"].get("resourceVersion"), self._others)

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._known.pop(uid, None)
