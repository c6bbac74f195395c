"""Nodes that fail under a running gang (issue 5): other places for all its lost pods at once, else it waits for some
time and then gives up its admission as a whole.

Decided from the row, the pods and the nodes as they are now. Nobody's pods are deleted: what is left on a lost node is
Kubernetes' to end, and the pods that its controllers make instead go to the new places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from queue_manager.cluster.port import NODES, PODS
from queue_manager.config.compiled import Settings
from queue_manager.config.human import duration
from queue_manager.config.human import moment as at
from queue_manager.controller.coming_back import come_back
from queue_manager.controller.lifecycle import deactivate
from queue_manager.controller.node_health import Ailment, closed
from queue_manager.controller.picture import Picture
from queue_manager.controller.transitions import NODES_RECOVERED, Facts, drain, event
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.resize import running_pods
from queue_manager.engine.workload import PodSet, Toleration, by_name
from queue_manager.kinds.pins import place_of
from queue_manager.store.deadlines import replaced_by
from queue_manager.store.records import Change, State, WorkloadRow
from queue_manager.store.times import to_microseconds

NODE_FAILURES = "NodeFailures"
"""Cause of an eviction, as in Kueue."""
WAITING_FOR_REPLACEMENT = "WaitingForReplacement"
NODES_REPLACED = "NodesReplaced"
MOST_NAMED = 8
"""Nodes named in a message."""
CANT_BE_MOVED = "pods were let through to them already, and can't be sent elsewhere"
FULL = Ailment("full", lost=False)
CONTESTED = Ailment("being cleared for other pods by kube-scheduler", lost=False)


@dataclass(frozen=True, slots=True)
class Places:
    """Places of one pod set on nodes: how many are `planned`, how many pods are there to stay (`live`), how many more
    should be (`missing`). Not pinned: its pods may be on other nodes than planned. `there`: nodes with any of them."""

    name: str
    pinned: bool
    planned: Mapping[str, int]
    there: frozenset[str]
    live: Mapping[str, int]
    missing: int
    tolerations: tuple[Toleration, ...] = ()

    def open(self) -> Iterator[str]:
        """Nodes with a place for a pod that is missing."""
        for name, count in self.planned.items():
            if self.missing > 0 and count > self.live.get(name, 0):
                yield name


@dataclass
class Trouble:
    """Nodes on which pods have lost their places, and why; `lost` is what the engine is to avoid. `fallen` are lost
    nodes with pods that kube-scheduler put there although others were planned, which are `left` for them now. On
    `stranded` ones pods were sent through their gate that never got there: they can't be sent elsewhere."""

    nodes: dict[str, Ailment] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    fallen: dict[str, Ailment] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    stranded: dict[str, Ailment] = field(default_factory=dict)


