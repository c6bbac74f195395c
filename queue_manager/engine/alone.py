"""Domains that exclusive replicas have for themselves, in each view of usage (issue 5; workloads.md 3.7).

Two replicas of equal pod priority stand in each other's way where the domain of one lies in, or around, the domain of
the other. Priorities are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from queue_manager.engine.tree import EMPTY
from queue_manager.engine.undo import UndoLog


class Alone(NamedTuple):
    """A domain that a replica has for itself, by level keys and values from the widest level down to its own."""

    priority: int
    keys: tuple[str, ...]
    values: tuple[str, ...]


class Exclusives:
    """Which domains are taken, by view and priority. Every change goes through the undo log."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._views: dict[int, dict[int, dict[Alone, int]]] = {}

    def take(self, domains: Iterable[Alone], view: int) -> None:
        """Counts domains as taken, revocable."""
        for domain in domains:
            self._shift(domain, view, 1)

    def give_back(self, domains: Iterable[Alone], view: int) -> None:
        """Takes `take` back, revocable."""
        for domain in domains:
            self._shift(domain, view, -1)

    def _shift(self, domain: Alone, view: int, by: int) -> None:
        counts = self._views.setdefault(view, {}).setdefault(domain.priority, {})
        count = counts.get(domain, 0) + by
        if count:
            self._log.put(counts, domain, count)
        else:
            self._log.drop(counts, domain)

    def clear_view(self, view: int) -> None:
        """Nothing is taken in a view any more, revocable."""
        for counts in self._views.get(view, {}).values():
            for domain in list(counts):
                self._log.drop(counts, domain)

    def taken(self, view: int, priority: int) -> Iterable[Alone]:
        """Domains taken by replicas of a pod priority, in no meaningful order."""
        return () if view == EMPTY else self._views.get(view, {}).get(priority, ())

    def clash(self, domains: Iterable[Alone], view: int) -> bool:
        """Whether any of these domains is taken, or has a taken one inside or around it."""
        return any(overlap(domain, other) for domain in domains for other in self.taken(view, domain.priority))


def overlap(one: Alone, other: Alone) -> bool:
    """Whether two domains of one topology lie in each other."""
    depth = min(len(one.keys), len(other.keys))
    return one.keys[:depth] == other.keys[:depth] and one.values[:depth] == other.values[:depth]
