"""Classical preemption (kueue.md 2.6): which workloads have to go so that another one fits.

Works in the FUTURE view, where what already drains is gone and what is kept for preemptors is taken. A workload for
which something is kept counts like one that runs: whoever might evict it may take what is kept for it, and costs
nobody a running pod; such candidates come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import merge
from itertools import chain
from typing import Generic, TypeVar

from queue_manager.engine.configuration import Cell, PreemptionPolicy, Queue
from queue_manager.engine.decision import EvictionReason
from queue_manager.engine.flavors import Mode
from queue_manager.engine.guard import Guard
from queue_manager.engine.nomination import Victim
from queue_manager.engine.protection import saved_at, spared_until
from queue_manager.engine.records import Record, User
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, TreeNode

T = TypeVar("T")


class Variant(Enum):
    """By which rule a candidate may go."""

    WITHIN_QUEUE = "within queue"
    HIERARCHICAL = "hierarchical"
    WITHOUT_BORROWING = "without borrowing"
    WHILE_BORROWING = "while borrowing"
    FAIR_SHARE = "fair share"


REASONS = {
    Variant.WITHIN_QUEUE: EvictionReason.IN_CLUSTER_QUEUE,
    Variant.HIERARCHICAL: EvictionReason.IN_COHORT_RECLAMATION,
    Variant.WITHOUT_BORROWING: EvictionReason.IN_COHORT_RECLAMATION,
    Variant.WHILE_BORROWING: EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
    Variant.FAIR_SHARE: EvictionReason.IN_COHORT_FAIR_SHARING,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workload that policy lets go; `meeting` is the lowest cohort above both it and the preemptor (None: same
    queue)."""

    record: Record
    node: TreeNode
    variant: Variant
    meeting: TreeNode | None


Source = Iterator[tuple[Record, TreeNode, TreeNode | None]]
"""Workloads with their queue and the cohort above both sides."""