class NodeFailures:
    """Asked for each workload that is admitted, in rounds that end with a commit: one of them moves at most."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._told: dict[str, frozenset[str]] = {}
        self._moves = False
        self._postponed: set[str] = set()

    def begin(self) -> set[str]:
        """A new round of looks, after a commit; answers who was not looked at in the last one."""
        postponed, self._postponed, self._moves = self._postponed, set(), False
        return postponed

    def change_of(self, row: WorkloadRow, facts: Facts, settings: Settings) -> Change | None:
        """Other places, the wait for some, its end one way or the other; None when all is well or nothing is new."""
        assert row.admission is not None
        if row.uid in self._picture.sites.suspects and (change := come_back(row, self._picture)) is not None:
            return change
        trouble = self._trouble(row)
        if trouble.stranded:
            return self._waits(row, facts, settings, trouble.stranded, CANT_BE_MOVED)
        if trouble.nodes and self._moves:
            # The engine knows of a move once it is committed: two decided at once could take the same place.
            self._postponed.add(row.uid)
            self._picture.sites.suspects.add(row.uid)
            return None
        if trouble.nodes:
            answer = self._picture.engine.replace(row.uid, trouble.lost, to_microseconds(facts.now))
            if isinstance(answer, str):
                return self._waits(row, facts, settings, trouble.nodes, answer)
            if answer != row.admission.admission:
                self._moves = True
                self._told[row.uid] = frozenset(trouble.lost)
                return _moved(row, answer, trouble.nodes, self._gained(row, answer))
        self._picture.sites.shut.pop(row.uid, None)
        if row.admission.unplaced_at is not None:
            return _recovered(row)
        return self._tell(row, trouble)

    def _waits(
        self, row: WorkloadRow, facts: Facts, settings: Settings, nodes: Mapping[str, Ailment], why: str
    ) -> Change | None:
        self._picture.sites.shut[row.uid] = frozenset(nodes)
        return _waits(row, facts, settings, nodes, why)

    def _gained(self, row: WorkloadRow, admission: Admission) -> list[str]:
        """The nodes where pods have places now and had none before."""
        assert row.admission is not None
        sites, bound = self._picture.sites, self._picture.pods.bound(row.uid)
        before = {assigned.name: sites.planned(row.uid, assigned) for assigned in row.admission.admission.pod_sets}
        gained: set[str] = set()
        for assigned in admission.pod_sets:
            known = before.get(assigned.name, {}) if assigned.pinned else bound.get(assigned.name, {})
            gained |= {name for name, count in sites.planned(row.uid, assigned).items() if count > known.get(name, 0)}
        return sorted(gained)

    def _tell(self, row: WorkloadRow, trouble: Trouble) -> Change | None:
        """Its other places are those that were planned: nothing changes, but people want to know."""
        fallen, told = frozenset(trouble.fallen), self._told.pop(row.uid, frozenset())
        if fallen:
            self._told[row.uid] = fallen
        if fallen <= told or not trouble.left:
            return None
        message = f"Pods move from {_named(trouble.fallen)} to {_listed(sorted(trouble.left))}"
        return Change(row=row, outbox=(event(row, NODES_REPLACED, message, warning=True),))

    def forget(self, uid: str) -> None:
        """The workload ended."""
        self._told.pop(uid, None)

    def _trouble(self, row: WorkloadRow) -> Trouble:
        assert row.admission is not None
        found = Trouble()
        pod_sets = by_name(row.pod_groups)
        suspect = row.uid in self._picture.sites.suspects or row.admission.unplaced_at is not None
        self._picture.sites.suspects.discard(row.uid)
        contested = self._picture.contested(row.uid)
        for assigned in row.admission.admission.pod_sets:
            if assigned.domains is not None:
                places = self._places(row, assigned, pod_sets.get(assigned.name))
                self._look(found, places, contested, suspect=suspect)
                if assigned.pinned and places.missing > 0:
                    self._look_for_stranded(found, row, places)
        return found

    def _look_for_stranded(self, found: Trouble, row: WorkloadRow, places: Places) -> None:
        for pod in self._picture.pods.pods_of(row.uid):
            if not pod.unschedulable or pod.node or pod.leaving:
                continue
            obj = self._picture.view.by_uid(PODS, pod.uid)
            place = None if obj is None else place_of(obj, (HOSTNAME,), lambda name: {HOSTNAME: name})
            if place is None or obj is None or self._picture.kind_of(row).pod_set_of(obj) != places.name:
                continue
            name = place[0]
            ailment = self._picture.sites.lost(name) or self._closed(name, places.tolerations)
            if ailment is None and self._picture.engine.is_overbooked(name):
                ailment = FULL
            if ailment is None and name not in places.planned:
                ailment = Ailment("no place of it any more", lost=False)
            if ailment is not None:
                found.stranded[name] = ailment

    def _places(self, row: WorkloadRow, assigned: PodSetAssignment, pod_set: PodSet | None) -> Places:
        bound = self._picture.pods.bound(row.uid).get(assigned.name, {})
        live = {name: count for name, count in bound.items() if self._picture.sites.lost(name) is None}
        count = running_pods(pod_set, assigned)
        tolerations = (*(pod_set.tolerations if pod_set is not None else ()), *assigned.tolerations)
        missing = count - sum(live.values())
        planned = self._picture.sites.planned(row.uid, assigned)
        return Places(assigned.name, assigned.pinned, planned, frozenset(bound), live, missing, tolerations)

    def _look(self, found: Trouble, places: Places, contested: frozenset[str], *, suspect: bool) -> None:
        for name in places.there | places.planned.keys():
            ailment = self._picture.sites.lost(name) or self._closed(name, places.tolerations)
            if ailment is not None and ailment.lost:
                found.lost.add(name)
                if places.missing > 0 and name in places.planned:
                    found.nodes[name] = ailment
                elif places.missing > 0 and not places.pinned:
                    found.fallen[name] = ailment
        for name in places.open():
            ailment = self._closed(name, places.tolerations)
            if ailment is None and name in contested:
                ailment = CONTESTED
            if ailment is None and suspect and self._picture.engine.is_overbooked(name):
                ailment = FULL
            if ailment is not None:
                found.lost.add(name)
                found.nodes.setdefault(name, ailment)
            else:
                found.left.add(name)

    def _closed(self, name: str, tolerations: Iterable[Toleration]) -> Ailment | None:
        node = self._picture.view.get(NODES, "", name)
        return None if node is None else closed(node, tolerations)


def _moved(row: WorkloadRow, admission: Admission, nodes: Mapping[str, Ailment], places: Iterable[str]) -> Change:
    """The same admission with other places: charged as before."""
    assert row.admission is not None
    message = f"Pods move from {_named(nodes)} to {_listed(places)}"
    fresh = replace(row, admission=replace(row.admission, admission=admission, unplaced_at=None))
    if row.admission.unplaced_at is not None:
        fresh = replace(fresh, reason="", message="")
    return Change(row=fresh, outbox=(event(fresh, NODES_REPLACED, message, warning=True),))


def _waits(row: WorkloadRow, facts: Facts, settings: Settings, nodes: Mapping[str, Ailment], why: str) -> Change | None:
    """Notes since when it has no places; once that has lasted too long, it gives up its admission as a whole. What is
    reserved has nothing to lose by queueing again."""
    assert row.admission is not None
    if row.state is State.RESERVED:
        message = f"Its reservation is given up: it lost its places on {_named(nodes)}, and there are no others: {why}."
        message += " It queues again with its old place in time."
        return drain(row, facts, State.WAITING, NODE_FAILURES, message, event_reason="Evicted")
    since = row.admission.unplaced_at or facts.now
    waits = replace(row, admission=replace(row.admission, unplaced_at=since))
    until = replaced_by(waits, settings)
    if until is None or facts.now >= until:
        return _given_up(row, facts, settings, nodes, why)
    then = "it is deactivated" if settings.deactivate_without_nodes else "it is stopped and queues again"
    message = f"Pods lost their places on {_named(nodes)}, and there are no others: {why}. Unless that changes, {then}"
    message += f" at {at(until)}."
    waits = replace(waits, reason=WAITING_FOR_REPLACEMENT, message=message)
    if waits == row:
        return None
    outbox = () if row.admission.unplaced_at else (event(waits, WAITING_FOR_REPLACEMENT, message, warning=True),)
    return Change(row=waits, outbox=outbox, explanation=_explanation(waits, nodes, why, facts))


def _given_up(row: WorkloadRow, facts: Facts, settings: Settings, nodes: Mapping[str, Ailment], why: str) -> Change:
    waited = duration(settings.wait_for_replacement)
    words = f"pods lost their places on {_named(nodes)}, and there were no others within {waited}: {why}"
    if settings.deactivate_without_nodes:
        return deactivate(row, facts, NODE_FAILURES, words)
    message = f"Stopped because {words}. It queues again with its old place in time."
    return drain(row, facts, State.WAITING, NODE_FAILURES, message, event_reason="Evicted")


def _recovered(row: WorkloadRow) -> Change:
    """Its nodes are back."""
    assert row.admission is not None
    well = replace(row, reason="", message="", admission=replace(row.admission, unplaced_at=None))
    return Change(row=well, outbox=(event(well, NODES_RECOVERED, "All its pods have places again"),))


def _explanation(row: WorkloadRow, nodes: Mapping[str, Ailment], why: str, facts: Facts) -> Mapping[str, Any]:
    """In the API's shape; a blocker a node."""
    assert row.admission is not None
    assert row.admission.unplaced_at is not None
    blockers = [
        {"type": "Topology", "message": f"node {name} is {nodes[name].what}: {why}", "node": name, "holders": []}
        for name in sorted(nodes)
    ]
    return {
        "reason": row.reason,
        "message": row.message,
        "position": None,
        "since": row.admission.unplaced_at.isoformat(),
        "asOf": facts.now.isoformat(),
        "estimatedStart": None,
        "blockers": blockers,
    }


def _named(nodes: Mapping[str, Ailment]) -> str:
    return _listed(f"{name} ({nodes[name].what})" for name in sorted(nodes))


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - MOST_NAMED
    return ", ".join(listed[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
