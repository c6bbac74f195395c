"""In which order the heads of a round are decided about (kueue.md 2.4)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from queue_manager.engine.nomination import Nomination
from queue_manager.engine.shares import NO_SHARE, Share, compare, passed_up, share_of
from queue_manager.engine.shelves import Order
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, Charge, TreeNode


class RoundOrder(Protocol):
    """Hands out the nominations of a round one by one."""

    def next(self) -> Nomination | None:
        """Who is decided about next on the state as it is now; None when nobody is left."""

    def decided(self, lost: Callable[[Nomination], bool]) -> list[Nomination]:
        """Told of each decision; answers who need not be asked for any more, since they would be passed over."""

    def add(self, nomination: Nomination) -> None:
        """One more is handed out in this round."""

    def going(self, node: TreeNode, charge: Charge) -> None:
        """Told of a victim of this round that is still charged while the round lasts (no holds, as in Kueue)."""


class ClassicalOrder:
    """Who borrows at the lowest height first, then by the order of a queue."""

    def __init__(self, nominations: Iterable[Nomination]) -> None:
        self._left = sorted(nominations, key=lambda n: (n.level, n.record.order), reverse=True)

    def next(self) -> Nomination | None:
        """The next of the order that was fixed at the start."""
        return self._left.pop() if self._left else None

    def decided(self, lost: Callable[[Nomination], bool]) -> list[Nomination]:
        """To hand one out costs less than to ask."""
        return []

    def add(self, nomination: Nomination) -> None:
        """After all others."""
        self._left.insert(0, nomination)

    def going(self, node: TreeNode, charge: Charge) -> None:
        """Of no account."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who stands for a node in the tournament of its parent: the winner of its own tournament.

    `charge` is what reaches the node of the winner's charge, `share` the node's share with it; `borrows` says whether
    the node then borrows what the winner asks for.
    """

    node: TreeNode
    nomination: Nomination
    charge: Charge
    share: Share
    borrows: bool


class TreeOrder:
    """A tournament through each tree of queues, from the leaves to the root, on the state as it is when asked.

    At each cohort the winners of its children meet. Under fair sharing: first who does not borrow what it asks for,
    then the smaller share with its own charge added, then the order of a queue. Without: who borrows at the lowest
    height, then priority, then age. With a history those who borrow have their past share added to their share, or
    between priority and age. Results are kept, and found anew only above queues whose usage has moved.

    Trees share no quota; of their winners the first by the order of a queue is taken.
    """

    def __init__(self, state: State, nominations: Iterable[Nomination]) -> None:
        self._state = state
        self._fair = state.configuration.fair_sharing is not None
        self._history = state.history
        self._entries: dict[TreeNode, Nomination] = {}
        self._known: dict[TreeNode, Contender | None] = {}
        self._decided = 0
        self._going: list[tuple[TreeNode, Charge]] = []
        self._heap: list[tuple[tuple[int, Order], str, TreeNode]] = []
        self._queued: dict[TreeNode, tuple[int, Order]] = {}
        for nomination in nominations:
            self._entries[state.tree.queues[nomination.record.workload.queue]] = nomination
        state.tree.moved.clear()
        mark = self._with_the_going()
        for root in {node.root for node in self._entries}:
            self._push(root)
        self._without_the_going(mark)

    def next(self) -> Nomination | None:
        """The winner of a tournament on the present state."""
        self._notice_moves()
        mark = self._with_the_going()
        found = self._first()
        self._without_the_going(mark)
        return found

    def decided(self, lost: Callable[[Nomination], bool]) -> list[Nomination]:
        """Takes out who has lost, after 1, 2, 4, ... decisions: a draw costs a tournament, a look at all much too."""
        self._decided += 1
        if self._decided & (self._decided - 1):
            return []
        gone = [queue for queue, nomination in self._entries.items() if lost(nomination)]
        found = [self._entries.pop(queue) for queue in gone]
        for queue in gone:
            self._forget(queue)
        return found

    def add(self, nomination: Nomination) -> None:
        """One more takes part; nobody else of its queue may be left."""
        self._notice_moves()
        queue = self._state.tree.queues[nomination.record.workload.queue]
        self._entries[queue] = nomination
        self._forget(queue)
        mark = self._with_the_going()
        self._push(queue.root)
        self._without_the_going(mark)

    def going(self, node: TreeNode, charge: Charge) -> None:
        """The victim counts in every share until the round ends."""
        self._going.append((node, charge))

    def _notice_moves(self) -> None:
        for queue in self._state.tree.moved:
            self._forget(queue)

    def _with_the_going(self) -> int:
        mark = self._state.log.mark()
        for node, charge in self._going:
            self._state.tree.add(node, charge, FUTURE)
        return mark

    def _without_the_going(self, mark: int) -> None:
        self._state.log.revert(mark)
        self._state.tree.moved.clear()

    def _first(self) -> Nomination | None:
        while self._heap:
            order, _, root = heapq.heappop(self._heap)
            if self._queued.get(root) != order:  # put here once more since
                continue
            del self._queued[root]
            winner = self._contender(root)
            if winner is None:
                continue
            if self._key(winner) != order:  # the tree has another winner since it was put here
                self._push(root)
                continue
            queue = self._state.tree.queues[winner.nomination.record.workload.queue]
            del self._entries[queue]
            self._forget(queue)
            self._push(root)
            return winner.nomination
        return None

    def _push(self, root: TreeNode) -> None:
        winner = self._contender(root)
        if winner is not None and self._queued.get(root) != self._key(winner):
            self._queued[root] = self._key(winner)
            heapq.heappush(self._heap, (self._queued[root], root.path, root))

    def _key(self, winner: Contender) -> tuple[int, Order]:
        return (0 if self._fair else winner.nomination.level, winner.nomination.record.order)

    def _forget(self, queue: TreeNode) -> None:
        self._known.pop(queue, None)
        for node in queue.ancestors():
            self._known.pop(node, None)

    def _contender(self, node: TreeNode) -> Contender | None:
        unknown = [] if node in self._known else [node]  # not recursive: trees may be deep
        for each in unknown:
            unknown.extend(child for child in each.children if child not in self._known)
        for each in reversed(unknown):
            self._known[each] = self._decide(each)
        return self._known[node]

    def _decide(self, node: TreeNode) -> Contender | None:
        """The winner at a node whose children's are known."""
        found: Contender | None = None
        if node.is_queue:
            entry = self._entries.get(node)
            if entry is not None:
                found = self._enter(node, entry, entry.assignment.charge)
        else:
            best: Contender | None = None
            below = node
            for child in node.children:
                contender = self._known[child]
                if contender is not None and (best is None or self._before(contender, best)):
                    best, below = contender, child
            if best is not None:
                found = self._enter(node, best.nomination, passed_up(below, best.charge))
        return found

    def _enter(self, node: TreeNode, nomination: Nomination, charge: Charge) -> Contender:
        if not self._fair:
            return Contender(node, nomination, charge, NO_SHARE, nomination.level > 0)
        share = share_of(node, charge) if node.parent is not None else NO_SHARE
        return Contender(node, nomination, charge, share, share.borrows_any(nomination.assignment.charge))

    def _before(self, a: Contender, b: Contender) -> bool:
        one, other = a.nomination, b.nomination
        if self._fair:
            if a.borrows != b.borrows:
                return b.borrows
            difference = self._compare_shares(a, b)
            if difference:
                return difference < 0
            return one.record.order < other.record.order
        if (one.level, -one.record.workload.priority) != (other.level, -other.record.workload.priority):
            return (one.level, -one.record.workload.priority) < (other.level, -other.record.workload.priority)
        if self._history is not None and a.borrows:
            past, others = self._history.past_share(a.node), self._history.past_share(b.node)
            if past != others:
                return past < others
        return one.record.order < other.record.order

    def _compare_shares(self, a: Contender, b: Contender) -> int:
        if self._history is None or not a.borrows:
            return compare(a.share, b.share)
        one, other = self._history.corrected(a.node, a.share), self._history.corrected(b.node, b.share)
        return (one > other) - (one < other)
