"""Plain pods as workloads: collections of objects that no API server has, made from pods and rows.

A pod that stands alone is its own workload. A group has no object, so it is known by a uid that is made of its name and
its oldest pod when it is first seen; from then on its row keeps it, for as long as it lives (docs/decisions/0008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid5

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.clock import rfc3339
from queue_manager.cluster.pods import is_gone, is_leaving
from queue_manager.cluster.port import Object, Resource
from queue_manager.controller.rows import Rows
from queue_manager.controller.view import version_of
from queue_manager.engine.workload import by_name
from queue_manager.kinds.kind import PREFIX, QUEUE_LABEL, Lookup
from queue_manager.kinds.plain_pods import LONE_PODS, PLAIN_GROUPS
from queue_manager.kinds.plain_shapes import (
    POD_GROUP_LABEL,
    POD_GROUP_SIZE,
    admission_of,
    age,
    group_of,
    is_candidate,
    runs,
)
from queue_manager.kinds.registry import managed_ancestor
from queue_manager.store.deadlines import STARTED, made_anew_by
from queue_manager.store.records import Change, State, WorkloadRow
from queue_manager.store.wishes import STICKY_HOLDS

_NAMES = UUID("5b0b9a3c-7c1e-4d0e-9b52-6f1d0c7a2e41")
Key = tuple[str, str]
"""(namespace, name) of a group."""


class PlainGroups:
    """Told of every pod by `note`. `pod_by_uid` answers from the caches."""

    def __init__(
        self,
        lookup: Lookup,
        pod_by_uid: Callable[[str], Object | None],
        rows: Rows,
        is_managed: Callable[[Object], bool],
    ) -> None:
        self._lookup = lookup
        self._pod = pod_by_uid
        self._rows = rows
        self._is_managed = is_managed
        self._members: dict[Key, dict[str, None]] = {}
        self._key_of: dict[str, Key] = {}
        self._lone: dict[str, None] = {}
        self._candidates_of: dict[str, dict[str, None]] = {}
        self._speaks: dict[str, bool | None] = {}
        self._oldest: dict[Key, str] = {}
        self._current: dict[Key, str] = {}
        self._named: dict[str, Key] = {}

    # --- what happens to pods ---------------------------------------------------------------------------------------

    def note(self, pod: Object, *, deleted: bool) -> set[str]:
        """A pod as it is now; answers the uids of the workloads that it belongs to, or did."""
        uid = pod["metadata"]["uid"]
        touched = {self._forget(uid)}
        if deleted and (owner := controller_of(pod)) is not None and owner["uid"] in self._candidates_of:
            self._candidates_of[owner["uid"]].pop(uid, None)
            if not self._candidates_of[owner["uid"]]:
                del self._candidates_of[owner["uid"]]
                self._speaks.pop(owner["uid"], None)
        if not deleted and self.is_plain(pod):
            if (key := self._key(pod)) is not None:
                self._key_of[uid] = key
                self._members.setdefault(key, {})[uid] = None
                self._compare(key, pod)
                touched.add(self.name(key))
            else:
                self._lone[uid] = None
                touched.add(uid)
        return touched - {""}

    def _key(self, pod: Object) -> Key | None:
        """The group that a pod is of, None where it is alone. Whatever its labels say by now, one that was let through
        stays where it was."""
        row = self._rows.get(admission_of(pod)[0])
        if row is not None:
            return (row.namespace, row.name) if row.kind == PLAIN_GROUPS.kind else None
        name = group_of(pod)
        return (pod["metadata"]["namespace"], name) if name else None

    def is_plain(self, pod: Object) -> bool:
        """Whether a pod asks for a queue and nobody above it does; keeps in mind whom to ask again."""
        if not is_candidate(pod):
            return False
        owner, speaks = controller_of(pod), self._is_spoken_for(pod)
        if owner is not None:
            self._candidates_of.setdefault(owner["uid"], {})[pod["metadata"]["uid"]] = None
            if self._speaks.setdefault(owner["uid"], speaks) is not speaks:
                self._speaks[owner["uid"]] = None  # Others of its pods are known by another answer.
        return not speaks

    def _is_spoken_for(self, pod: Object) -> bool:
        return managed_ancestor(pod, self._lookup, self._is_managed) is not None

    def reconsider(self, owners: Sequence[str]) -> list[Object]:
        """Pods of these owners that have become plain ones, or are no longer: an owner has been seen, or changed. All
        pods of one owner have the same above them, so one of them is asked for all."""
        if not self._candidates_of:
            return []
        found: list[Object] = []
        for owner in owners:
            pods = (pod for uid in self._candidates_of.get(owner, ()) if (pod := self._pod(uid)) is not None)
            first = next(pods, None)
            if first is None or (speaks := self._is_spoken_for(first)) is self._speaks.get(owner):
                continue
            self._speaks[owner] = speaks
            found += [pod for pod in (first, *pods) if self.is_plain(pod) is not self._is_known(pod["metadata"]["uid"])]
        return found

    def _is_known(self, uid: str) -> bool:
        return uid in self._key_of or uid in self._lone

    def _forget(self, uid: str) -> str:
        """Takes a pod out; answers the workload it was of."""
        if uid in self._lone:
            del self._lone[uid]
            return uid
        key = self._key_of.pop(uid, None)
        if key is None:
            return ""
        pods = self._members[key]
        del pods[uid]
        if self._oldest.get(key) == uid:
            del self._oldest[key]
        if not pods:
            del self._members[key]
            self._oldest.pop(key, None)
        return self.name(key)

    # --- whose a pod is ---------------------------------------------------------------------------------------------

    def name(self, key: Key) -> str:
        """The uid of the group of that name as it is now: its row's, else one of its oldest pod's; "" without pods."""
        found = self._rows.named(PLAIN_GROUPS.kind, *key) or self._made_anew(key)
        before = self._current.pop(key, "")
        if found != before:
            self._named.pop(before, None)
        if found:
            self._current[key] = found
            self._named[found] = key
        return found

    def _made_anew(self, key: Key) -> str:
        if key not in self._oldest and key in self._members:
            oldest = min(self._beginning(key), key=age, default=None)
            self._oldest[key] = oldest["metadata"]["uid"] if oldest is not None else ""
        uid = self._oldest.get(key, "")
        return str(uuid5(_NAMES, "/".join((*key, uid)))) if uid else ""

    def _compare(self, key: Key, pod: Object) -> None:
        """A pod has come: the oldest of its group is known without a look at all of them."""
        if key not in self._oldest or not _begins(pod):
            return
        oldest = self._pod(self._oldest[key]) if self._oldest[key] else None
        if oldest is None or age(pod) < age(oldest):
            self._oldest[key] = pod["metadata"]["uid"]

    def _beginning(self, key: Key) -> list[Object]:
        """Pods that may begin a group: those that an earlier one left behind are none of it."""
        return [pod for pod in self._all(key) if _begins(pod)]

    def _all(self, key: Key) -> list[Object]:
        return [pod for uid in self._members.get(key, ()) if (pod := self._pod(uid)) is not None]

    def root(self, pod: Object) -> str | None:
        """The uid of the workload that a plain pod is of, "" where that is over; None for pods that are not plain."""
        uid = pod["metadata"]["uid"]
        if uid in self._lone:
            return str(uid)
        key = self._key_of.get(uid)
        if key is None:
            return None
        current = self.name(key)
        return current if admission_of(pod)[0] in ("", current) else ""

    def siblings(self, row: WorkloadRow) -> list[Object]:
        """All pods of the name of a row's group: whose they are may change with the row."""
        return self._all((row.namespace, row.name)) if row.kind == PLAIN_GROUPS.kind else []

    def pods_of(self, uid: str) -> list[Object]:
        """The pods of a workload of plain pods, those that have ended under it included; none for other workloads."""
        row = self._rows.get(uid)
        if uid in self._lone:
            pod = self._pod(uid)
            return [] if pod is None else [pod]
        if row is None:
            key = self._named.get(uid)
            return self._beginning(key) if key is not None and self.name(key) == uid else []
        return [pod for pod in self.siblings(row) if _is_of(pod, row)]

    # --- the objects ------------------------------------------------------------------------------------------------

    def collections(self) -> Mapping[Resource, Collection]:
        """What the view shows of them."""
        return {
            PLAIN_GROUPS: Collection(self, PLAIN_GROUPS, self._groups),
            LONE_PODS: Collection(self, LONE_PODS, lambda: iter(list(self._lone))),
        }

    def _groups(self) -> Iterator[str]:
        yield from [uid for key in list(self._members) if (uid := self.name(key))]

    def kind_of(self, uid: str) -> Resource:
        """Which of the collections a workload of plain pods is in."""
        row = self._rows.get(uid)
        alone = uid in self._lone if row is None else row.kind == LONE_PODS.kind
        return LONE_PODS if alone else PLAIN_GROUPS

    def object_of(self, uid: str) -> Object | None:
        """The object of a workload of plain pods; None without any pod, unless it was stopped."""
        row = self._rows.get(uid)
        if pods := self.pods_of(uid):
            return _object(uid, self.kind_of(uid), pods, row)
        if row is None or row.kind != PLAIN_GROUPS.kind or not _was_stopped(row):
            return None
        return _object(uid, PLAIN_GROUPS, (), row)


