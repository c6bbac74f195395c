"""Holds for the starving (issue 4): what becomes free is kept for a workload that waited too long; who must heed that.

A hold looks at one time to come, `expected`: when all that the starving workload needs should be free. What is charged
and occupied then is a view of the tree and of the nodes, as NOW and FUTURE are: FUTURE without what will have ended,
with the starving workload itself. Whoever has ended by then may use the held room meanwhile (backfill, as Slurm does
it, peers.md 2.4); everybody else has to fit into that view, too: what the hold does not need stays open to all.

Nobody's guarantee is broken: a queue, or a cohort, that stays within its own quota need not heed the hold of another.
Nor need whoever comes before the starving workload: a higher priority, or in its own queue whoever stands ahead of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_manager.engine.flavors import Assignment
from queue_manager.engine.records import Record, Standing
from queue_manager.engine.tree import EMPTY, TreeNode

UNKNOWN = 0
"""Nobody knows when."""
INFINITE = 1 << 62
"""Later than all that is known."""
SLACK = 1_000_000
"""Microseconds by which a run may end later than the hold expects: starts of one pass are a few microseconds apart."""
FIRST_VIEW = EMPTY + 1


@dataclass(frozen=True, slots=True)
class Target:
    """What a hold is kept for: flavors, charge and nodes, free at `expected` (microseconds, or UNKNOWN).

    `gone` are the uids counted on to have ended by then, `stays` those that are not although they may end: their queue
    fills what they leave with work of its own.
    """

    assignment: Assignment
    standing: Standing
    expected: int
    gone: frozenset[str]
    stays: frozenset[str]


@dataclass(eq=False, slots=True)
class StarvingHold:
    """One hold. `view` is its view of tree and nodes, `members` what stands there besides the starving workload."""

    record: Record
    node: TreeNode
    view: int
    target: Target
    members: dict[str, Standing] = field(default_factory=dict)

    @property
    def on_nodes(self) -> bool:
        """Whether certain cluster nodes are kept."""
        return bool(self.target.standing.places)

    def outlasts(self, uid: str, end: int) -> bool:
        """Whether a workload that runs still stands when the hold is complete; `end` may be UNKNOWN."""
        if uid in self.target.gone:
            return False
        if uid in self.target.stays or not end or not self.target.expected:
            return True
        return end > self.target.expected + SLACK


def end_of(record: Record) -> int:
    """When a workload that is admitted ends at the latest (microseconds); UNKNOWN without a maximum run time."""
    longest = record.workload.max_run_time
    return record.admitted + longest if longest and record.admitted else UNKNOWN
