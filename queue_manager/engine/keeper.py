"""Holds for the starving within a pass: whose turn it is, what is planned anew, what is over (issue 4, starvation).

Before the rounds each hold is tried first: what was kept is for nobody else. Then, in each tree that something happened
in, the workloads that wait longest at the head of their queues get a hold, as many as the configuration allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from queue_manager.engine.backfill import HoldPlanner, beyond_hope
from queue_manager.engine.decision import Hold
from queue_manager.engine.flavors import Mode
from queue_manager.engine.holds import StarvingHold, Target
from queue_manager.engine.nominate import Nominator
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.records import QueueState, Record
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, TreeNode

MOST_TRIED = 16
"""How many heads of one tree are looked at in one pass to find one that a hold would help."""
MOST_LOOKS = 3
"""How often holds are planned anew in one pass because of what the pass itself admitted."""


class Keeper:
    """Keeps the holds of one state during one pass."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._starvation = state.starving.rules
        self._roots: set[TreeNode] = set()
        self._nodes = False
        self._looks = 0

    def due(self) -> bool:
        """Whether a workload has waited long enough since the last pass."""
        due = self._state.starving.due
        return self._starvation is not None and bool(due) and due[0][0] <= self._state.now

    def look(self) -> None:
        """Notes in which trees something happened."""
        if self._starvation is None:
            return
        state = self._state
        self._nodes = state.nodes_changed
        self._roots.update(state.members if state.nodes_changed else state.dirty)
        for name in state.live:
            node = state.queue(name).node
            if node is not None:
                self._roots.add(node.root)
        self._note_due()

    def _note_due(self) -> None:
        """Notes whose time has come, also those that came back to their queue in this very pass."""
        state = self._state
        while self.due():
            entry = heapq.heappop(state.starving.due)
            state.log.call(heapq.heappush, state.starving.due, entry)
            record = state.records.get(entry[1])
            if record is not None and record.group is not None:
                queue = state.queue(record.workload.queue)
                assert queue.node is not None
                state.log.put(state.starving.overdue.setdefault(queue.node.root, {}), queue.name, queue)
                self._roots.add(queue.node.root)

    def before(self) -> Iterator[Nomination]:
        """Those whose room is complete; the others are planned anew, and free holds are given away."""
        for hold in self._in_order():
            if hold.node.root not in self._roots and not (hold.on_nodes and self._nodes):
                continue
            if self._overtaken(hold.record):
                self._state.starving.end(hold.record.uid)
                continue
            mark = self._state.log.mark()
            self._state.starving.stand_aside(hold)
            nomination = self._nominate(hold.record, preempt=False)
            self._state.log.revert(mark)
            if nomination.mode is Mode.FIT:
                yield nomination
            else:
                self._replan(hold)
        self._give_away()

    def after(self) -> bool:
        """After rounds: whether a hold changed so that others have to be tried again."""
        self._looks += 1
        self._note_due()
        if self._starvation is None or self._looks > MOST_LOOKS:
            return False
        self._give_away()
        changed = False
        for hold in self._in_order():
            if hold.record.uid in self._state.starving.by_uid and not self._intact(hold):
                changed = self._replan(hold) or changed
        return changed

    def holds(self) -> tuple[Hold, ...]:
        """All holds, for the plan."""
        now = self._state.now
        return tuple(
            Hold(
                hold.record.uid,
                hold.target.standing.queue,
                hold.target.standing.charge,
                tuple(sorted(hold.target.standing.places)),
                max(hold.target.expected, now) if hold.target.expected else 0,
            )
            for hold in self._in_order()
        )

    # ---- holds that are there

    def _in_order(self) -> list[StarvingHold]:
        """In the order of the workloads they are for: each is planned behind those before it."""
        return sorted(self._state.starving.by_uid.values(), key=lambda hold: hold.record.order)

    def _nominate(self, record: Record, preempt: bool) -> Nomination:
        assert record.group is not None
        return Nominator(self._state, record, record.group.prepared, preempt=preempt).nominate()

    def _overtaken(self, record: Record) -> bool:
        """Whether somebody stands before it in a StrictFIFO queue by now, who blocks it: one that came back, or of
        higher priority."""
        queue = self._state.queue(record.workload.queue)
        first = queue.pending.first() if queue.strict else None
        return first is not None and first != record.uid

    def _intact(self, hold: StarvingHold) -> bool:
        """Whether the starving workload still fits when the hold is complete."""
        state, standing = self._state, hold.target.standing
        mark = state.log.mark()
        state.starving.shift(hold, standing, -1)
        fits = state.tree.fits(hold.node, standing.charge, hold.view)
        fits = fits and state.fleet.has_room(standing.places, hold.view, standing.alone)
        state.log.revert(mark)
        return fits

    def _replan(self, hold: StarvingHold) -> bool:
        """Plans a hold anew, or ends it when there is no hope any more; says whether it changed."""
        state = self._state
        target = HoldPlanner(state, hold.record).plan(hold)
        if target is None:
            state.starving.end(hold.record.uid)
        elif self._same(hold.target, target):
            return False
        else:
            state.starving.begin(hold.record, target)
        return True

    def _same(self, old: Target, new: Target) -> bool:
        """Whether two targets keep the same from the same."""

        def counted(uids: frozenset[str]) -> frozenset[str]:
            records = self._state.records
            return frozenset(uid for uid in uids if uid in records and records[uid].standing[FUTURE] is not None)

        return (old.standing, old.expected, counted(old.gone), counted(old.stays)) == (
            new.standing,
            new.expected,
            counted(new.gone),
            counted(new.stays),
        )

    # ---- new ones

    def _give_away(self) -> None:
        """New holds in the trees that something happened in."""
        if self._starvation is None:
            return
        state = self._state
        for root in sorted(self._roots & state.starving.overdue.keys(), key=lambda node: node.path):
            taken = sum(hold.node.root is root for hold in state.starving.by_uid.values())
            free = self._starvation.per_cohort - taken
            if free <= 0:
                continue
            queues = state.starving.overdue[root].values()
            heads = [record for queue in queues for record in self._starving_heads(queue)]
            for record in sorted(heads, key=lambda record: record.order)[:MOST_TRIED]:
                if free > 0:
                    free -= self._hold_for(record)

    def _starving_heads(self, queue: QueueState) -> list[Record]:
        """The first of a queue that have any hope and no hold yet, as many as may get one, if they waited long
        enough."""
        assert self._starvation is not None
        if queue.node is None:
            return []
        most = self._starvation.per_cohort
        if queue.strict:
            first = queue.pending.first()
            heads = [first] if first else []
        else:
            groups = [g for g in queue.pending.groups.values() if not beyond_hope(g, queue.node)]
            firsts = heapq.nsmallest(most, groups, key=lambda group: group.order)
            heads = [uid for group in firsts for _, uid in group.members[: most + 1]]
        waiting = [uid for uid in heads if uid not in self._state.starving.by_uid and uid not in self._state.draining]
        records = [self._state.records[uid] for uid in waiting]
        first_ones = sorted(records, key=lambda record: record.order)[:most]
        since = self._state.now - self._starvation.after
        return [record for record in first_ones if record.workload.queued <= since]

    def _hold_for(self, record: Record) -> bool:
        """Begins a hold, unless the workload can start anyway, or never."""
        nomination = self._nominate(record, preempt=True)
        if nomination.mode >= Mode.DEFERRED or nomination.victims or nomination.limit is not None:
            return False
        target = None if nomination.hopeless else HoldPlanner(self._state, record).plan(None)
        if target is None:
            return False
        self._state.starving.begin(record, target)
        return True
