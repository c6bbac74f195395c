"""Preemption under fair sharing (kueue.md 2.7): who gives way is decided by shares at the children of the lowest
cohort above both sides, all the way from the root to the queue that is furthest over its share.

The preemptor's charge counts in all shares during the search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from queue_manager.engine.configuration import Cell, FairSharing, FairStrategy, PreemptionPolicy
from queue_manager.engine.nomination import Victim
from queue_manager.engine.preemption import REASONS, Candidate, PreemptionSearch, Variant
from queue_manager.engine.records import Record
from queue_manager.engine.shares import Share, compare, share_of
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, TreeNode


@dataclass(frozen=True, slots=True)
class Taken:
    """A candidate and the rule by which it may go; no strategy where it may go whatever the shares."""

    candidate: Candidate
    strategy: FairStrategy | None = None


class FairPreemptionSearch(PreemptionSearch):
    """One search under fair sharing; see `PreemptionSearch` for what it is given."""

    def __init__(
        self,
        state: State,
        record: Record,
        charge: Mapping[Cell, int],
        contested: frozenset[Cell],
        placeable: Callable[[], bool] | None,
        fair: FairSharing,
    ) -> None:
        super().__init__(state, record, charge, contested, placeable)
        self._fair = fair
        self._strict = state.configuration.policies.just_victims
        self._taken: list[Taken] = []

    def find(self) -> list[Victim]:
        """The victims; empty if no set of candidates that may go makes enough room."""
        candidates = self._candidates()
        if not candidates:
            return []
        mark = self._state.log.mark()
        taken = self._take(candidates)
        self._state.log.revert(mark)
        return [Victim(t.candidate.record, REASONS[t.candidate.variant]) for t in self._filled_back(taken)]

    def may_go(self) -> list[Record]:
        """Everybody who may be evicted, in no particular order."""
        return [candidate.record for candidate in self._candidates()]

    # ---- candidates

    def _candidates(self) -> list[Candidate]:
        """Of this queue and of all borrowers in the tree; in the order in which they go within a queue."""
        found = list(self._of_queue())
        policy = self._queue.preemption.reclaim_within_cohort
        if policy is not PreemptionPolicy.NEVER and self._node.parent is not None:
            below = self._node
            for cohort in self._node.ancestors():
                nodes = [n for n in _queues_below(cohort, below) if not n.within_subtree(self._contested, FUTURE)]
                found += [
                    Candidate(record, node, Variant.FAIR_SHARE, cohort)
                    for record, node, _ in self._merged(nodes, cohort, policy)
                ]
                below = cohort
        found.sort(key=lambda candidate: self._place(candidate.record))
        found.sort(key=lambda candidate: (candidate.record.hold is None, candidate.node is self._node))
        return found

    # ---- the search

    def _take(self, candidates: list[Candidate]) -> list[Taken]:
        """Takes candidates away until the workload fits; [] if that does not come about."""
        self._state.tree.add(self._node, self._charge, FUTURE)
        taken = self._taken = []
        passed_over: list[Candidate] = []
        if self._first_strategy(candidates, taken, passed_over):
            return taken
        if len(self._fair.strategies) > 1 and self._second_strategy(passed_over, taken):
            return taken
        return []

    def _first_strategy(self, candidates: list[Candidate], taken: list[Taken], passed_over: list[Candidate]) -> bool:
        picker = TargetPicker(self._node, candidates)
        strategy = self._fair.strategies[0]
        while (queue := picker.next()) is not None:
            while picker.left(queue):
                candidate = picker.pop(queue)
                rule = self._rule(candidate, strategy)
                if rule is None:
                    passed_over += [candidate] if candidate.meeting is not None else []
                    continue
                taken.append(rule)
                self._remove(rule.candidate)
                if self._fits_without_charge():
                    return True
                break
        return False

    def _second_strategy(self, candidates: list[Candidate], taken: list[Taken]) -> bool:
        """Once more over those that the first strategy passed over, one of each queue."""
        picker = TargetPicker(self._node, candidates)
        while (queue := picker.next()) is not None:
            candidate = picker.pop(queue)
            picker.drop(queue)
            if self._lawful(candidate, self._fair.strategies[1]):
                taken.append(Taken(candidate, self._fair.strategies[1]))
                self._remove(candidate)
                if self._fits_without_charge():
                    return True
        return False

    def _fits_without_charge(self) -> bool:
        self._state.tree.remove(self._node, self._charge, FUTURE)
        fits = self._fits(borrow=True)
        self._state.tree.add(self._node, self._charge, FUTURE)
        return fits

    # ---- who may go

    def _rule(self, candidate: Candidate, strategy: FairStrategy) -> Taken | None:
        """By which rule a candidate may go now, None if by none."""
        if candidate.meeting is None:
            return Taken(candidate)
        if self._entitled(candidate):
            own = Candidate(candidate.record, candidate.node, Variant.HIERARCHICAL, candidate.meeting)
            return Taken(own) if self._lawful(own, None) else None
        return Taken(candidate, strategy) if self._lawful(candidate, strategy) else None

    def _entitled(self, candidate: Candidate) -> bool:
        """Whether the preemptor only asks for its own: its queue stays within its nominal quota of what is contested.

        With the policy `just_victims` also where a cohort above it does, on the side away from the candidate.
        """
        if self._node.within_subtree(self._contested, FUTURE):
            return True
        return self._strict and self._own_side(candidate).within_subtree(self._contested, FUTURE)

    def _lawful(self, candidate: Candidate, strategy: FairStrategy | None, final: bool = False) -> bool:
        """Whether a candidate of another queue may go by a strategy (None: it is reclaimed) in the present state.

        With the policy `just_victims`, only who takes of what is contested from others, at every level; and only if
        the preemptor's share is less than the other side's, so that two equal sides do not take turns. In the `final`
        set, after others were spared, it may be as great. That more than two do not take turns either, see `turns.py`.
        """
        if self._strict and not self._valid(candidate, borrow=True):
            return False
        if strategy is None:
            return True
        if self._no_turns and self._state.turns.bars_share(self._record.uid, candidate.record.uid):
            return False
        other = _side(candidate.node, candidate.meeting)
        mine = share_of(self._own_side(candidate))
        difference = compare(mine, share_of(other))
        if difference > 0 or (
            difference == 0 and (self._strict or strategy is FairStrategy.INITIAL_SHARE) and not final
        ):
            return False
        if not final and self._behind_by_history(candidate):
            return False
        mark = self._state.log.mark()
        self._remove(candidate)
        lawful = strategy is FairStrategy.INITIAL_SHARE or compare(mine, share_of(other)) <= 0
        lawful = lawful and not (self._strict and self._comes_back(candidate, other))
        self._state.log.revert(mark)
        return lawful

    def _behind_by_history(self, candidate: Candidate) -> bool:
        """Whether past usage puts the preemptor's side behind the other one, which it then does not evict."""
        history = self._state.history
        if history is None:
            return False
        own, other = self._own_side(candidate), _side(candidate.node, candidate.meeting)
        return history.corrected(own, share_of(own)) > history.corrected(other, share_of(other))

    def _comes_back(self, last: Candidate, side: TreeNode) -> bool:
        """Whether its own quota would let someone back in who was taken from a queue, now that `last` is gone, too.

        Taken are whole workloads, so that less can be left than a queue is entitled to.
        """
        gone = [t.candidate for t in self._taken if t.candidate.node is last.node and t.candidate is not last]
        for candidate in (*gone, last):
            standing = candidate.record.standing[FUTURE]
            assert standing is not None
            for node in {last.node, side}:
                if not any(node.borrowing_with(cell, standing.charge.get(cell, 0), FUTURE) for cell in self._contested):
                    return True
        return False

    def _own_side(self, candidate: Candidate) -> TreeNode:
        return _side(self._node, candidate.meeting)

    # ---- the final set

    def _filled_back(self, taken: list[Taken]) -> list[Taken]:
        """Without those that need not go.

        Kueue puts candidates back as long as the workload fits, though the eviction of others may have been just only
        because these went. With the policy `just_victims` the rest must still be just, in its order.
        """
        kept = self._without_spare(taken, lambda rest: True)
        if len(kept) < len(taken) and self._strict and not self._just(kept):
            kept = self._without_spare(taken, self._just)
        return kept

    def _without_spare(self, taken: list[Taken], just: Callable[[list[Taken]], bool]) -> list[Taken]:
        """Puts back, the last but one first, whom the workload fits beside, if what is left is just."""
        kept = list(taken)
        mark = self._state.log.mark()
        for each in taken:
            self._remove(each.candidate)
        for each in reversed(taken[:-1]):
            rest = [other for other in kept if other is not each]
            before = self._state.log.mark()
            self._give_back(each.candidate)
            fits = self._fits(borrow=True)
            after = self._state.log.mark()
            for other in rest if fits else ():
                self._give_back(other.candidate)
            keep = not (fits and just(rest))
            self._state.log.revert(before if keep else after)
            kept = kept if keep else rest
        self._state.log.revert(mark)
        return kept

    def _just(self, taken: list[Taken]) -> bool:
        """Whether each may go by its rule when those before it are gone, and nobody else."""
        mark = self._state.log.mark()
        self._state.tree.add(self._node, self._charge, FUTURE)
        self._taken = []
        just = True
        for each in taken:
            candidate = each.candidate
            if candidate.meeting is not None:
                just = self._lawful(candidate, each.strategy, final=True) and (
                    each.strategy is not None or self._entitled(candidate)
                )
            if not just:
                break
            self._taken.append(each)
            self._remove(candidate)
        self._state.log.revert(mark)
        return just


