"""What one workload could get, as it was found: flavors, nodes, victims, or what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_manager.engine.decision import EvictionReason, Reason
from queue_manager.engine.flavors import Assignment, Mode
from queue_manager.engine.holds import StarvingHold
from queue_manager.engine.limits import LimitHit
from queue_manager.engine.records import Record
from queue_manager.engine.scopes import Misfit, Places, Scope


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload that has to go, and why."""

    record: Record
    reason: EvictionReason


@dataclass(slots=True)
class Nomination:
    """The outcome for one workload.

    `mode` is FIT (can start), DEFERRED (once what drains is gone), PREEMPT or RECLAIM (once the victims are gone),
    NO_CANDIDATES (could preempt, but nobody) or NO_FIT. `misfit` says that nodes, not quota, stand in the way;
    `reserve` are the places on empty nodes of one that waits for nodes. `retry_at` is when somebody whose eviction
    might help is protected no longer, 0 if nobody was spared. `limit` is a limit of the queue apart from its quota that
    stands in the way. `behind` are holds that keep the nodes it would go to. `scope` is what has to be placed on nodes.
    """

    record: Record
    assignment: Assignment
    mode: Mode
    victims: list[Victim] = field(default_factory=list)
    places: Places | None = None
    misfit: Misfit | None = None
    reserve: Places | None = None
    retry_at: int = 0
    limit: LimitHit | None = None
    behind: tuple[StarvingHold, ...] = ()
    scope: Scope | None = None

    @property
    def hopeless(self) -> bool:
        """Whether it could not start even if nothing else were there."""
        if self.mode is not Mode.NO_FIT:
            return False
        reasons = {choice.taken.reason for choice in self.assignment.choices}
        never = reasons & {Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR}
        no_nodes = self.misfit is not None and self.reserve is None and not self.behind
        return bool(never or self.assignment.prepared.unusable or no_nodes)

    @property
    def level(self) -> int:
        """Height at which it borrows; 0 for not at all."""
        return self.assignment.level


def usable(nomination: Nomination) -> bool:
    """Whether the workload can start now or later."""
    return nomination.mode >= Mode.DEFERRED or bool(nomination.victims)
