"""Who is tried next: the heads of the queues, and when one that failed is worth another try (kueue.md 2.3, 2.4)."""

from __future__ import annotations

from dataclasses import replace

from queue_manager.engine.configuration import PreemptionPolicy
from queue_manager.engine.decisions import Decisions
from queue_manager.engine.flavors import Mode
from queue_manager.engine.pending import Group, Parked
from queue_manager.engine.preemption import PreemptionSearch
from queue_manager.engine.prepared import Prepared
from queue_manager.engine.records import QueueState, Record
from queue_manager.engine.shelves import Chances
from queue_manager.engine.state import State
from queue_manager.engine.tree import TreeNode


class Heads:
    """The heads of the queues of one state during one pass, whose `decisions` tell who was passed over."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self._state = state
        self._decisions = decisions
        self._holds = state.configuration.policies.hold_freed_quota

    # ---- what is tried again

    def retry(self, uid: str) -> None:
        """Tries a workload again whose possible victims are no longer protected."""
        record = self._state.records.get(uid)
        if record is None or record.group is None:
            return
        queue = self._state.queue(record.workload.queue)
        if queue.blocked is not None and queue.blocked.uid == uid:
            self._state.log.assign(queue, "blocked", None)
        queue.pending.unpark(record.group)
        self._state.live.add(queue.name)

    def wake(self) -> None:
        """Makes everything live that waits for what was marked as changed."""
        state = self._state
        for root in state.dirty:
            for queue in state.members.get(root, ()):
                self.unpark(queue, topology_only=False)
        if state.nodes_changed:
            for queue in state.queues.values():
                self.unpark(queue, topology_only=True)
        state.log.assign(state, "dirty", set())
        state.log.assign(state, "nodes_changed", False)

    def unpark(self, queue: QueueState, topology_only: bool) -> bool:
        """Tries the parked of a queue again, `topology_only` those that nodes stood in the way of; says if any."""
        blocked = queue.blocked
        if blocked is not None and (blocked.topology or not topology_only):
            self._state.log.assign(queue, "blocked", None)
        woken = blocked is not None and queue.blocked is None
        for group in list(queue.pending.parked.values()):
            if group.parked is not None and (group.parked.topology or not topology_only):
                if self._hopeless(queue, group.parked):
                    continue
                queue.pending.unpark(group)
                woken = True
        if woken or queue.pending.shelves:
            self._state.live.add(queue.name)
        return woken

    def _hopeless(self, queue: QueueState, parked: Parked) -> bool:
        """Whether something that a group needs still fits in no flavor, and nobody could be evicted for it, so that
        trying it again is no use.

        Not under fair sharing, nor where a workload that can't start has room kept for it in its round: there it takes
        the search to know. Not for Kueue's semantics, where every parked workload is tried again and stands in others'
        way while it is.
        """
        if parked.limited:
            nomination = parked.nomination
            return queue.limit_hit(nomination.record.workload, nomination.assignment.charge) is not None
        if not self._holds or parked.ahead:
            return False
        return self._is_vain(queue, parked.nomination.record, parked.nomination.assignment.prepared)

    def _is_vain(self, queue: QueueState, record: Record, prepared: Prepared) -> bool:
        """Whether a workload lacks quota, and surely finds nobody to evict for it."""
        if queue.node is None or queue.queue is None:
            return False
        if not queue.may_preempt:
            return prepared.unusable or Chances(queue.node).lack_of(prepared) is not None
        keeps_room = queue.queue.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY
        if keeps_room or self._state.configuration.fair_sharing is not None:
            return False
        lack = Chances(queue.node).lack_of(prepared)
        if lack is None:
            return False
        return not any(
            PreemptionSearch(self._state, record, {cell: amount}, frozenset((cell,))).finds_somebody()
            for cell, amount in lack
        )

    # ---- heads

    def of_round(self) -> list[Record]:
        """Heads of live queues, with the blocked heads of StrictFIFO queues in the same trees."""
        state = self._state
        heads: list[Record] = []
        roots: dict[str, TreeNode] = {}
        for name in sorted(state.live):
            queue = state.queue(name)
            record = self.of_queue(queue)
            if record is None or queue.node is None:
                state.live.discard(name)
                continue
            heads.append(record)
            roots[queue.node.root.path] = queue.node.root
        if heads and not self._holds:  # in Kueue a StrictFIFO head is tried in every cycle, whatever its tree is
            roots = {queue.node.root.path: queue.node.root for queue in state.queues.values() if queue.node is not None}
        for _, root in sorted(roots.items()):
            for queue in state.members[root]:
                if queue.blocked is not None and queue.name not in state.live:
                    first = queue.pending.first()
                    if first == queue.blocked.uid:
                        heads.append(state.records[first])
        return heads

    def of_queue(self, queue: QueueState) -> Record | None:
        """Who is tried next in a queue; None if nobody is."""
        records = self._state.records
        if not queue.strict:
            sticky = records.get(queue.sticky)
            if sticky is not None and sticky.group is not None and sticky.group.parked is None:
                return sticky
            group = self._promising(queue) if self._shelves(queue) else queue.pending.head()
            return None if group is None else records[group.first]
        first = queue.pending.first()
        if not first:
            return None
        record = records[first]
        holders = self._state.holders_of(queue)
        if holders and holders[0].order < record.order:
            return None
        return None if queue.blocked is not None and queue.blocked.uid == record.uid else record

    def _shelves(self, queue: QueueState) -> bool:
        """Whether groups without a chance are passed over at once. Not for Kueue's semantics, where each has its turn
        and stands in others' way meanwhile, and not where limits apart from quota come first."""
        return self._holds and queue.tally is None and not queue.strict

    def _promising(self, queue: QueueState) -> Group | None:
        """Who is tried next; those before without a chance go to a shelf."""
        node = queue.node
        assert node is not None
        opened, chances = queue.pending.opened(node), Chances(node)
        while (group := queue.pending.best(opened)) is not None:
            evicts = queue.may_preempt and self._state.records[group.first].workload.may_preempt
            if evicts:
                if self._fails_again(queue, group):
                    continue
                lack = None
            elif (known := group.before) is not None and not known.is_open(node):
                lack = known.lack
            else:
                lack = chances.lack_of(group.prepared)
            if lack is None:
                queue.pending.unshelve(group)
                return group
            queue.pending.shelve(group, lack, node)
            assert group.shelf is not None
            self._decisions.tell_group(group, group.shelf.kind)
        return None

    def _fails_again(self, queue: QueueState, group: Group) -> bool:
        """Whether a group that found neither quota nor anybody to evict surely finds none again; it is parked then, for
        the same reason."""
        failed, record = group.failed, self._state.records[group.first]
        if failed is None or failed.ahead or failed.limited or failed.topology:
            return False
        if failed.nomination.mode > Mode.NO_CANDIDATES or not self._is_vain(queue, record, group.prepared):
            return False
        self._decisions.park(replace(failed.nomination, record=record, retry_at=0))
        return True
