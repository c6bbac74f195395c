"""Which pods of a running workload may be let through now, and where to: its row, its pods and the nodes decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.pods import is_gone, is_leaving
from queue_manager.cluster.port import NODES, Object
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.resize import running_pods
from queue_manager.engine.workload import PodSet, by_name
from queue_manager.kinds.gates import is_held_back, let_through, next_ones, release, release_to
from queue_manager.kinds.kind import Additions, Kind, Lookup, Placement, PodPlacement, Write
from queue_manager.kinds.pins import pinned_affinity, place_of
from queue_manager.kinds.slots import Place, Slots, seating, slot_of, slots_of
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


@dataclass(frozen=True, slots=True)
class _Party:
    """The pods of one pod set, and what it was admitted with. `pods` may have ended."""

    row: WorkloadRow
    kind: Kind
    placement: PodPlacement
    assigned: PodSetAssignment
    pod_set: PodSet | None
    pods: Sequence[Object]

    @property
    def _most(self) -> int | None:
        return None if self.pod_set is None else self.kind.most_running(self.pod_set, self.assigned, self.pods)

    @property
    def is_limited(self) -> bool:
        """Whether it is for us to see that no more pods run than may."""
        return self._most is not None

    @property
    def limit(self) -> int:
        """How many may have been let through and not have ended."""
        if self.pod_set is not None and self.pod_set.elastic:
            return running_pods(self.pod_set, self.assigned)
        if (most := self._most) is not None:
            return most
        # Without domains it was adopted: its pods are behind a gate of ours where the database was lost meanwhile. A
        # topology gate that this admission did not ask for is one of an earlier start, which ends.
        return 0 if self.assigned.domains is not None and not self.assigned.pinned else len(self.pods)

    def additions(self, pod: Object) -> Additions:
        """What a pod gets beside its place."""
        return self.kind.passage(pod, self.placement, f"{self.row.uid}/{self.row.attempt}")

    def spent(self) -> frozenset[int]:
        """Slots of pods that have ended and are not replaced: where every pod has one of its own."""
        pod_set, assigned = self.pod_set, self.assigned
        if pod_set is None or not self.is_limited or assigned.count + assigned.reclaimed < pod_set.count:
            return frozenset()
        slots = (slot_of(pod) for pod in self.pods if self.kind.keeps_slot(pod, self.row.uid, self.row.attempt))
        return frozenset(slot for slot in slots if slot is not None)

    def full(self) -> str:
        """Why a pod stays behind its gate."""
        row, assigned = self.row, self.assigned
        admitted = f"{row.kind} {row.name} is admitted with {assigned.count} pods of {assigned.name}"
        return f"No place is left: {admitted}, and others have them"


class Seats:
    """`pods` answers the pods of a workload, by its uid; `kind_of` the kind of a row's object, `placement_of` what its
    pods must carry; `node_named` the node that has a host name; `shut` the nodes to which nobody of a workload is let
    through at present."""

    def __init__(
        self,
        lookup: Lookup,
        pods: Callable[[str], Sequence[Object]],
        kind_of: Callable[[WorkloadRow], Kind],
        placement_of: Callable[[WorkloadRow], Placement],
        node_named: Callable[[str], str],
        shut: Callable[[str], Collection[str]] = lambda uid: (),
    ) -> None:
        self._shut = shut
        self._node_named = node_named
        self._lookup = lookup
        self._pods = pods
        self._kind_of = kind_of
        self._placement_of = placement_of

    def find(self, row: WorkloadRow, passed: Mapping[str, int]) -> Found:
        """Who may go where; `passed` are pods that this process has let through (uid -> slot)."""
        assert row.admission is not None
        pods = self._pods(row.uid)
        found = Found({pod["metadata"]["uid"] for pod in pods})
        if not any(is_held_back(pod) for pod in pods):
            return found
        kind, placement = self._kind_of(row), self._placement_of(row)
        pods_of: dict[str, list[Object]] = {}
        for pod in pods:
            pods_of.setdefault(kind.pod_set_of(pod), []).append(pod)
        wanted = by_name(row.pod_groups)
        for assigned in row.admission.admission.pod_sets:
            mine, pod_set = pods_of.get(assigned.name, []), wanted.get(assigned.name)
            party = _Party(row, kind, placement[assigned.name], assigned, pod_set, mine)
            if assigned.pinned and assigned.domains is not None:
                self._pinned(found, party, passed)
                continue
            coming = next_ones(mine, party.limit, passed)
            found.let += [Let(p["metadata"]["uid"], ANYWHERE, release(p, party.additions(p))) for p in coming]
            if party.is_limited and not any(is_leaving(p) for p in mine):
                known = {p["metadata"]["uid"] for p in (*coming, *let_through(mine, passed))}
                found.left += [(p, party.full()) for p in mine if p["metadata"]["uid"] not in known and not is_gone(p)]
        return found

    def _pinned(self, found: Found, party: _Party, passed: Mapping[str, int]) -> None:
        assigned, pod_set, pods = party.assigned, party.pod_set, party.pods
        assert assigned.domains is not None
        slots = slots_of(assigned.levels, assigned.domains, pod_set.replica_size if pod_set is not None else 0)
        spent = party.spent()
        seats = seating(slots, pods, passed, lambda pod: place_of(pod, slots.levels, self._labels_of), spent)
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        free = max(0, party.limit - len(let_through(pods, passed))) if party.is_limited else len(seats.given)
        for uid, slot in list(seats.given.items())[:free]:
            place = slots.places[slot]
            if not self._is_usable(slots, place, self._shut(party.row.uid)):
                # Once it is let through to a node it can't go anywhere else.
                found.held_up = True
                continue
            pod = by_uid[uid]
            affinity = pinned_affinity(pod["spec"].get("affinity"), slots.levels, place, self._node_named)
            found.let.append(Let(uid, slot, release_to(pod, slot, affinity, party.additions(pod))))
        if pod_set is None or not pod_set.elastic:
            # The pods that an elastic job lacks wait in the queue, and its own object says so.
            found.left += [(pod, party.full()) for pod in seats.surplus]

    def _is_usable(self, slots: Slots, place: Place, shut: Collection[str]) -> bool:
        """Whether a pod that is sent to a node could start there now."""
        if slots.levels != (HOSTNAME,):
            return True
        name = self._node_named(place[0])
        node = self._lookup.get(NODES, "", name) if name not in shut else None
        return node is not None and is_ready(node) and not (node.get("spec") or {}).get("unschedulable")

    def _labels_of(self, name: str) -> Mapping[str, str] | None:
        node = self._lookup.get(NODES, "", name)
        return None if node is None else node["metadata"].get("labels") or {}
