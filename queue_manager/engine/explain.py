"""Why a workload waits, in numbers: every limit and every lack that stands in the way (design, section 7)."""

from __future__ import annotations

from queue_manager.engine.decision import Blocker, BlockerType, Reason, Waiting
from queue_manager.engine.diagnosis import (
    diagnose,
    lacks_of,
)
from queue_manager.engine.flavors import Mode
from queue_manager.engine.hold_blockers import held_for, hold_blockers
from queue_manager.engine.lack_blockers import MOST_HOLDERS, LackBlockers
from queue_manager.engine.nominate import Nominator
from queue_manager.engine.nomination import Nomination, usable
from queue_manager.engine.pending import Group, Parked
from queue_manager.engine.quantities import show_time
from queue_manager.engine.reasons import reason_of
from queue_manager.engine.records import Phase, QueueState, Record
from queue_manager.engine.resize import owner_uid
from queue_manager.engine.shares import share_of
from queue_manager.engine.state import State

Kind = tuple[object, ...]
Because = tuple[Reason, tuple[Blocker, ...]]


class Explainer:
    """Explains waiting workloads of one state; does not outlive a change of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._verdicts: dict[int, Because] = {}
        self._lacks = LackBlockers(state)

    # ---- of one workload

    def explain(self, record: Record) -> Waiting | None:
        """The full, present answer; None if the workload does not wait (or is held).

        What its blockers are short of is complete and minimal (see `diagnosis.py`): were nobody else waiting, it would
        start if all of it were granted, and not if one of it were withheld.
        """
        if record.phase is not Phase.WAITING or record.held:
            return None
        queue = self._state.queue(record.workload.queue)
        if record.hold is not None or queue.queue is None:
            return self.tell(record)
        prepared = record.group.prepared if record.group is not None else self._state.prepare(record.workload, queue)
        nomination = Nominator(self._state, record, prepared).nominate()
        lacks = diagnose(self._state, record, prepared)
        blockers = [blocker for lack in lacks for blocker in self._lacks.of(lack, queue)]
        blockers = [*hold_blockers(self._state, nomination), *blockers]
        gates, ahead = self._gates(record, queue), self._ahead(record, queue)
        if gates:
            before = () if ahead is None else (ahead,)
            return self._waiting(record, (self.tell(record).reason, (*gates, *before, *blockers)))
        if usable(nomination):
            known = self._parked(record)
            passed_over = known is not None and known.ahead
            because = self.tell(record) if passed_over else None
            if because is not None:
                return self._waiting(record, (because.reason, because.blockers))
            return self._waiting(record, self._not_tried(record, queue))
        if ahead is not None:
            return self._waiting(record, (Reason.NOT_EVALUATED, (ahead, *blockers)))
        found = tuple(blockers) or (self._room_of_others(queue),)
        return self._waiting(record, (reason_of(nomination), (*found, *self._of_history(nomination))))

    def tell(self, record: Record) -> Waiting:
        """The answer that the last pass found, without trying again."""
        queue = self._state.queue(record.workload.queue)
        if record.hold is not None:
            return self._waiting(record, self._held(record))
        if record.limit is not None:
            return self._waiting(record, (Reason.LIMIT_REACHED, (self._lacks.of_limit(record.limit, queue),)))
        if record.outside is not None:
            return self._waiting(record, (record.outside.reason, tuple(self._gates(record, queue))))
        if record.group is None:
            return self._waiting(record, (Reason.BACKOFF, tuple(self._gates(record, queue))))
        if record.group.shelf is not None:
            return self._waiting(record, self._shelved(record, record.group))
        parked = self._parked(record)
        if parked is None:
            return self._waiting(record, self._not_tried(record, queue))
        verdict = self._verdicts.get(id(parked))  # one for all workloads of a group
        if verdict is None:
            verdict = self._verdicts[id(parked)] = self.failure(parked.nomination, parked.ahead)
        return self._waiting(record, verdict)

    def _shelved(self, record: Record, group: Group) -> Because:
        """What a group without a chance lacks; one answer for all its workloads."""
        verdict = self._verdicts.get(id(group))
        if verdict is None:
            nomination = Nominator(self._state, record, group.prepared).nominate()
            verdict = self._verdicts[id(group)] = self.failure(nomination)
        return verdict

    def kind(self, record: Record) -> Kind:
        """What has to change for a workload's reason to be news; cheap, and blind to numbers."""
        hold = self._state.starving.by_uid.get(record.uid)
        if hold is not None:
            return ("hold", hold.target.expected, *self._kind(record))
        return self._kind(record)

    def _kind(self, record: Record) -> Kind:
        if record.hold is not None:
            return (Reason.WAITING_FOR_PREEMPTED_WORKLOADS,)
        if record.limit is not None:
            return (Reason.LIMIT_REACHED, record.limit.party, record.limit.what)
        if record.outside is not None:
            return (record.outside.reason, record.outside.message)
        if record.group is None:
            return (Reason.BACKOFF, record.workload.not_before)
        if not self._state.configuration.policies.present_reasons:
            return (record.verdict or Reason.NOT_EVALUATED,)
        if record.group.shelf is not None:
            return record.group.shelf.kind
        parked = self._parked(record)
        if parked is None:
            ahead = self._ahead(record, self._state.queue(record.workload.queue))
            if ahead is None and self._state.not_ready is not None:
                return (Reason.WAITING_FOR_PODS_READY,)
            return (Reason.NOT_EVALUATED if ahead is not None else Reason.PENDING_EVALUATION,)
        return kind_of(parked)

    def _parked(self, record: Record) -> Parked | None:
        """The verdict of the last pass on a workload; None if it was not looked at."""
        queue = self._state.queue(record.workload.queue)
        if record.group is None:
            return None
        if queue.strict and queue.blocked is not None and queue.blocked.uid == record.uid:
            return queue.blocked
        parked = record.group.parked
        return parked if not queue.strict or (parked is not None and parked.uid == record.uid) else None

    def _waiting(self, record: Record, because: Because) -> Waiting:
        reason, blockers = because
        if record.group is not None and not self._state.configuration.policies.present_reasons:
            reason = record.verdict or Reason.NOT_EVALUATED
        message = "; ".join(dict.fromkeys(blocker.message for blocker in blockers[:3]))
        start, kept = held_for(self._state, record)
        message = f"{kept}; {message}" if kept else message
        return Waiting(owner_uid(record.uid), reason, message, blockers, self.position(record), start)

    def position(self, record: Record) -> int:
        """1-based place in the queue's order; what has room held for it stands before, what is outside after."""
        queue = self._state.queue(record.workload.queue)
        holding = self._state.holders_of(queue)
        if record.hold is not None:
            return holding.index(record) + 1
        if record.group is None:
            return len(holding) + queue.pending.size + 1
        return len(holding) + queue.pending.position(record.group, record.workload.queued, record.uid)

    # ---- workloads that were not tried

    def _held(self, record: Record) -> Because:
        draining = [r for r in self._state.draining.values() if r.evicted_by == record.uid]
        draining = draining or list(self._state.draining.values())
        uids = tuple(sorted(r.uid for r in draining))[:MOST_HOLDERS]
        who = "1 ending workload" if len(draining) == 1 else f"{len(draining)} ending workloads"
        message = f"room is kept for it; waits until the pods of {who} are gone"
        return (Reason.WAITING_FOR_PREEMPTED_WORKLOADS, (Blocker(BlockerType.PREEMPTION, message, holders=uids),))

    def _not_tried(self, record: Record, queue: QueueState) -> Because:
        ahead = self._ahead(record, queue)
        if ahead is not None:
            return (Reason.NOT_EVALUATED, (ahead,))
        not_ready = self._state.not_ready
        if not_ready is not None:
            uids = tuple(sorted(not_ready))[:MOST_HOLDERS]
            first = self._state.name_of(uids[0]) if uids else "one that starts now"
            message = f"jobs start one at a time: all pods of {first}"
            message += f" and {len(not_ready) - 1} more" if len(not_ready) > 1 else ""
            blocker = Blocker(
                BlockerType.PODS_READY, f"{message} have to be ready first", node=queue.name, holders=uids
            )
            return (Reason.WAITING_FOR_PODS_READY, (blocker,))
        message = "not tried since something changed; it is tried in the next pass"
        return (Reason.PENDING_EVALUATION, (Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name),))

    def _ahead(self, record: Record, queue: QueueState) -> Blocker | None:
        """Who blocks a StrictFIFO queue before this workload."""
        if not queue.strict:
            return None
        own = queue.pending.limited().get(record.workload.user) if record.group is not None else None
        if own is not None and own.order < record.order:
            uid = own.order[2]
            name = self._state.name_of(uid)
            message = f"behind {name} of the same user, which waits for a limit of queue {queue.name}"
            return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=(uid,))
        first = queue.pending.first()
        uid = next((r.uid for r in self._state.holders_of(queue) if r.order < record.order), "")
        if not uid and first and self._state.records[first].order < record.order:
            uid = first
        if not uid:
            return None
        message = f"behind {self._state.name_of(uid)}, which blocks the StrictFIFO queue {queue.name}"
        return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=(uid,))

    # ---- workloads that failed

    def failure(self, nomination: Nomination, ahead: str = "") -> Because:
        """Reason and blockers of a nomination that came to nothing; `ahead` took or reserved what it wanted."""
        if nomination.mode >= Mode.DEFERRED or nomination.victims:
            kept = f"what it needs is kept for {self._state.name_of(ahead)}"
            message = kept if ahead else "others of this pass came first"
            blocker = Blocker(BlockerType.AHEAD_IN_QUEUE, message, holders=(ahead,) if ahead else ())
            return (reason_of(nomination), (blocker,))
        queue = self._state.queue(nomination.record.workload.queue)
        lacks = lacks_of(self._state, nomination)
        blockers = [blocker for lack in lacks for blocker in self._lacks.of(lack, queue)]
        blockers = [*hold_blockers(self._state, nomination), *blockers]
        blockers += self._of_history(nomination)
        return (reason_of(nomination), tuple(dict.fromkeys(blockers)))

    def _of_history(self, nomination: Nomination) -> list[Blocker]:
        """Past usage, where it puts the workload behind others that borrow what it wants to borrow."""
        history, node = self._state.history, self._state.queue(nomination.record.workload.queue).node
        if history is None or node is None or nomination.level == 0:
            return []
        for cohort in node.ancestors():
            past = history.past_share(node)
            charge = nomination.assignment.charge
            ahead = [
                other
                for other in cohort.children
                if other is not node and history.past_share(other) < past and share_of(other).borrows_any(charge)
            ]
            if ahead:
                names = ", ".join(other.path for other in ahead[:3])
                kind = "queue" if node.is_queue else "cohort"
                message = f"{kind} {node.path} has used more in the past than {names}, which may borrow before it"
                return [Blocker(BlockerType.HISTORY, message, node=node.name)]
            node = cohort
        return []

    def _gates(self, record: Record, queue: QueueState) -> list[Blocker]:
        """What keeps a workload out of the order of its queue, apart from what it asks for."""
        if record.group is not None:
            return []
        outsides = self._state.outsides(record.workload)
        gates = [Blocker(outside.type, outside.message, node=outside.node) for outside in outsides]
        if record.limit is not None:
            gates.append(self._lacks.of_limit(record.limit, queue))
        if record.workload.not_before > 0 and (record.uid in self._state.backoff or gates):
            message = f"is tried again at {show_time(record.workload.not_before)}"
            gates.append(Blocker(BlockerType.BACKOFF, message))
        return gates

    def _room_of_others(self, queue: QueueState) -> Blocker:
        """It would start if others that wait had no room held for them."""
        uids = tuple(record.uid for record in sorted(self._state.holders.values(), key=lambda r: r.order))
        names = ", ".join(self._state.name_of(uid) for uid in uids[:3])
        message = f"what it needs is kept for {names}"
        return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=uids[:MOST_HOLDERS])


def kind_of(parked: Parked) -> Kind:
    """The kind of a verdict: its reasons and what is short, without numbers."""
    nomination = parked.nomination
    if parked.ahead or nomination.mode >= Mode.DEFERRED or nomination.victims:
        return ("ahead", parked.ahead)
    short = frozenset(
        (trial.flavor, trial.reason, trial.refusal, frozenset(r for r, mode in trial.modes.items() if mode < Mode.FIT))
        for trial in (choice.taken for choice in nomination.assignment.choices)
        if trial.reason is not None
    )
    misfit = nomination.misfit
    where = None if misfit is None else (misfit.demand.name, misfit.level)
    prepared = nomination.assignment.prepared
    return (prepared.uncovered, prepared.unmapped, short, where)
