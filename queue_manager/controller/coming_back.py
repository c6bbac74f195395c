"""Pinned pods that outlived the loss of their node: it came back before Kubernetes ended them, and after their places
were moved. They have their old places again, so that the new ones are not kept for nobody."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from queue_manager.cluster.pods import is_gone, is_leaving, node_of
from queue_manager.cluster.port import Object
from queue_manager.controller.picture import Picture
from queue_manager.controller.transitions import NODES_RECOVERED, event
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import DomainCount, PodSetAssignment
from queue_manager.engine.ranks import DomainValues, joined
from queue_manager.engine.workload import PodRules, TopologyMode
from queue_manager.kinds.slots import slot_of
from queue_manager.store.records import Change, WorkloadRow


def come_back(row: WorkloadRow, picture: Picture) -> Change | None:
    """The same admission with the places where such pods run, None where there are none. Where something holds pods
    together or apart, only places beside the new ones: in the same domain of the level above."""
    assert row.admission is not None
    old = row.admission.admission
    pods = [pod for pod in picture.pods_of(row.uid) if not is_gone(pod)] if any(p.pinned for p in old.pod_sets) else []
    back: set[str] = set()
    pod_sets: list[PodSetAssignment] = []
    for assigned in old.pod_sets:
        mine = [pod for pod in pods if picture.kind_of(row).pod_set_of(pod) == assigned.name]
        beside = _is_tied(row, assigned.name)
        pod_sets.append(_with_own_places(assigned, mine, picture, back, beside=beside))
    if not back:
        return None
    admission = replace(old, pod_sets=tuple(pod_sets))
    fresh = replace(row, admission=replace(row.admission, admission=admission))
    message = f"Its pods on {', '.join(sorted(back))} run on, and have their places there again"
    return Change(row=fresh, outbox=(event(fresh, NODES_RECOVERED, message),))


def _is_tied(row: WorkloadRow, name: str) -> bool:
    """Whether its request holds pods of the pod set together, or apart from others."""
    for group in row.pod_groups:
        for pod_set in group.pod_sets:
            if pod_set.name == name:
                requests = (row.topology, group.topology, pod_set.group_topology, pod_set.topology)
                bound = any(r is not None and (r.mode is TopologyMode.REQUIRED or r.slices) for r in requests)
                return bound or bool(pod_set.distinct or pod_set.exclusive) or pod_set.rules != PodRules()
    return True


def _with_own_places(
    assigned: PodSetAssignment, pods: list[Object], picture: Picture, back: set[str], *, beside: bool
) -> PodSetAssignment:
    if not assigned.pinned or assigned.domains is None or assigned.levels[-1:] != (HOSTNAME,):
        return assigned
    places = [domain.values for domain in assigned.domains for _ in range(domain.count)]
    staying = [pod for pod in pods if not is_leaving(pod)]
    holders = Counter(slot_of(pod) for pod in staying)
    for pod in staying:
        slot, values = slot_of(pod), _place(pod, assigned, picture)
        if values is None or slot is None or slot >= len(places) or holders[slot] > 1:
            continue
        if values != places[slot] and (not beside or values[:-1] == places[slot][:-1]):
            places[slot] = values
            back.add(node_of(pod))
    return replace(assigned, domains=joined(DomainCount(values, 1) for values in places)) if back else assigned


def _place(pod: Object, assigned: PodSetAssignment, picture: Picture) -> DomainValues | None:
    """Where a pod runs; None while it does not, or where its node is lost."""
    name = node_of(pod)
    node = picture.sites.find(name) if name else None
    if node is None or picture.sites.lost(name) is not None:
        return None
    labels = node["metadata"].get("labels") or {}
    return tuple(labels.get(key, "") for key in assigned.levels)
