"""The node lifecycle controller and the taint manager: silent nodes are tainted, and pods that don't tolerate it go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queue_manager.cluster.cache import key_of
from queue_manager.cluster.clock import Clock, parse_rfc3339
from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.pods import DISRUPTION_TARGET, is_gone, node_of
from queue_manager.cluster.port import NODES, PODS, EventType, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import unversioned, with_condition, write_status
from queue_manager.cluster.simulated.storage import Change

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
DEFAULT_SECONDS = 300.0
"""How long pods that say nothing about it stay on a silent node (the API server writes this into each of them)."""
_MANAGER = "kube-controller-manager"


class NodeLifecycle:
    """Keeps the taints of silent nodes, and evicts pods by taints with the effect NoExecute."""

    def __init__(self, api: ApiState, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    def keys(self, change: Change) -> Iterable[Key]:
        """Nodes, and pods when they are bound."""
        if change.resource == NODES and change.type is not EventType.DELETED:
            yield (change.new["metadata"]["name"],)
        elif change.resource == PODS and change.type is not EventType.DELETED:
            node, before = node_of(change.new), node_of(change.old) if change.old is not None else ""
            if node and not before:
                yield (node,)

    def reconcile(self, key: Key) -> float | None:
        """One node and the pods on it; answers when the next of them has to go."""
        node = self._api.peek(NODES, "", key[0])
        if node is None:
            return None
        node = self._taint(node)
        listed = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == "NoExecute"]
        pods = [pod for pod in self._api.storage.all(PODS) if node_of(pod) == key[0]] if listed else []
        waits = [wait for pod in pods if (wait := self._evict(pod, listed)) is not None]
        return min(waits, default=None)

    def _taint(self, node: Object) -> Object:
        """Brings the taints of silence in line with the Ready condition."""
        taints = list((node.get("spec") or {}).get("taints") or ())
        own = [taint for taint in taints if taint["key"] in (NOT_READY, UNREACHABLE)]
        key = "" if is_ready(node) else UNREACHABLE if _status(node) == "Unknown" else NOT_READY
        if {taint["key"] for taint in own} == ({key} if key else set()):
            return node
        now = self._api.time()
        wanted = [{"key": key, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute") if key]
        spec = {**(node.get("spec") or {}), "taints": [taint for taint in taints if taint not in own] + wanted}
        return self._api.update(NODES, node, unversioned({**node, "spec": spec}), manager=_MANAGER)

    def _evict(self, pod: Object, taints: list[Object]) -> float | None:
        """Deletes a pod whose time on the node is over; else the seconds that it has left, None for ever."""
        if is_gone(pod) or pod["metadata"].get("deletionTimestamp"):
            return None
        left = [seconds for taint in taints if (seconds := self._left(pod, taint)) is not None]
        if not left:
            return None
        if min(left) > 0:
            return min(left)
        message = "Taint manager: deleting due to NoExecute taint"
        disrupt(self._api, pod, "DeletionByTaintManager", message, _MANAGER)
        self._api.delete(PODS, *key_of(pod))
        return None

    def _left(self, pod: Object, taint: Object) -> float | None:
        seconds = _tolerated(pod, taint)
        if seconds is None:
            return None
        added = taint.get("timeAdded")
        passed = (self._clock.now() - parse_rfc3339(added)).total_seconds() if added else 0.0
        return seconds - passed if seconds else 0.0


def disrupt(api: ApiState, pod: Object, reason: str, message: str, manager: str) -> None:
    """Notes on a pod that somebody takes it away."""
    known = pod["status"].get("conditions") or []
    conditions = with_condition(known, DISRUPTION_TARGET, True, reason, message, api.time())
    write_status(api, PODS, pod, {**pod["status"], "conditions": conditions}, manager)


def _status(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "Unknown")


def _tolerated(pod: Object, taint: Object) -> float | None:
    """Seconds that a pod tolerates a taint, None for ever."""
    found: list[float] = []
    for entry in pod["spec"].get("tolerations") or ():
        if _matches(entry, taint):
            if entry.get("tolerationSeconds") is None:
                return None
            found.append(float(entry["tolerationSeconds"]))
    if not found and taint["key"] in (NOT_READY, UNREACHABLE):
        return DEFAULT_SECONDS
    return min(found, default=0.0)


def _matches(toleration: Any, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")
