"""When and where a starving workload could start if everything that runs used up its maximum run time (issue 4).

The running workloads end one after another in memory, those first whose end is known, then those that have run longest;
the first moment at which the workload fits is what its hold waits for. That moment is found by trying 1, 2, 4, ... ends
and halving between the last two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.engine.flavors import Assignment, Mode
from queue_manager.engine.holds import INFINITE, UNKNOWN, StarvingHold, Target, end_of
from queue_manager.engine.nominate import Nominator, standing_of
from queue_manager.engine.pending import Group
from queue_manager.engine.records import QueueState, Record, Standing, charge
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE, TreeNode


@dataclass(frozen=True, slots=True)
class End:
    """Something that will have ended: `at` is INFINITE where nobody knows when."""

    at: int
    admitted: int
    uid: str
    standing: Standing

    @property
    def order(self) -> tuple[int, int, str]:
        """The earliest first; of those nobody knows about, the one admitted first."""
        return (self.at, self.admitted, self.uid)


@dataclass(frozen=True, slots=True)
class Found:
    """What fits after the first `ends` of all ends."""

    ends: int
    assignment: Assignment
    standing: Standing


class HoldPlanner:
    """Plans the hold of one waiting workload, behind the holds of those before it. Leaves the state as it was."""

    def __init__(self, state: State, record: Record) -> None:
        self._state = state
        self._record = record
        self._queue = state.queue(record.workload.queue)
        self._others = [hold for hold in state.starving.by_uid.values() if hold.record.order < record.order]
        assert record.group is not None
        self._prepared = record.group.prepared
        names = {option.flavor for need in self._prepared.needs for option in need.options if not option.refusal}
        flavors = state.configuration.flavors
        self._on_nodes = any(flavors[name].topology for name in names if name in flavors)
        self._stays: set[str] = set()

    def plan(self, before: StarvingHold | None) -> Target | None:
        """The earliest start. A hold that is there already keeps its flavors and nodes unless others are free earlier;
        None when there is no hope."""
        ends = self._ends()
        mark = self._state.log.mark()
        for hold in self._others:
            charge(self._state.tree, self._state.fleet, hold.target.standing, FUTURE, 1)
        same = None if before is None else self._search(ends, len(ends), lambda: self._kept(before.target))
        most = len(ends) if same is None else same.ends
        found = same
        if same is None or self._choice:
            fresh = self._search(ends, most, self._any)
            if fresh is not None and (same is None or _sooner(ends, fresh.ends, same.ends)):
                found = fresh
        self._state.log.revert(mark)
        return None if found is None else self._target(ends, found)

    @property
    def _choice(self) -> bool:
        """Whether there may be a better target than the one taken."""
        return self._on_nodes or any(len(need.options) > 1 for need in self._prepared.needs)

    # ---- what ends

    def _ends(self) -> list[End]:
        """Everything that can make room, in the order of its end."""
        state, root = self._state, self._queue.node
        assert root is not None
        ends: list[End] = []
        for queue in state.queues.values():
            if queue.node is None:
                continue
            same_tree = queue.node.root is root.root
            if same_tree or self._on_nodes:
                ends.extend(self._of_queue(queue, same_tree))
        for hold in self._others:
            longest = hold.record.workload.max_run_time
            if longest and hold.target.expected:
                ends.append(End(hold.target.expected + longest, 0, hold.record.uid, hold.target.standing))
        ends.sort(key=lambda end: end.order)
        return ends

    def _of_queue(self, queue: QueueState, same_tree: bool) -> list[End]:
        """Ends in one queue. What another queue uses of its own quota comes back only if nobody waits there for it:
        else that queue fills it again, and no hold may keep it from doing so."""
        found = []
        for record in queue.standing.values():
            standing = record.standing[FUTURE]
            assert standing is not None
            if record.hold is None and (same_tree or standing.places):
                found.append(End(end_of(record) or INFINITE, record.admitted, record.uid, standing))
        if queue.node is self._queue.node or not _refills(queue):
            return found
        assert queue.node is not None
        used = dict(queue.node.usage[FUTURE])
        borrowed = []
        for end in sorted(found, key=lambda end: end.order):
            if any(used.get(cell, 0) > queue.node.nominal(cell) for cell in end.standing.charge):
                borrowed.append(end)
                for cell, amount in end.standing.charge.items():
                    used[cell] = used.get(cell, 0) - amount
            else:
                self._stays.add(end.uid)
        return borrowed

    # ---- search

    def _search(self, ends: list[End], most: int, fits: Callable[[], Found | None]) -> Found | None:
        """The least number of ends, up to `most`, after which something fits."""
        log = self._state.log
        start = log.mark()
        marks = [start]

        def go(number: int) -> Found | None:
            if number < len(marks) - 1:
                log.revert(marks[number])
                del marks[number + 1 :]
            for end in ends[len(marks) - 1 : number]:
                charge(self._state.tree, self._state.fleet, end.standing, FUTURE, -1)
                marks.append(log.mark())
            found = fits()
            return None if found is None else Found(number, found.assignment, found.standing)

        low, high, step = -1, 0, 1
        best = go(0)
        while best is None and high < most:
            low, high = high, min(most, high + step)
            step *= 2
            best = go(high)
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            found = go(middle)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        log.revert(start)
        return best

    def _any(self) -> Found | None:
        """Whether it fits anywhere."""
        found = Nominator(self._state, self._record, self._prepared, preempt=False, heed=False).nominate()
        if found.mode < Mode.DEFERRED:
            return None
        return Found(0, found.assignment, standing_of(found, found.places))

    def _kept(self, target: Target) -> Found | None:
        """Whether it fits where it was planned before."""
        assert self._queue.node is not None
        fits = self._state.tree.fits(self._queue.node, target.standing.charge, FUTURE)
        standing = target.standing
        if not fits or not self._state.fleet.has_room(standing.places, FUTURE, standing.alone):
            return None
        return Found(0, target.assignment, target.standing)

    def _target(self, ends: list[End], found: Found) -> Target:
        awaited = ends[: found.ends]
        at = awaited[-1].at if awaited else self._state.now
        expected = UNKNOWN if at == INFINITE else at
        gone = frozenset(end.uid for end in awaited)
        return Target(found.assignment, found.standing, expected, gone, frozenset(self._stays) - gone)


def _sooner(ends: list[End], one: int, other: int) -> bool:
    """Whether waiting for the first `one` ends is shorter than for `other`; of unknown ends fewer are better."""
    if one >= other:
        return False
    return one == 0 or ends[one - 1].at < ends[other - 1].at or ends[one - 1].at == INFINITE


def _refills(queue: QueueState) -> bool:
    """Whether workloads wait in a queue that could use what it gets back."""
    node = queue.node
    return node is not None and any(not beyond_hope(group, node) for group in queue.pending.groups.values())


def beyond_hope(group: Group, node: TreeNode) -> bool:
    """Whether the workloads of a group can't start however much ends: they ask for more than there is, or for what is
    not there, or a limit of their user stands in the way."""
    if group.shelf is not None:
        return all(amount > node.available(cell, EMPTY) for cell, amount in group.shelf.lack)
    if group.parked is None:
        return False
    nomination = group.parked.nomination
    return nomination.limit is not None or nomination.hopeless