def _side(node: TreeNode, meeting: TreeNode | None) -> TreeNode:
    """The child of `meeting` that `node` lies in."""
    while node.parent is not meeting:
        assert node.parent is not None
        node = node.parent
    return node


def _queues_below(cohort: TreeNode, apart: TreeNode) -> list[TreeNode]:
    """All queues of a cohort's subtree, those of the subtree `apart` left out."""
    found: list[TreeNode] = []
    nodes = [child for child in cohort.children if child is not apart]
    for node in nodes:
        if node.is_queue:
            found.append(node)
        else:
            nodes.extend(node.children)
    return found


class TargetPicker:
    """Picks the queue that gives way next: from the root always the child with the greatest share.

    Given up are queues that do not borrow or have no candidate left, and cohorts that do not borrow or have no queue
    left; not, for borrowing nothing, the preemptor's own queue and the cohorts above it. Equal shares: of two queues or
    two cohorts the one whose first candidate goes first; a cohort before a queue.
    """

    def __init__(self, own: TreeNode, candidates: list[Candidate]) -> None:
        self._own = own
        self._above = set(own.ancestors())
        self._pruned: set[TreeNode] = set()
        self._left: dict[TreeNode, deque[tuple[int, Candidate]]] = {}
        for number, candidate in enumerate(candidates):
            self._left.setdefault(candidate.node, deque()).append((number, candidate))

    def next(self) -> TreeNode | None:
        """A queue with a candidate, None when there is none any more."""
        root = self._own.root
        if root is self._own:
            return root if self.left(root) and root not in self._pruned else None
        while root not in self._pruned:
            found = self._descend(root)
            if found is not None:
                return found
        return None

    def left(self, queue: TreeNode) -> bool:
        """Whether a queue has a candidate left."""
        return bool(self._left.get(queue))

    def pop(self, queue: TreeNode) -> Candidate:
        """The first candidate of a queue, which it loses."""
        return self._left[queue].popleft()[1]

    def drop(self, queue: TreeNode) -> None:
        """Does not pick a queue again."""
        self._pruned.add(queue)

    def _descend(self, cohort: TreeNode) -> TreeNode | None:
        """The queue to take from inside a cohort; None if something was given up instead."""
        queues: list[TreeNode] = []
        pending = [cohort]  # not recursive: trees may be deep
        while pending:
            node = pending.pop()
            if node.is_queue:
                queues.append(node)
            else:
                pending.extend(reversed(self._largest(node)))
        return min(queues, key=lambda q: self._left[q][0][0], default=None)

    def _largest(self, cohort: TreeNode) -> list[TreeNode]:
        """The children of a cohort with the largest share; none if something was given up instead."""
        best: tuple[Share, bool] | None = None
        tied: list[TreeNode] = []
        for child in cohort.children:
            if child in self._pruned:
                continue
            if child.is_queue and not self.left(child):
                self._pruned.add(child)
                continue
            share = share_of(child)
            if not share.cells and child is not self._own and child not in self._above:
                self._pruned.add(child)
                continue
            rank = (share, not child.is_queue)
            difference = 1 if best is None else compare(share, best[0]) or rank[1] - best[1]
            if difference > 0:
                best, tied = rank, [child]
            elif difference == 0:
                tied.append(child)
        if not tied:
            self._pruned.add(cohort)
        return tied
