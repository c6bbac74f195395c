"""Room that is kept from the heads that come later in the same round (kueue.md 2.4, 5)."""

from __future__ import annotations

from queue_manager.engine.configuration import PreemptionPolicy
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.placing import alone_of, occupancy_of
from queue_manager.engine.records import Standing, charge
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE


class Reservations:
    """The reservations of one round in a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: list[tuple[str, Standing]] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def last(self) -> str:
        """The uid for which room was kept last, "" if there is none."""
        return self._kept[-1][0] if self._kept else ""

    def reserve(self, nomination: Nomination) -> None:
        """Keeps what a blocked head waits for from the heads after it, unless it can reclaim it anyway (kueue.md
        2.4, 5)."""
        queue = self._state.queue(nomination.record.workload.queue)
        assert queue.queue is not None
        assert queue.node is not None
        if queue.queue.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        kept = {}
        for cell, amount in nomination.assignment.charge.items():
            quota = queue.node.quotas.get(cell)
            left = queue.node.nominal(cell) - queue.node.usage[FUTURE].get(cell, 0)
            if nomination.level > 0:
                limit = None if quota is None else quota.borrowing_limit
                kept[cell] = amount if limit is None else max(0, min(amount, left + limit))
            else:
                kept[cell] = max(0, min(amount, left))
        places = occupancy_of(nomination.assignment.prepared.ask, nomination.reserve or {})
        alone = alone_of(nomination.scope, nomination.reserve or {})
        self.keep(nomination.record.uid, Standing(queue.name, kept, places, alone))

    def keep(self, uid: str, standing: Standing) -> None:
        """Keeps what a workload would take until the round ends."""
        charge(self._state.tree, self._state.fleet, standing, FUTURE, 1)
        self._kept.append((uid, standing))

    def end(self) -> None:
        """The round is over."""
        for _, standing in self._kept:
            charge(self._state.tree, self._state.fleet, standing, FUTURE, -1)
        self._kept = []
