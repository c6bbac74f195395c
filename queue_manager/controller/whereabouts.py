"""Which workloads are on which nodes: where their pods are bound, and where they are planned."""

from __future__ import annotations

from collections.abc import Iterable


class Whereabouts:
    """Kept both ways, so that an event of a node costs as much as there are workloads on it."""

    def __init__(self) -> None:
        self._nodes: dict[str, frozenset[str]] = {}
        self._workloads: dict[str, set[str]] = {}

    def put(self, uid: str, nodes: Iterable[str]) -> None:
        """The nodes of a workload; none when it is not charged any more."""
        new, old = frozenset(nodes), self._nodes.get(uid, frozenset())
        for name in old - new:
            there = self._workloads[name]
            there.discard(uid)
            if not there:
                del self._workloads[name]
        for name in new - old:
            self._workloads.setdefault(name, set()).add(uid)
        if new:
            self._nodes[uid] = new
        else:
            self._nodes.pop(uid, None)

    def on(self, node: str) -> frozenset[str]:
        """The workloads on a node, by uid."""
        return frozenset(self._workloads.get(node, ()))
