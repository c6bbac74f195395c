"""What is wrong with nodes: decided from their objects and the time (issue 5, failures)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from queue_manager.cluster.clock import parse_rfc3339
from queue_manager.cluster.nodes import is_ready, taints
from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import Object
from queue_manager.config.human import moment as at
from queue_manager.controller.timers import Timers
from queue_manager.engine.fleet import show_taint
from queue_manager.engine.selectors import untolerated
from queue_manager.engine.workload import Toleration

SILENCE = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints by which Kubernetes repeats what the Ready condition says."""
CORDON = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True)
class Ailment:
    """What keeps pods off a node, in words. `lost`: what runs there is lost, too; else it goes on."""

    what: str
    lost: bool


def silent_since(node: Object) -> datetime:
    """When a node stopped to be ready; long ago if it was never heard of."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("lastTransitionTime"):
            return parse_rfc3339(condition["lastTransitionTime"])
    return datetime.min.replace(tzinfo=UTC)


def closed(node: Object, tolerations: Iterable[Toleration]) -> Ailment | None:
    """What keeps pods off a node that answers: it is cordoned, on its way out, or tainted. A taint with the effect
    NoExecute takes away what runs there at once."""
    listed, tolerated = taints(node), tuple(tolerations)
    own = [taint for taint in listed if taint.key not in SILENCE and taint.key != CORDON]
    for effects in (("NoExecute",), ("NoSchedule",)):
        taint = untolerated([taint for taint in own if taint.effect in effects], tolerated)
        if taint is not None:
            return Ailment(f"tainted with {show_taint(taint)}", lost="NoExecute" in effects)
    if is_leaving(node):
        return Ailment("being deleted", lost=False)
    if (node.get("spec") or {}).get("unschedulable"):
        return Ailment("cordoned", lost=False)
    return None


class NodeWatch:
    """Nodes that are not ready, and which of them for so long that their pods are lost. A short silence changes
    nothing."""

    def __init__(self) -> None:
        self._ready: set[str] = set()
        self._silent: dict[str, datetime] = {}
        self._lost: dict[str, str] = {}
        self._timers = Timers()

    def look(self, name: str, node: Object | None, now: datetime, patience: timedelta) -> None:
        """A node as it is now, None when it is deleted; called when it changes and when its time is `due`."""
        if node is None or is_ready(node):
            self._silent.pop(name, None)
            self._lost.pop(name, None)
            self._timers.put(name, None)
        if node is None:
            self._ready.discard(name)
        elif is_ready(node):
            self._ready.add(name)
        else:
            self._listen(name, node, now, patience)

    def _listen(self, name: str, node: Object, now: datetime, patience: timedelta) -> None:
        if name not in self._silent:
            # Who was ready until now can't have been silent for longer, whatever its condition says.
            self._silent[name] = max(silent_since(node), now) if name in self._ready else silent_since(node)
        since = self._silent[name]
        self._lost.pop(name, None)
        if now - since >= patience:
            self._lost[name] = f"not ready since {at(since)}" if since.year > 1 else "not ready"
            self._timers.put(name, None)
        else:
            self._timers.put(name, since + patience)

    def lost(self, name: str, node: Object | None) -> Ailment | None:
        """Why all pods on a node are lost, None if they are not."""
        if node is None:
            return Ailment("deleted", lost=True)
        found = self._lost.get(name)
        return None if found is None else Ailment(found, lost=True)

    def due(self, now: datetime) -> set[str]:
        """Nodes whose time has come: to be looked at."""
        return self._timers.due(now)

    def next(self) -> datetime | None:
        """When the next one's time comes."""
        return self._timers.next()