class Collection:
    """One of the collections, as the view asks for them."""

    def __init__(self, groups: PlainGroups, resource: Resource, uids: Callable[[], Iterator[str]]) -> None:
        self._groups = groups
        self._resource = resource
        self._uids = uids

    def by_uid(self, uid: str) -> Object | None:
        """One object by uid; None when absent."""
        return self._groups.object_of(uid) if self._groups.kind_of(uid) == self._resource else None

    def all(self) -> Iterator[Object]:
        """Every object."""
        return (obj for uid in self._uids() if (obj := self.by_uid(uid)) is not None)

    def uids(self) -> Iterator[str]:
        """The uids of all of them."""
        return self._uids()


def _begins(pod: Object) -> bool:
    return not is_gone(pod) and not is_leaving(pod) and not admission_of(pod)[0]


def emptied(row: WorkloadRow, obj: Object, now: datetime) -> Change | None:
    """Notes since when a group that waits, and that nobody holds, has had no pod; None where that is noted."""
    empty = row.kind == PLAIN_GROUPS.kind and row.reason not in STICKY_HOLDS and not obj["spec"]["pods"]
    since = (row.emptied_at or now) if empty else None
    return None if since == row.emptied_at else Change(row=replace(row, emptied_at=since))


def is_abandoned(row: WorkloadRow, obj: Object, now: datetime) -> bool:
    """Whether nobody has made new pods in time for a group that was stopped: it counts as deleted."""
    until = made_anew_by(row)
    return until is not None and now >= until and not obj["spec"]["pods"]