class Lazily(Generic[T]):
    """What an iterator gives, worked out as far as it is asked for, and once."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._seen: list[T] = []

    def __iter__(self) -> Iterator[T]:
        at = 0
        while True:
            if at == len(self._seen):
                one = next(self._source, None)
                if one is None:
                    return
                self._seen.append(one)
            yield self._seen[at]
            at += 1

    def __bool__(self) -> bool:
        return any(True for _ in self)


class PreemptionSearch:
    """One search: `record` wants `charge` in its queue; `contested` are the cells where room has to be made.

    `placeable` tells whether its pods find nodes once victims are taken off theirs; None where nodes do not matter.
    With `only`, nobody goes who has no pod on these nodes. `retry_at` is when the first of those ends that were left
    out because something protects them still, 0 if none was. `guard` are the holds that have to be heeded.
    """

    def __init__(
        self,
        state: State,
        record: Record,
        charge: Mapping[Cell, int],
        contested: frozenset[Cell],
        placeable: Callable[[], bool] | None = None,
    ) -> None:
        queue = state.queues[record.workload.queue]
        assert queue.queue is not None
        assert queue.node is not None
        self._state = state
        self._record = record
        self._queue: Queue = queue.queue
        self._node: TreeNode = queue.node
        self._charge = charge
        self._contested = contested
        self._placeable = placeable
        self._no_turns = state.configuration.policies.no_turns
        self.retry_at = 0
        self.only: frozenset[str] | None = None
        self.guard: Guard | None = None

    def may_go(self) -> list[Record]:
        """Everybody who may be evicted, in no particular order."""
        hierarchical, by_priority = self._from_cohort()
        return [candidate.record for candidate in (*hierarchical, *by_priority, *self._of_queue())]

    def find(self) -> list[Victim]:
        """The victims; empty if no set of candidates makes enough room."""
        hierarchical, by_priority = self._from_cohort()
        same_queue = self._of_queue()
        sequence: Iterable[Candidate] = Lazily(chain(hierarchical, by_priority, same_queue))
        if not sequence:
            return []
        if self._state.holders:
            sequence = sorted(sequence, key=lambda candidate: candidate.record.hold is None)
        for borrow in self._attempts(bool(hierarchical), bool(by_priority)):
            victims = self._attempt(sequence, borrow)
            if victims:
                return victims
        return []

    # ---- candidates

    def _of_queue(self) -> Lazily[Candidate]:
        """Candidates of the same queue, in the order in which they go."""
        policy = self._queue.preemption.within_queue
        nodes = [] if policy is PreemptionPolicy.NEVER else [self._node]
        return Lazily(
            Candidate(record, node, Variant.WITHIN_QUEUE, None) for record, node, _ in self._merged(nodes, None, policy)
        )

    def _from_cohort(self) -> tuple[Lazily[Candidate], Lazily[Candidate]]:
        """Candidates of other queues, in the order in which they go: those reclaimed because the quota belongs here,
        and those by priority only."""
        hierarchical: list[Source] = []
        by_priority: list[Source] = []
        for nodes, cohort, advantage in self._borrowing():
            found = hierarchical if advantage else by_priority
            found.append(self._merged(list(nodes), cohort, self._queue.preemption.reclaim_within_cohort))
        return self._candidates_of(hierarchical, True), self._candidates_of(by_priority, False)

    def _borrowing(self) -> Iterator[tuple[Iterator[TreeNode], TreeNode, bool]]:
        """By cohort, from below: the queues over their quota, and whether the quota belongs here."""
        if self._queue.preemption.reclaim_within_cohort is PreemptionPolicy.NEVER or self._node.parent is None:
            return
        advantage, remaining = self._fits_quota(self._node, self._charge)
        below: TreeNode = self._node
        in_vain = self._only_while_borrowing()
        for cohort in self._node.ancestors():
            # Those by priority only go for nobody who borrows: where he has to, they are not even looked for.
            if advantage or not in_vain:
                yield self._borrowers(cohort, below), cohort, advantage
            fits, remaining = self._fits_quota(cohort, remaining)
            advantage = advantage or fits
            below = cohort

    def finds_somebody(self) -> bool:
        """Whether policy lets anybody go at all, protected or not."""
        preemption = self._queue.preemption
        if preemption.within_queue is not PreemptionPolicy.NEVER and self._allowed(preemption.within_queue, self._node):
            return True
        reclaim = preemption.reclaim_within_cohort
        return any(self._allowed(reclaim, node) for nodes, _, _ in self._borrowing() for node in nodes)

    def _allowed(self, policy: PreemptionPolicy, node: TreeNode) -> bool:
        """Whether policy lets anybody of a queue go: the first to go has the lowest priority of all."""
        users = self._in_order(node)
        if policy is PreemptionPolicy.LOWER_PRIORITY:
            users = users[:1]
        return any(self._allows(policy, record) for _, _, _, record in users)

    def _candidates_of(self, sources: list[Source], advantage: bool) -> Lazily[Candidate]:
        found = sources[0] if len(sources) == 1 else merge(*sources, key=lambda each: self._place(each[0]))
        return Lazily(
            Candidate(record, node, self._variant(record, advantage), cohort) for record, node, cohort in found
        )

    def _merged(self, nodes: list[TreeNode], meeting: TreeNode | None, policy: PreemptionPolicy) -> Source:
        """Who may go of these queues, in the order in which they go; looked at as far as somebody asks."""
        lists = [users for node in nodes if (users := self._in_order(node))]
        for _, _, _, record in lists[0] if len(lists) == 1 else merge(*lists):
            if self._is_open(record) and self._may_go(policy, record):
                standing = record.standing[FUTURE]
                assert standing is not None
                yield record, self._state.tree.queues[standing.queue], meeting

    def _is_open(self, record: Record) -> bool:
        """Whether this very search may ask for the workload."""
        if record is self._record or record.uid == self._record.workload.resizes:
            return False
        standing = record.standing[FUTURE]
        return self.only is None or (standing is not None and not self.only.isdisjoint(standing.places))

    def _in_order(self, node: TreeNode) -> list[User]:
        """Workloads of a queue that may go at all and use a contested cell. Known until what stands in the queue
        changes; checkpoints that lie ahead change the order with time."""
        queue = self._state.queue(node.name)
        known = queue.users.get(self._contested)
        if known is not None:
            return known
        users = list(self._users(node))
        found = sorted((*self._place(record), record) for record in users)
        if all(record.workload.checkpointed_at <= self._state.now for record in users):
            queue.users[self._contested] = found
        return found

    def _fits_quota(self, node: TreeNode, charge: Mapping[Cell, int]) -> tuple[bool, dict[Cell, int]]:
        """Whether the node's own subtree quota holds the charge, and what of it remains for the nodes above."""
        fits = not any(node.borrowing_with(cell, amount, FUTURE) for cell, amount in charge.items())
        return fits, {c: max(0, amount - node.local_available(c, FUTURE)) for c, amount in charge.items()}

    def _borrowers(self, cohort: TreeNode, visited: TreeNode) -> Iterator[TreeNode]:
        """Queues of a cohort, `visited` subtree apart, that lie in subtrees over their quota of a contested cell."""
        levels = [iter(cohort.children)]  # not recursive: trees may be deep
        while levels:
            child = next(levels[-1], None)
            if child is None:
                levels.pop()
            elif child is visited or child.within_subtree(self._contested, FUTURE):
                continue
            elif child.is_queue:
                yield child
            else:
                levels.append(iter(child.children))

    def _users(self, node: TreeNode) -> Iterator[Record]:
        """As `_in_order`, as they stand."""
        contested = self._contested
        for record in self._state.queue(node.name).standing.values():
            standing = record.standing[FUTURE]
            if standing is None or not record.workload.preemptible:
                continue
            for cell in contested:
                if standing.charge.get(cell, 0) > 0:
                    yield record
                    break

    def _may_go(self, policy: PreemptionPolicy, candidate: Record) -> bool:
        """Whether policy lets a candidate go and nothing protects it now."""
        if not self._allows(policy, candidate):
            return False
        if self._no_turns and self._state.turns.repeats(self._record.uid, candidate.uid):
            return False
        until = spared_until(self._state, candidate)
        if until <= self._state.now:
            return True
        self.retry_at = min(self.retry_at or until, until)
        return False

    def _allows(self, policy: PreemptionPolicy, candidate: Record) -> bool:
        own, other = self._record.workload, candidate.workload
        if policy is PreemptionPolicy.ANY:
            return True
        if other.priority != own.priority:
            return other.priority < own.priority
        return policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY and other.queued > own.queued

    def _variant(self, candidate: Record, advantage: bool) -> Variant:
        if advantage:
            return Variant.HIERARCHICAL
        preemption = self._queue.preemption
        threshold = preemption.borrow_priority_threshold
        priority = candidate.workload.priority
        if (
            preemption.borrow_within_cohort is PreemptionPolicy.NEVER
            or priority >= self._record.workload.priority
            or (threshold is not None and priority > threshold)
        ):
            return Variant.WITHOUT_BORROWING
        return Variant.WHILE_BORROWING

    def _place(self, record: Record) -> tuple[int, int, str]:
        """Lower priority first, then whoever loses least work (without checkpoints: the one admitted last), then
        uid."""
        return record.workload.priority, -saved_at(self._state, record), record.uid

    # ---- attempts

    def _attempts(self, hierarchical: bool, by_priority: bool) -> tuple[bool, ...]:
        """In which order to try with and without borrowing."""
        never = self._queue.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
        if not (hierarchical or by_priority) or self._only_while_borrowing():
            return (True,)
        return (False, True) if never and not hierarchical else (True, False)

    def _only_while_borrowing(self) -> bool:
        """Whether the workload has to borrow, and may evict nobody by priority for that."""
        never = self._queue.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
        return never and not self._under_nominal()

    def _under_nominal(self) -> bool:
        usage = self._node.usage[FUTURE]
        return all(usage.get(cell, 0) < self._node.nominal(cell) for cell in self._contested)

    def _attempt(self, sequence: Iterable[Candidate], borrow: bool) -> list[Victim]:
        """Takes candidates away until the workload fits, then puts back those that need not go."""
        mark = self._state.log.mark()
        removed: list[Candidate] = []
        for candidate in sequence:
            if not self._valid(candidate, borrow):
                continue
            self._remove(candidate)
            removed.append(candidate)
            if self._fits(borrow):
                kept = self._fill_back(removed, borrow)
                self._state.log.revert(mark)
                return [Victim(c.record, REASONS[c.variant]) for c in kept]
        self._state.log.revert(mark)
        return []

    def _valid(self, candidate: Candidate, borrow: bool) -> bool:
        """Whether a candidate of another queue still takes what belongs to others, at every level below the meeting."""
        if candidate.meeting is None:
            return True
        if borrow and candidate.variant is Variant.WITHOUT_BORROWING:
            return False
        node: TreeNode | None = candidate.node
        while node is not None and node is not candidate.meeting:
            if node.within_subtree(self._contested, FUTURE):
                return False
            node = node.parent
        return True

    def _fill_back(self, removed: list[Candidate], borrow: bool) -> list[Candidate]:
        """Puts candidates back, the last but one first, as long as the workload fits; then checks who is left again.

        With the policy `just_victims` a set in which somebody's eviction is no longer justified is not used (peers.md
        2.7, rule 5).
        """
        kept = [removed[-1]]
        for candidate in reversed(removed[:-1]):
            mark = self._state.log.mark()
            self._give_back(candidate)
            if not self._fits(borrow):
                self._state.log.revert(mark)
                kept.append(candidate)
        just = not self._state.configuration.policies.just_victims or self._justified(kept, borrow)
        return kept if just else []

    def _justified(self, kept: list[Candidate], borrow: bool) -> bool:
        """Whether each victim was still a borrower when only the others of the final set were gone."""
        for candidate in kept:
            if candidate.meeting is None:
                continue
            mark = self._state.log.mark()
            self._give_back(candidate)
            valid = self._valid(candidate, borrow)
            self._state.log.revert(mark)
            if not valid:
                return False
        return True

    def _remove(self, candidate: Candidate) -> None:
        standing = candidate.record.standing[FUTURE]
        assert standing is not None
        self._state.tree.remove(candidate.node, standing.charge, FUTURE)
        if self._placeable is not None:
            self._state.fleet.vacate(standing.places, FUTURE, standing.alone)
        if self.guard is not None:
            self.guard.lift(candidate.record.uid, -1)

    def _give_back(self, candidate: Candidate) -> None:
        standing = candidate.record.standing[FUTURE]
        assert standing is not None
        self._state.tree.add(candidate.node, standing.charge, FUTURE)
        if self._placeable is not None:
            self._state.fleet.occupy(standing.places, FUTURE, standing.alone)
        if self.guard is not None:
            self.guard.lift(candidate.record.uid, 1)

    def _fits(self, borrow: bool) -> bool:
        if not borrow and any(self._node.borrowing_with(cell, amount, FUTURE) for cell, amount in self._charge.items()):
            return False
        if not self._state.tree.fits(self._node, self._charge, FUTURE):
            return False
        if self.guard is not None and not self.guard.fits(self._charge):
            return False
        return self._placeable is None or self._placeable()

    def _height_without(self, victims: list[Victim], cell: Cell, amount: int) -> int:
        """Height at which `amount` of a cell borrows once the victims are gone."""
        mark = self._state.log.mark()
        for victim in victims:
            standing = victim.record.standing[FUTURE]
            assert standing is not None
            self._state.tree.remove(self._state.tree.queues[standing.queue], standing.charge, FUTURE)
        height, _ = self._node.borrow_height(cell, amount, FUTURE)
        self._state.log.revert(mark)
        return height

    def meaning(self, victims: list[Victim], cell: Cell, amount: int) -> tuple[Mode, int]:
        """What the victims found mean for a flavor: the mode, and the height at which it borrows then (kueue.md
        2.5b)."""
        if not victims:
            return Mode.NO_CANDIDATES, self._node.borrow_height(cell, amount, FUTURE)[0]
        own = any(victim.reason is EvictionReason.IN_CLUSTER_QUEUE for victim in victims)
        return (Mode.PREEMPT if own else Mode.RECLAIM), self._height_without(victims, cell, amount)
