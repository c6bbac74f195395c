"""Which pods of a running workload may be let through now, and where to: its row, its pods and the nodes decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.port import NODES, Object
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.resize import running_pods
from queue_manager.engine.workload import PodSet
from queue_manager.kinds.gates import is_held_back, next_ones, release, release_to
from queue_manager.kinds.kind import Kind, Lookup, Write
from queue_manager.kinds.pins import pinned_affinity, place_of
from queue_manager.kinds.slots import HOST, Place, Slots, seating, slots_of
from queue_manager.store.records import WorkloadRow

ANYWHERE = -1
"""The slot of a pod that may go wherever its template lets it."""


class Let(NamedTuple):
    """A pod (uid) to be let through to a slot, and the write that does it."""

    pod: str
    slot: int
    write: Write


@dataclass
class Found:
    """`there` are all pods of the workload, by uid. `held_up`: some wait for the node of their slot. `left` are pods
    that stay behind their gate although the workload runs, and why."""

    there: set[str]
    let: list[Let] = field(default_factory=list)
    held_up: bool = False
    left: list[tuple[Object, str]] = field(default_factory=list)


class Seats:
    """`pods` answers the pods of a workload, by its uid; `kind_of` the kind of a row's object; `shut` the nodes to
    which nobody of a workload is let through at present."""

    def __init__(
        self,
        lookup: Lookup,
        pods: Callable[[str], Sequence[Object]],
        kind_of: Callable[[WorkloadRow], Kind],
        shut: Callable[[str], Collection[str]] = lambda uid: (),
    ) -> None:
        self._shut = shut
        self._lookup = lookup
        self._pods = pods
        self._kind_of = kind_of

    def find(self, row: WorkloadRow, passed: Mapping[str, int]) -> Found:
        """Who may go where; `passed` are pods that this process has let through (uid -> slot)."""
        assert row.admission is not None
        pods = self._pods(row.uid)
        found = Found({pod["metadata"]["uid"] for pod in pods})
        if not any(is_held_back(pod) for pod in pods):
            return found
        kind = self._kind_of(row)
        by_name: dict[str, list[Object]] = {}
        for pod in pods:
            by_name.setdefault(kind.pod_set_of(pod), []).append(pod)
        wanted = {pod_set.name: pod_set for group in row.pod_groups for pod_set in group.pod_sets}
        for assigned in row.admission.admission.pod_sets:
            mine, pod_set = by_name.get(assigned.name, []), wanted.get(assigned.name)
            if assigned.pinned and assigned.domains is not None:
                self._pinned(found, row, assigned, pod_set, mine, passed)
                continue
            # Without domains it was adopted: its pods are behind a gate of ours where the database was lost meanwhile.
            # A topology gate that this admission did not ask for is one of an earlier start, which ends.
            limit = len(mine) if assigned.domains is None else 0
            if pod_set is not None and pod_set.elastic:
                limit = running_pods(pod_set, assigned)
            found.let += [Let(p["metadata"]["uid"], ANYWHERE, release(p)) for p in next_ones(mine, limit, passed)]
        return found

    def _pinned(
        self,
        found: Found,
        row: WorkloadRow,
        assigned: PodSetAssignment,
        pod_set: PodSet | None,
        pods: Sequence[Object],
        passed: Mapping[str, int],
    ) -> None:
        assert assigned.domains is not None
        slots = slots_of(assigned.levels, assigned.domains, pod_set.replica_size if pod_set is not None else 0)
        seats = seating(slots, pods, passed, lambda pod: place_of(pod, slots.levels, self._labels_of))
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, slot in seats.given.items():
            place = slots.places[slot]
            if not self._is_usable(slots, place, self._shut(row.uid)):
                # Once it is let through to a node it can't go anywhere else.
                found.held_up = True
                continue
            pod = by_uid[uid]
            affinity = pinned_affinity(pod["spec"].get("affinity"), slots.levels, place, self._node_named)
            found.let.append(Let(uid, slot, release_to(pod, slot, affinity)))
        if pod_set is None or not pod_set.elastic:
            # The pods that an elastic job lacks wait in the queue, and its own object says so.
            message = f"No place is left: {row.kind} {row.name} is admitted with {len(slots.places)} pods of"
            found.left += [(pod, f"{message} {assigned.name}, and others have them") for pod in seats.surplus]

    def _is_usable(self, slots: Slots, place: Place, shut: Collection[str]) -> bool:
        """Whether a pod that is sent to a node could start there now."""
        if slots.levels != (HOST,):
            return True
        name = self._node_named(place[0])
        node = self._lookup.get(NODES, "", name) if name not in shut else None
        return node is not None and is_ready(node) and not (node.get("spec") or {}).get("unschedulable")

    def _labels_of(self, name: str) -> Mapping[str, str] | None:
        node = self._lookup.get(NODES, "", name)
        return None if node is None else node["metadata"].get("labels") or {}

    def _node_named(self, host: str) -> str:
        """Nearly always the host label says the node's name."""
        if (self._labels_of(host) or {}).get(HOST) == host:
            return host
        nodes = self._lookup.list(NODES, "")
        named = (node["metadata"] for node in nodes if (node["metadata"].get("labels") or {}).get(HOST) == host)
        return next((metadata["name"] for metadata in named), host)