def _is_of(pod: Object, row: WorkloadRow) -> bool:
    """Whether a pod of a group's name belongs to the group of that row."""
    uid = admission_of(pod)[0]
    if uid or not is_gone(pod):
        return uid in ("", row.uid)
    # It ran without a gate, and ended: one of an earlier group's is older than this one.
    return row.admission is not None and age(pod)[0] >= rfc3339(row.created_at)


def _was_stopped(row: WorkloadRow) -> bool:
    """Whether its pods were deleted by us, and it is to run again."""
    waits = (State.WAITING, State.HELD, State.DEACTIVATED)
    return row.attempt > 0 and (row.state in waits or (row.state is State.DRAINING and row.after_drain in waits))


def _object(uid: str, resource: Resource, pods: Sequence[Object], row: WorkloadRow | None) -> Object:
    oldest = min(pods, key=lambda pod: (is_gone(pod), age(pod)), default=None)
    given = _as_noted(row) if oldest is None and row is not None else oldest or {}
    alone = resource == LONE_PODS
    metadata = {
        **{key: value for key, value in given["metadata"].items() if key in ("namespace", "labels", "annotations")},
        "name": given["metadata"]["name"] if alone or oldest is None else row.name if row else group_of(given),
        "uid": uid,
        "creationTimestamp": rfc3339(row.created_at) if row is not None else given["metadata"]["creationTimestamp"],
        "resourceVersion": str(max((version_of(pod) for pod in pods), default=0)),
    }
    if row is not None and not alone:
        metadata["labels"] = {**(metadata.get("labels") or {}), POD_GROUP_LABEL: row.name}
    started = row is not None and row.state in STARTED
    spec = {
        "pods": list(pods),
        "suspend": not started and not any(runs(pod) for pod in pods),
        "stopped": row is not None and _was_stopped(row),
        "attempt": row.attempt if row is not None else 0,
        "admitted": _admitted(row),
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _admitted(row: WorkloadRow | None) -> Mapping[str, tuple[int, int, int]]:
    if row is None or row.admission is None:
        return {}
    wanted, assigned = by_name(row.pod_groups), row.admission.admission.pod_sets
    return {p.name: (wanted[p.name].count if p.name in wanted else p.count, p.count, p.reclaimed) for p in assigned}


def _as_noted(row: WorkloadRow) -> Object:
    """What the row knows of a group without pods."""
    size = sum(pod_set.count for pod_set in by_name(row.pod_groups).values())
    labels = {QUEUE_LABEL: row.local_queue, POD_GROUP_LABEL: row.name}
    annotations = {POD_GROUP_SIZE: str(max(size, 1)), PREFIX + "user": row.user}
    metadata = {"namespace": row.namespace, "name": row.name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata}
