"""Who uses what on which node: pods of charged workloads by pod set, all others as foreign use. Updated pod by pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.pods import (
    Disruption,
    disruption_of,
    is_gone,
    is_leaving,
    is_unschedulable,
    node_of,
    nominated,
    usage,
)
from queue_manager.cluster.port import Object
from queue_manager.kinds.gates import awaits_admission
from queue_manager.kinds.plain_shapes import SHAPE


@dataclass(frozen=True, slots=True)
class Pod:
    """What the table keeps of a pod. `controller`: the uid of its owner; `use`: base units, its slot included.

    `leaving`: it is being deleted. `nominated`: the node that kube-scheduler makes room on for it. `unschedulable`:
    kube-scheduler found no node for it. `disruption`: who takes it away, if somebody does. `shape`: of a plain pod, the
    name of its pod set. `waits`: for the admission of its group.
    """

    uid: str
    controller: str
    node: str
    gone: bool
    use: Mapping[str, int]
    labels: Mapping[str, str]
    name: str = ""
    leaving: bool = False
    nominated: str = ""
    unschedulable: bool = False
    disruption: Disruption | None = None
    shape: str = ""
    waits: bool = False


def read_pod(obj: Object) -> Pod:
    """A (projected) pod object as the table keeps it."""
    owner = controller_of(obj)
    return Pod(
        uid=obj["metadata"]["uid"],
        controller=owner["uid"] if owner else "",
        node=node_of(obj),
        gone=is_gone(obj),
        use=usage(obj),
        labels=obj["metadata"].get("labels") or {},
        name=obj["metadata"].get("name", ""),
        leaving=is_leaving(obj),
        nominated=nominated(obj),
        unschedulable=is_unschedulable(obj),
        disruption=disruption_of(obj),
        shape=obj.get(SHAPE, ""),
        waits=awaits_admission(obj),
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod that has not ended: where it is bound ("" while it is not) and whose it is ("" when nobody's)."""

    pod: Pod
    workload: str = ""
    pod_set: str = ""


class PodTable:
    """Keeps sums per node and per workload so that one pod event costs one update."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._of_workload: dict[str, set[str]] = {}
        self._given_up: set[str] = set()
        self._charged: set[str] = set()
        self._foreign: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._bound: dict[str, dict[str, dict[str, int]]] = {}
        self._leaving: dict[str, dict[str, dict[str, int]]] = {}
        self._disrupted: dict[str, dict[str, Pod]] = {}
        self.dirty_nodes: set[str] = set()
        self.dirty_workloads: set[str] = set()
        self.dirty_bindings: set[str] = set()

    def live(self, workload: str) -> int:
        """Pods of the workload that have not ended, terminating ones included. Those that wait for its next admission
        are none that it still has."""
        return sum(not self._entries[uid].pod.waits for uid in self._of_workload.get(workload, ()))

    def pods_of(self, workload: str) -> list[Pod]:
        """Those pods."""
        return [self._entries[uid].pod for uid in sorted(self._of_workload.get(workload, ()))]

    def foreign(self, node: str) -> Mapping[str, int]:
        """What pods use on the node that no charged workload accounts for; base units, `pods` is a count."""
        return {resource: amount for resource, amount in self._foreign.get(node, {}).items() if amount}

    def bound(self, workload: str) -> Mapping[str, Mapping[str, int]]:
        """Pod set -> node -> bound pods that are to stay."""
        return self._bound.get(workload, {})

    def leaving(self, workload: str) -> Mapping[str, Mapping[str, int]]:
        """Pod set -> node -> pods that are being deleted and have not ended."""
        return self._leaving.get(workload, {})

    def disrupted(self, workload: str) -> list[Pod]:
        """Pods of a charged workload that somebody has taken away since it was admitted, as far as they were seen; they
        need not be there any more."""
        return [pod for _, pod in sorted(self._disrupted.get(workload, {}).items())]

    def put(self, pod: Pod, workload: str, pod_set: str) -> None:
        """A pod appeared or changed."""
        old = self._entries.get(pod.uid)
        if pod.uid in self._given_up:
            workload, pod_set = "", ""
        new = Entry(pod, workload, pod_set)
        if old == new:
            return
        if pod.disruption is not None and workload in self._charged:
            self._disrupted.setdefault(workload, {})[pod.uid] = pod
        if old is not None:
            self._count(old, -1)
        if pod.gone:
            self._entries.pop(pod.uid, None)
            self._given_up.discard(pod.uid)
            if old is not None:
                self._leave(old)
        else:
            if old is not None and old.workload != workload:
                self._leave(old)
            self._entries[pod.uid] = new
            if workload:
                self._of_workload.setdefault(workload, set()).add(pod.uid)
            self._count(new, +1)
        self.dirty_workloads.update(filter(None, (workload, old.workload if old else "")))

    def remove(self, uid: str) -> None:
        """A pod is deleted."""
        old = self._entries.get(uid)
        if old is not None:
            self.put(replace(old.pod, gone=True), old.workload, old.pod_set)

    def give_up(self, workload: str) -> None:
        """Nobody waits for the workload's pods any longer: what is left of them is foreign use of their nodes. Those
        that have not run yet are there for the next time."""
        for pod in self.pods_of(workload):
            if not pod.waits:
                self._given_up.add(pod.uid)
                self.put(pod, "", "")

    def _leave(self, entry: Entry) -> None:
        pods = self._of_workload.get(entry.workload)
        if pods is not None:
            pods.discard(entry.pod.uid)
            if not pods:
                del self._of_workload[entry.workload]

    def charge(self, workload: str, charged: bool) -> None:
        """Says whether the workload accounts for its pods itself; if not they are foreign use."""
        if charged == (workload in self._charged):
            return
        entries = [self._entries[uid] for uid in self._of_workload.get(workload, ())]
        for entry in entries:
            self._count(entry, -1)
        (self._charged.add if charged else self._charged.discard)(workload)
        for entry in entries:
            self._count(entry, +1)
        if not charged:
            self._bound.pop(workload, None)
            self._leaving.pop(workload, None)
            self._disrupted.pop(workload, None)
            return
        disrupted = {entry.pod.uid: entry.pod for entry in entries if entry.pod.disruption is not None}
        if disrupted:
            self._disrupted[workload] = disrupted

    def _count(self, entry: Entry, sign: int) -> None:
        mine = entry.workload in self._charged
        # What a foreign pod is given room for by kube-scheduler is taken before it is there.
        node = entry.pod.node if mine else entry.pod.node or entry.pod.nominated
        if not node:
            return
        if mine:
            table = self._leaving if entry.pod.leaving else self._bound
            nodes = table.setdefault(entry.workload, {}).setdefault(entry.pod_set, {})
            nodes[node] = nodes.get(node, 0) + sign
            if not nodes[node]:
                del nodes[node]
            self.dirty_bindings.add(entry.workload)
            return
        use = self._foreign[node]
        for resource, amount in entry.pod.use.items():
            use[resource] += sign * amount
        if not any(use.values()):
            del self._foreign[node]
        self.dirty_nodes.add(node)
