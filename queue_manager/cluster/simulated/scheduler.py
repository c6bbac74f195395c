"""kube-scheduler as far as we depend on it: filters, spreading by cpu and memory, Unschedulable, preemption by
priority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

import msgspec

from queue_manager.cluster.cache import Key as ObjectKey
from queue_manager.cluster.cache import key_of
from queue_manager.cluster.nodes import engine_node
from queue_manager.cluster.pods import effective_requests, host_ports, is_gated, is_gone, node_of
from queue_manager.cluster.port import NODES, PODS, EventType, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.documents import read
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.node_lifecycle import disrupt
from queue_manager.cluster.simulated.objects import unversioned, with_condition, write_status
from queue_manager.cluster.simulated.storage import Change
from queue_manager.engine.configuration import Node
from queue_manager.engine.selectors import affine, selects, untolerated
from queue_manager.engine.workload import Requirement, SelectorTerm, Taint, Toleration

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
PREEMPTION = "PreemptionByScheduler"
_LEAST = {"cpu": 100, "memory": 200 << 20}
"""What scoring takes for a pod that asks for nothing, as kube-scheduler does."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a pod asks of a node. `shape` is equal for pods that fit alike."""

    shape: bytes
    requests: Mapping[str, int]
    selector: Mapping[str, str]
    terms: tuple[SelectorTerm, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[int]
    priority: int = 0
    preempts: bool = True


class _Room:
    """A node and what is taken of it."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.used: dict[str, int] = {}
        self.scored: dict[str, int] = dict.fromkeys(_LEAST, 0)
        self.ports: list[int] = []

    def take(self, wish: _Wish, sign: int) -> None:
        """Adds a pod, or with -1 takes it away again."""
        for name, amount in {**wish.requests, "pods": 1}.items():
            self.used[name] = self.used.get(name, 0) + sign * amount
        for name, least in _LEAST.items():
            self.scored[name] += sign * (wish.requests.get(name) or least)
        for port in wish.ports:
            self.ports.append(port) if sign > 0 else self.ports.remove(port)


class Scheduler:
    """Binds pods, highest priority and oldest first, as long as there is room."""

    def __init__(self, api: ApiState, random: Random) -> None:
        self._api = api
        self._random = random
        self._rooms: dict[str, _Room] = {}
        self._placed: dict[str, tuple[str, _Wish]] = {}
        self._pending: dict[ObjectKey, None] = {}
        self._nominated: dict[str, tuple[str, _Wish]] = {}

    def keys(self, change: Change) -> Iterable[Key]:
        """Keeps the books of every node; a pass is due when a pod came, one went, or a node changed."""
        if change.resource == NODES:
            name = change.new["metadata"]["name"]
            room = self._rooms.setdefault(name, _Room())
            room.node = None if change.type is EventType.DELETED else engine_node(change.new)
            yield ("pass",)
        elif change.resource == PODS and self._follow(change.new, change.type is EventType.DELETED):
            yield ("pass",)

    def reconcile(self, key: Key) -> float | None:
        """One pass over all pending pods; a shape that failed is not tried again in it."""
        failed: dict[bytes, str] = {}
        pods = [pod for key in list(self._pending) if (pod := self._api.peek(PODS, *key)) is not None]
        for pod in sorted(pods, key=_turn):
            wish = _wish(pod)
            if wish.shape in failed:
                self._refuse(pod, failed[wish.shape])
                continue
            self._nominated.pop(pod["metadata"]["uid"], None)
            found = [(name, room) for name, room in self._rooms.items() if not self._obstacle(name, room, wish)]
            if found:
                self._bind(pod, self._best(found, wish))
            elif not self._preempt(pod, wish):
                failed[wish.shape] = self._reasons(wish)
                self._refuse(pod, failed[wish.shape])
        return None

    def _obstacle(self, name: str, room: _Room, wish: _Wish) -> str:
        """Why the node can't take the pod; what is cleared for others of no lower priority is theirs."""
        kept = [other for node, other in self._nominated.values() if node == name and other.priority >= wish.priority]
        for other in kept:
            room.take(other, 1)
        found = _obstacle(room, wish)
        for other in kept:
            room.take(other, -1)
        return found

    def _preempt(self, pod: Object, wish: _Wish) -> bool:
        """Clears a node of pods of lower priority, the fewest that will do, for a pod that waits for it from then on.
        A node that is cleared for it already is waited for."""
        if not wish.preempts or all(other.priority >= wish.priority for _, other in self._placed.values()):
            return False
        waits_for = (pod.get("status") or {}).get("nominatedNodeName")
        rooms = {waits_for: self._rooms[waits_for]} if waits_for in self._rooms else self._rooms
        best: tuple[int, str, list[Object]] | None = None
        for name, room in rooms.items():
            victims = self._victims(name, room, wish)
            if victims is not None and (best is None or (len(victims), name) < best[:2]):
                best = (len(victims), name, victims)
        if best is None:
            return False
        _, name, victims = best
        self._nominated[pod["metadata"]["uid"]] = (name, wish)
        write_status(self._api, PODS, pod, {**pod["status"], "nominatedNodeName": name}, "kube-scheduler")
        for victim in victims:
            if not victim["metadata"].get("deletionTimestamp"):
                disrupt(self._api, victim, PREEMPTION, "kube-scheduler: preempting", "kube-scheduler")
                self._api.delete(PODS, *key_of(victim))
        return True

    def _victims(self, name: str, room: _Room, wish: _Wish) -> list[Object] | None:
        """The pods to remove from a node, those that end already among them, None where that does not help."""
        lower = [
            (other, pod)
            for uid, (node, other) in self._placed.items()
            if node == name and other.priority < wish.priority and (pod := self._pod(uid)) is not None
        ]
        lower.sort(key=lambda item: (not item[1]["metadata"].get("deletionTimestamp"), item[0].priority))
        taken: list[tuple[_Wish, Object]] = []
        for item in lower:
            if not self._obstacle(name, room, wish):
                break
            room.take(item[0], -1)
            taken.append(item)
        fits = not self._obstacle(name, room, wish)
        for other, _ in taken:
            room.take(other, 1)
        return [pod for _, pod in taken] if fits else None

    def _pod(self, uid: str) -> Object | None:
        stored = self._api.storage.by_uid(uid)
        return stored[1] if stored is not None else None

    def _follow(self, pod: Object, deleted: bool) -> bool:
        uid, key = pod["metadata"]["uid"], key_of(pod)
        over = deleted or is_gone(pod)
        node = node_of(pod)
        if over or node:
            self._nominated.pop(uid, None)
        if not over and node and uid not in self._placed:
            wish = _wish(pod)
            self._placed[uid] = (node, wish)
            self._rooms.setdefault(node, _Room()).take(wish, 1)
        if over and uid in self._placed:
            node, wish = self._placed.pop(uid)
            self._rooms[node].take(wish, -1)
            return True
        waits = not over and not node and not is_gated(pod) and not pod["metadata"].get("deletionTimestamp")
        if not waits:
            self._pending.pop(key, None)
        elif key not in self._pending:
            self._pending[key] = None
            return True
        return False

    def _best(self, found: list[tuple[str, _Room]], wish: _Wish) -> str:
        """The node with the most cpu and memory left, so that pods spread; equals are drawn."""
        scores = [(_score(room, wish), name) for name, room in found]
        highest = max(score for score, _ in scores)
        return self._random.choice([name for score, name in scores if score == highest])

    def _bind(self, pod: Object, node: str) -> None:
        spec = {**pod["spec"], "nodeName": node}
        conditions = with_condition(
            pod["status"].get("conditions") or [], "PodScheduled", True, "", "", self._api.time()
        )
        # Binding is a subresource of its own that rules about pods' fields don't bind.
        bound = {**unversioned(pod), "spec": spec, "status": {**pod["status"], "conditions": conditions}}
        self._api.storage.put(PODS, bound)

    def _refuse(self, pod: Object, message: str) -> None:
        known = pod["status"].get("conditions") or []
        conditions = with_condition(known, "PodScheduled", False, "Unschedulable", message, self._api.time())
        write_status(self._api, PODS, pod, {**pod["status"], "conditions": conditions}, "kube-scheduler")

    def _reasons(self, wish: _Wish) -> str:
        counts: dict[str, int] = {}
        for room in self._rooms.values():
            if room.node is not None:
                reason = _obstacle(room, wish)
                counts[reason] = counts.get(reason, 0) + 1
        listed = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return f"0/{sum(counts.values())} nodes are available: {listed}." if counts else "no nodes available"


def _obstacle(room: _Room, wish: _Wish) -> str:
    """Why the node can't take the pod, "" if it can."""
    node = room.node
    if node is None:
        return "node(s) didn't exist"
    if not node.ready:
        return "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if (taint := untolerated(taints, wish.tolerations)) is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not selects(wish.selector, node.labels) or not affine(wish.terms, node.labels, node.name):
        return "node(s) didn't match Pod's node affinity/selector"
    if wish.ports.intersection(room.ports):
        return "node(s) didn't have free ports for the requested pod ports"
    for name, amount in {**wish.requests, "pods": 1}.items():
        if amount and room.used.get(name, 0) + amount > node.allocatable.get(name, 0):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return ""


def _score(room: _Room, wish: _Wish) -> int:
    if room.node is None:
        return -1
    total = 0
    for name, least in _LEAST.items():
        capacity = room.node.allocatable.get(name, 0)
        if capacity:
            total += max(0, capacity - room.scored[name] - (wish.requests.get(name) or least)) * 100 // capacity
    return total


def _turn(pod: Object) -> tuple[int, str]:
    return -int(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"]


def _wish(pod: Object) -> _Wish:
    spec = pod["spec"]
    affinity = read(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", default={})
    requests, ports = effective_requests(spec), frozenset(host_ports(spec))
    selector, tolerations = spec.get("nodeSelector") or {}, spec.get("tolerations") or []
    priority, policy = int(spec.get("priority") or 0), spec.get("preemptionPolicy")
    shape = (sorted(requests.items()), sorted(selector.items()), affinity, tolerations, sorted(ports), priority)
    return _Wish(
        shape=msgspec.json.encode(shape),
        requests=requests,
        selector=selector,
        terms=tuple(_term(term) for term in affinity.get("nodeSelectorTerms") or ()),
        tolerations=tuple(_toleration(entry) for entry in tolerations),
        ports=ports,
        priority=priority,
        preempts=policy != "Never",
    )


def _term(term: Object) -> SelectorTerm:
    def requirements(entries: Iterable[Object]) -> tuple[Requirement, ...]:
        return tuple(Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in entries)

    return SelectorTerm(requirements(term.get("matchExpressions") or ()), requirements(term.get("matchFields") or ()))


def _toleration(entry: Object) -> Toleration:
    fields = {name: entry[name] for name in ("key", "operator", "value", "effect") if entry.get(name)}
    return Toleration(**fields)
