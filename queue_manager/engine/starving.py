"""All holds for the starving of a state, with what stands in the view of each; who has waited long enough (issue 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappush

from queue_manager.engine.configuration import Starvation
from queue_manager.engine.fleet import Fleet
from queue_manager.engine.holds import FIRST_VIEW, INFINITE, StarvingHold, Target, end_of
from queue_manager.engine.records import QueueState, Record, Standing, charge, occupy
from queue_manager.engine.tree import FUTURE, QuotaTree, TreeNode
from queue_manager.engine.undo import UndoLog


class StarvingHolds:
    """The holds `by_uid`, under the `rules` of the configuration (None: nobody gets one).

    `due` is a heap of the times (microseconds) at which waiting workloads will have waited long enough, with their
    uids, `overdue` the queues of a tree in which some have. `news` is called with a hold that changes what others may
    get, `tell` with a workload that has another reason to wait.
    """

    def __init__(
        self,
        tree: QuotaTree,
        fleet: Fleet,
        log: UndoLog,
        queues: Mapping[str, QueueState],
        news: Callable[[StarvingHold], None],
        tell: Callable[[Record], None],
    ) -> None:
        self._tree = tree
        self._fleet = fleet
        self._log = log
        self._queues = queues
        self._news = news
        self._tell = tell
        self.rules: Starvation | None = None
        self.by_uid: dict[str, StarvingHold] = {}
        self.overdue: dict[TreeNode, dict[str, QueueState]] = {}
        self.due: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        return bool(self.by_uid)

    def configure(self, rules: Starvation | None, tree: QuotaTree) -> None:
        """Begins anew under other rules, in another tree; all holds have ended."""
        self.rules = rules
        self._tree = tree
        self.overdue.clear()
        self.due.clear()

    def wait(self, record: Record) -> None:
        """A workload waits: it is due for a hold some day."""
        if self.rules is not None:
            heappush(self.due, (record.workload.queued + self.rules.after, record.uid))

    def begin(self, record: Record, target: Target) -> StarvingHold:
        """Begins a hold for a waiting workload, or changes it: others may get what it keeps no longer."""
        hold = self.by_uid.get(record.uid)
        if hold is None:
            hold = self._new(record, target)
            self._tell(record)
        else:
            self.shift(hold, hold.target.standing, -1)
            self._log.assign(hold, "target", target)
            self._news(hold)
        self.shift(hold, target.standing, 1)
        for queue in self._queues.values():
            for other in queue.standing.values():
                self._follow(hold, other)
        for other_hold in list(self.by_uid.values()):
            if other_hold is not hold:
                self._stand_beside(other_hold, hold)
                self._stand_beside(hold, other_hold)
        return hold

    def _new(self, record: Record, target: Target) -> StarvingHold:
        taken = {hold.view for hold in self.by_uid.values()}
        view = next(v for v in range(FIRST_VIEW, FIRST_VIEW + len(taken) + 1) if v not in taken)
        hold = StarvingHold(record, self._tree.queues[record.workload.queue], view, target)
        self._tree.clear_view(hold.node.root, view)
        self._fleet.clear_view(view)
        self._log.put(self.by_uid, record.uid, hold)
        return hold

    def end(self, uid: str) -> None:
        """A hold ends: its workload starts, is gone, or has no hope."""
        hold = self.by_uid.get(uid)
        if hold is None:
            return
        self._tree.clear_view(hold.node.root, hold.view)
        self._fleet.clear_view(hold.view)
        self._log.drop(self.by_uid, uid)
        self.stand_aside(hold)
        self._news(hold)

    def stand_aside(self, hold: StarvingHold) -> None:
        """Takes a starving workload out of the views of the other holds."""
        for other in self.by_uid.values():
            if other is not hold:
                self._put(other, hold.record.uid, None)

    def _stand_beside(self, hold: StarvingHold, other: StarvingHold) -> None:
        """Two holds at a time: the one that starts first still runs when the other is complete, unless it is known to
        end before."""
        first, then = other.target.expected, hold.target.expected
        longest = other.record.workload.max_run_time
        if (first or INFINITE, other.record.order) > (then or INFINITE, hold.record.order):
            self._put(hold, other.record.uid, None)
            return
        ended = other.record.uid in hold.target.gone or (first and then and longest and first + longest <= then)
        stands_for_it = not other.target.gone.isdisjoint(hold.target.stays)
        self._put(hold, other.record.uid, None if ended or stands_for_it else other.target.standing)

    def follow(self, record: Record) -> None:
        """Keeps the views of all holds in line with what a workload takes and how long it may run."""
        for hold in self.by_uid.values():
            self._follow(hold, record)

    def _follow(self, hold: StarvingHold, record: Record) -> None:
        """Keeps the view of a hold in line with what a workload takes."""
        standing = record.standing[FUTURE]
        if standing is not None and not hold.outlasts(record.uid, end_of(record)):
            standing = None
        self._put(hold, record.uid, standing)

    def _put(self, hold: StarvingHold, uid: str, standing: Standing | None) -> None:
        old = hold.members.get(uid)
        if old is standing:
            return
        if old is not None:
            self.shift(hold, old, -1)
            self._log.drop(hold.members, uid)
        if standing is not None:
            self.shift(hold, standing, 1)
            self._log.put(hold.members, uid, standing)

    def shift(self, hold: StarvingHold, standing: Standing, sign: int) -> None:
        """Counts something in the view of a hold (1), or no longer (-1)."""
        node = self._tree.queues.get(standing.queue)
        if node is not None and node.root is hold.node.root:
            charge(self._tree, self._fleet, standing, hold.view, sign)
        else:
            occupy(self._fleet, standing, hold.view, sign)
