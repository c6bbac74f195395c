"""What happened in a term, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from queue_manager.store.records import CHARGED, ENDED, State, WorkloadRow

READY_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600)
"""Seconds from an admission until all its pods were ready, upper bounds."""


@dataclass
class Counters:
    """`evictions` are counted by (reason, cause), `deactivations` by cause, `ready_waits` by upper bound (None: above
    all)."""

    cycles: int = 0
    cycle_seconds: float = 0.0
    last_seconds: float = 0.0
    admissions: int = 0
    lost: int = 0
    evictions: Counter[tuple[str, str]] = field(default_factory=Counter)
    deactivations: Counter[str] = field(default_factory=Counter)
    ready_waits: Counter[int | None] = field(default_factory=Counter)
    ready_seconds: float = 0.0

    def count(self, old: WorkloadRow | None, new: WorkloadRow) -> None:
        """Takes in a row that was committed; `old` is what it was before."""
        if old is None:
            return
        if State.DEACTIVATED in (new.state, new.after_drain) and State.DEACTIVATED not in (old.state, old.after_drain):
            self.deactivations[new.reason] += 1
        if new.admission is None:
            return
        if old.state in CHARGED - {State.DRAINING} and new.state is State.DRAINING and new.after_drain not in ENDED:
            cause = new.admission.cause
            preempted = bool(new.admission.by)
            self.evictions[("Preempted", cause) if preempted else (cause, new.admission.underlying)] += 1
        if new.admission.ready_at is not None and (old.admission is None or old.admission.ready_at is None):
            seconds = (new.admission.ready_at - new.admission.begun_at).total_seconds()
            self.ready_seconds += seconds
            self.ready_waits[next((bound for bound in READY_BUCKETS if seconds <= bound), None)] += 1
