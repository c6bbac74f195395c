"""Who made room for whom since anything last came from outside: so that workloads do not take turns for ever.

Each eviction is right by itself. Over several of them, with workloads of all sizes, queues could go round in circles
(kueue#3779, #14543). Until something ends, or the configuration or the cluster changes:
- nobody makes room for the same workload twice;
- nobody makes room for anybody's share twice, and of two workloads of which one has made room for the other, neither
  evicts the other for its share.
"""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.engine.decision import EvictionReason
from queue_manager.engine.undo import UndoLog

Turn = tuple[str, EvictionReason]
"""The preemptor, and why."""


class Turns:
    """Memory of evictions, by uid of the victim."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._turns: dict[str, frozenset[Turn]] = {}

    def note(self, victim: str, by: str, reason: EvictionReason) -> None:
        """A workload makes room for another one."""
        self._log.put(self._turns, victim, self._turns.get(victim, frozenset()) | {(by, reason)})

    def repeats(self, preemptor: str, victim: str) -> bool:
        """Whether a workload has made room for this other one before."""
        return any(by == preemptor for by, _ in self._turns.get(victim, ()))

    def bars_share(self, preemptor: str, victim: str) -> bool:
        """Whether a workload must not evict another one for its share now."""
        return (
            any(reason is EvictionReason.IN_COHORT_FAIR_SHARING for _, reason in self._turns.get(victim, ()))
            or self.repeats(preemptor, victim)
            or self.repeats(victim, preemptor)
        )

    def victims(self) -> list[str]:
        """Who has made room, sorted."""
        return sorted(self._turns)

    def forget(self, uids: Iterable[str]) -> None:
        """What these made room for counts no more."""
        for uid in uids:
            self._log.drop(self._turns, uid)
