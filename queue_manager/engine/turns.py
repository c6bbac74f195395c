"""Who made room for whom since anything last came from outside: so that workloads do not take turns for ever.

Shares are compared for the two sides of one eviction only. Over several evictions, with workloads of all sizes, queues
could go round in circles (kueue#3779, #14543). Until something ends, or the configuration or the cluster changes,
nobody makes room for another one's share twice, and of two workloads of which one has made room for the other, neither
evicts the other for its share. Reclaiming one's own quota and the order inside a queue are not touched by this.
"""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.engine.undo import UndoLog


class Turns:
    """Memory of evictions, by uid of the victim."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._for: dict[str, frozenset[str]] = {}
        self._for_share: dict[str, bool] = {}

    def note(self, victim: str, by: str, for_share: bool) -> None:
        """A workload makes room for another one."""
        self._log.put(self._for, victim, self._for.get(victim, frozenset()) | {by})
        if for_share:
            self._log.put(self._for_share, victim, True)

    def bars(self, preemptor: str, victim: str) -> bool:
        """Whether a workload must not evict another one for its share now."""
        return (
            victim in self._for_share
            or preemptor in self._for.get(victim, ())
            or victim in self._for.get(preemptor, ())
        )

    def victims(self) -> list[str]:
        """Who has made room, sorted."""
        return sorted(self._for)

    def forget(self, uids: Iterable[str]) -> None:
        """What these made room for counts no more."""
        for uid in uids:
            self._log.drop(self._for, uid)
            self._log.drop(self._for_share, uid)
