"""Who must heed the holds for the starving, and what they leave (issue 4; see `holds.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.engine.configuration import Cell
from queue_manager.engine.holds import StarvingHold
from queue_manager.engine.records import Record
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE


class Guard:
    """The holds that one workload has to heed if it starts now."""

    __slots__ = ("_node", "_own", "_state", "holds")

    def __init__(self, state: State, record: Record) -> None:
        self._state = state
        self._node = state.tree.queues[record.workload.queue]
        self.holds = [hold for hold in state.starving.by_uid.values() if self._heeds(hold, record, state.now)]
        self._own = {hold.view: self._own_height(hold) for hold in self.holds}

    def _heeds(self, hold: StarvingHold, record: Record, now: int) -> bool:
        if hold.record is record or not (hold.on_nodes or hold.node.root is self._node.root):
            return False
        if hold.node is self._node or record.uid in self._state.starving.by_uid:
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
                self._state.starving.shift(hold, standing, sign)

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
        return self._node.borrow_height(cell, amount, FUTURE)[0] <= self._own[hold.view]

    def _own_height(self, hold: StarvingHold) -> int:
        """Up to which height the queue borrows nothing from the hold's side; -1 in the hold's own queue."""
        if hold.node is self._node:
            return -1
        part = self._node
        if hold.node.root is part.root:
            above = {id(node) for node in hold.node.ancestors()}
            while part.parent is not None and id(part.parent) not in above:
                part = part.parent
        return part.height
