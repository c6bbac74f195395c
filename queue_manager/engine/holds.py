"""Holds for the starving (issue 4): what becomes free is kept for a workload that waited too long; who must heed that.

A hold looks at one time to come, `expected`: when all that the starving workload needs should be free. What is charged
and occupied then is a view of the tree and of the nodes, as NOW and FUTURE are: FUTURE without what will have ended,
with the starving workload itself. Whoever has ended by then may use the held room meanwhile (backfill, as Slurm does
it, peers.md 2.4); everybody else has to fit into that view, too: what the hold does not need stays open to all.

Nobody's guarantee is broken: a queue, or a cohort, that stays within its own quota need not heed the hold of another.
Nor need whoever comes before the starving workload: a higher priority, or in its own queue whoever stands ahead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queue_manager.engine.configuration import Cell
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.tree import EMPTY, FUTURE, TreeNode

if TYPE_CHECKING:
    from queue_manager.engine.state import Record, Standing, State

UNKNOWN = 0
"""Nobody knows when."""
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


class Guard:
    """The holds that one workload has to heed if it starts now."""

    __slots__ = ("_node", "_state", "holds")

    def __init__(self, state: State, record: Record) -> None:
        self._state = state
        self._node = state.tree.queues[record.workload.queue]
        self.holds = [hold for hold in state.starving.values() if self._heeds(hold, record, state.now)]

    def _heeds(self, hold: StarvingHold, record: Record, now: int) -> bool:
        if hold.record is record or not (hold.on_nodes or hold.node.root is self._node.root):
            return False
        if hold.node is self._node or record.uid in self._state.starving:
            ahead = record.order < hold.record.order
        else:
            ahead = record.workload.priority > hold.record.workload.priority
        longest, expected = record.workload.max_run_time, hold.target.expected
        return not (ahead or (longest and expected and now + longest <= expected))

    def available(self, hold: StarvingHold, cell: Cell) -> int:
        """What a hold leaves of a cell."""
        return max(0, self._node.available(cell, hold.view))

    def denies(self, cell: Cell, amount: int) -> StarvingHold | None:
        """The first hold that keeps an amount of a cell from the workload's queue."""
        return next((hold for hold in self.holds if self.keeps(hold, cell, amount)), None)

    def keeps(self, hold: StarvingHold, cell: Cell, amount: int) -> bool:
        """Whether one hold keeps an amount of a cell from the workload's queue."""
        if hold.node.root is not self._node.root or self._guaranteed(hold, cell, amount):
            return False
        return amount > self.available(hold, cell)

    def fits(self, charge: Mapping[Cell, int]) -> bool:
        """Whether no hold keeps any of a charge."""
        return all(self.denies(cell, amount) is None for cell, amount in charge.items())

    def lift(self, uid: str, sign: int) -> None:
        """Takes a possible victim out of the views of the holds (-1), or puts it back (1)."""
        for hold in self.holds:
            standing = hold.members.get(uid)
            if standing is not None:
                self._state.shift(hold, standing, sign)

    def on_nodes(self, charge: Mapping[Cell, int]) -> tuple[list[StarvingHold], list[StarvingHold]]:
        """Holds whose nodes are out of the question, and those whose nodes are used only when no others will do."""
        must: list[StarvingHold] = []
        should: list[StarvingHold] = []
        for hold in self.holds:
            if hold.on_nodes:
                own = all(self._guaranteed(hold, cell, amount) for cell, amount in charge.items())
                (should if own else must).append(hold)
        return must, should

    def _guaranteed(self, hold: StarvingHold, cell: Cell, amount: int) -> bool:
        """Whether the amount is within the own quota of the queue, or of the cohort that sets it apart from the
        hold's queue."""
        if hold.node is self._node:
            return False
        part = self._node
        if hold.node.root is part.root:
            above = {id(node) for node in hold.node.ancestors()}
            while part.parent is not None and id(part.parent) not in above:
                part = part.parent
        return self._node.borrow_height(cell, amount, FUTURE)[0] <= part.height
