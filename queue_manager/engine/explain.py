"""Why a workload waits, in numbers: every limit and every lack that stands in the way (design, section 7)."""

from __future__ import annotations

from queue_manager.engine.advice import Advice, advise
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Blocker, BlockerType, Reason, Waiting
from queue_manager.engine.diagnosis import (
    FlavorLack,
    Lack,
    LimitLack,
    NodeLack,
    QuotaLack,
    UndeclaredLack,
    diagnose,
    lacks_of,
)
from queue_manager.engine.flavors import Mode
from queue_manager.engine.hold_blockers import held_for, hold_blockers
from queue_manager.engine.limits import MAX_JOBS, RUNNING, WAITING, LimitHit
from queue_manager.engine.nominate import Nomination, Nominator, usable
from queue_manager.engine.pending import Group, Parked
from queue_manager.engine.placing import flavors_of
from queue_manager.engine.prepared import pod_filter
from queue_manager.engine.quantities import show, show_time
from queue_manager.engine.reasons import reason_of
from queue_manager.engine.resize import owner_uid
from queue_manager.engine.room import Demand
from queue_manager.engine.shares import share_of
from queue_manager.engine.state import Phase, QueueState, Record, State
from queue_manager.engine.topology import Misfit
from queue_manager.engine.tree import FUTURE, Shortage, TreeNode

MOST_HOLDERS = 10
_LIMIT_WORDS = {
    RUNNING: ("running", ""),
    WAITING: ("waiting for their turn", ""),
    MAX_JOBS: ("running or waiting for their turn", ""),
}
Kind = tuple[object, ...]
Because = tuple[Reason, tuple[Blocker, ...]]


class Explainer:
    """Explains waiting workloads of one state; does not outlive a change of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._verdicts: dict[int, Because] = {}
        self._holding: dict[tuple[TreeNode, Cell, int], tuple[str, ...]] = {}

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
        blockers = [blocker for lack in lacks for blocker in self._of_lack(lack, queue)]
        blockers = [*hold_blockers(self._state, nomination), *blockers]
        gates = self._gates(record, queue)
        if gates:
            return self._waiting(record, (self.tell(record).reason, (*gates, *blockers)))
        ahead = self._ahead(record, queue)
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
            return self._waiting(record, (Reason.LIMIT_REACHED, (self._of_limit(record.limit, queue),)))
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
        hold = self._state.starving.get(record.uid)
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
            message = f"jobs start one at a time: all pods of {self._name(uids[0]) if uids else 'one that starts now'}"
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
            message = f"behind {self._name(uid)} of the same user, which waits for a limit of queue {queue.name}"
            return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=(uid,))
        first = queue.pending.first()
        uid = next((r.uid for r in self._state.holders_of(queue) if r.order < record.order), "")
        if not uid and first and self._state.records[first].order < record.order:
            uid = first
        if not uid:
            return None
        message = f"behind {self._name(uid)}, which blocks the StrictFIFO queue {queue.name}"
        return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=(uid,))

    def _name(self, uid: str) -> str:
        record = self._state.records.get(uid)
        return uid if record is None else record.workload.key

    # ---- workloads that failed

    def failure(self, nomination: Nomination, ahead: str = "") -> Because:
        """Reason and blockers of a nomination that came to nothing; `ahead` took or reserved what it wanted."""
        if nomination.mode >= Mode.DEFERRED or nomination.victims:
            message = f"what it needs is kept for {self._name(ahead)}" if ahead else "others of this pass came first"
            blocker = Blocker(BlockerType.AHEAD_IN_QUEUE, message, holders=(ahead,) if ahead else ())
            return (reason_of(nomination), (blocker,))
        queue = self._state.queue(nomination.record.workload.queue)
        lacks = lacks_of(self._state, nomination)
        blockers = [blocker for lack in lacks for blocker in self._of_lack(lack, queue)]
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
            gates.append(self._of_limit(record.limit, queue))
        if record.workload.not_before > 0 and (record.uid in self._state.backoff or gates):
            message = f"is tried again at {show_time(record.workload.not_before)}"
            gates.append(Blocker(BlockerType.BACKOFF, message))
        return gates

    def _room_of_others(self, queue: QueueState) -> Blocker:
        """It would start if others that wait had no room held for them."""
        uids = tuple(record.uid for record in sorted(self._state.holders.values(), key=lambda r: r.order))
        names = ", ".join(self._name(uid) for uid in uids[:3])
        message = f"what it needs is kept for {names}"
        return Blocker(BlockerType.AHEAD_IN_QUEUE, message, node=queue.name, holders=uids[:MOST_HOLDERS])

    def _of_lack(self, lack: Lack, queue: QueueState) -> list[Blocker]:
        match lack:
            case QuotaLack():
                return [self._of_quota(lack)]
            case FlavorLack(resource=resource, refusals=refusals):
                text = "; ".join(dict.fromkeys(why for _, why in refusals))
                return [Blocker(BlockerType.FLAVOR, text, flavor=refusals[0][0], resource=resource)]
            case UndeclaredLack(pod_set=name, resource=resource, device_class=False):
                text = f"queue {queue.name} has no quota for {resource} (pod set {name})"
                return [Blocker(BlockerType.FLAVOR, text, queue.name, "", resource)]
            case UndeclaredLack(pod_set=name, resource=resource):
                text = f"no quota counts devices of DeviceClass {resource} (pod set {name})"
                text += ": name it in deviceClassMappings of the Settings' resources"
                return [Blocker(BlockerType.DEVICE_CLASS, text, resource=resource)]
            case NodeLack(nomination=nomination, misfit=misfit):
                return self._of_misfit(nomination, misfit)
            case LimitLack(hit=hit):
                return [self._of_limit(hit, queue)]

    def _of_limit(self, hit: LimitHit, queue: QueueState) -> Blocker:
        """A limit apart from quota: whose it is, how much of it is used, by whom."""
        kind, name = hit.party
        whose = f"queue {queue.name}" if kind == "queue" else f"{kind} {name} in queue {queue.name}"
        what, unit = _LIMIT_WORDS.get(hit.what, (f"{hit.what} in use", hit.what))
        used, most, more = (show(unit, amount) for amount in (hit.used, hit.limit, hit.requested))
        message = f"limit of {whose}: {used} of at most {most} {what}, this would be {more} more"
        missing = hit.used + hit.requested - hit.limit
        available = max(0, hit.limit - hit.used)
        holders = self._counted(hit, queue) if hit.what != WAITING else ()
        resource = hit.what
        return Blocker(BlockerType.LIMIT, message, queue.name, "", resource, hit.requested, available, missing, holders)

    def _counted(self, hit: LimitHit, queue: QueueState) -> tuple[str, ...]:
        """Who counts against a limit, largest first."""
        found: list[tuple[int, str]] = []
        for uid, record in self._state.records.items():
            counted = record.counted
            if counted is not None and counted.queue == queue.name and hit.party in counted.parties:
                found.append((-counted.amounts.get(hit.what, 0), uid))
        return tuple(uid for _, uid in sorted(found)[:MOST_HOLDERS])

    def _of_quota(self, lack: QuotaLack) -> Blocker:
        """The limit that is short by most comes first; `node` is where more quota would do."""
        worst = max(lack.shortages, key=lambda shortage: shortage.missing)
        resource, available = lack.cell.resource, worst.requested - lack.missing
        text = self._short(lack.cell, worst)
        if lack.most is not None:
            most = show(resource, max(0, lack.most.available))
            text = f"{self._short_in(lack.cell, lack.most)}, it can never give more than {most}"
            text += f"; {show(resource, lack.missing)} short now" if lack.missing != lack.most.missing else ""
        for other in lack.shortages:
            if other is not worst and lack.most is None:
                text += f"; {self._short_in(lack.cell, other)}"
        return Blocker(
            BlockerType.QUOTA if lack.most is None else BlockerType.MAX_QUOTA,
            text,
            lack.node.name,
            lack.cell.flavor,
            resource,
            worst.requested,
            available,
            lack.missing,
            self._holders(worst.node, lack.cell, FUTURE),
        )

    @staticmethod
    def _short_in(cell: Cell, shortage: Shortage) -> str:
        node = shortage.node
        short, needs = show(cell.resource, shortage.missing), show(cell.resource, shortage.requested)
        where = f"{'queue' if node.is_queue else 'cohort'} {node.path} (flavor {cell.flavor})"
        return f"{short} {cell.resource} short in {where}: needs {needs}"

    def _short(self, cell: Cell, shortage: Shortage) -> str:
        free = show(cell.resource, max(0, shortage.available)) + " free"
        if shortage.available < 0:
            free += f" ({show(cell.resource, -shortage.available)} over quota)"
        limit = " within its borrowing limit" if shortage.borrowing_limit else ""
        return f"{self._short_in(cell, shortage)}, {free}{limit}"

    def _holders(self, node: TreeNode, cell: Cell, view: int) -> tuple[str, ...]:
        """Who holds a cell in a subtree, largest first."""
        known = self._holding.get((node, cell, view))
        if known is not None:
            return known
        found: list[tuple[int, str]] = []
        nodes = [node]
        for inner in nodes:
            nodes.extend(inner.children)
            if inner.is_queue:
                for uid, record in self._state.queue(inner.name).standing.items():
                    standing = record.standing[view]
                    amount = 0 if standing is None else standing.charge.get(cell, 0)
                    if amount > 0:
                        found.append((-amount, uid))
        holders = tuple(uid for _, uid in sorted(found)[:MOST_HOLDERS])
        self._holding[(node, cell, view)] = holders
        return holders

    def _of_misfit(self, nomination: Nomination, misfit: Misfit) -> list[Blocker]:
        demand = misfit.demand
        flavors = flavors_of(self._state.configuration, nomination.assignment.flavors[demand.index])
        name = flavors[0].name if flavors else ""
        if misfit.note and not misfit.best:
            text = f"pod set {demand.name} cannot be placed: {misfit.note}"
            return [Blocker(BlockerType.TOPOLOGY, text, "", name, "", misfit.wanted, 0, misfit.wanted)]
        place = f"{misfit.level} {'/'.join(misfit.values)}" if misfit.level and misfit.values else "any node"
        if misfit.level and misfit.values:
            text = f"no single {misfit.level} holds {misfit.wanted} pods of pod set {demand.name} (flavor {name}): "
            text += f"{misfit.best} fit in the best, {'/'.join(misfit.values)}"
        else:
            text = f"only {misfit.best} of {misfit.wanted} pods of pod set {demand.name} (flavor {name}) fit on {place}"
        text += self._excluded(nomination, demand)
        advice = advise(self._state, misfit) if misfit.level else None
        text += "" if advice is None else self._advice(misfit, advice)
        holders = () if advice is None else tuple(uid for uid, _ in advice.occupants[:MOST_HOLDERS])
        domain, missing = "/".join(misfit.values), misfit.wanted - misfit.best
        return [Blocker(BlockerType.TOPOLOGY, text, domain, name, "pods", misfit.wanted, misfit.best, missing, holders)]

    def _advice(self, misfit: Misfit, advice: Advice) -> str:
        """Where it comes nearest, and what runs there."""
        domain = "/".join(advice.values)
        if advice.most < misfit.wanted:
            return f"; no {misfit.level} can ever hold them: at most {advice.most} in {domain}"
        text = ""
        if advice.together >= misfit.wanted:
            text = f"; there is room for {advice.together} in all, but in pieces"
        text += f"; nearest is {domain}, {misfit.wanted - advice.room} short"
        if advice.occupants:
            listed = ", ".join(f"{self._name(uid)} ({pods})" for uid, pods in advice.occupants[:3])
            more = len(advice.occupants) - 3
            text += f"; there stand {listed}" + (f" and {more} more" if more > 0 else "")
        return text

    def _excluded(self, nomination: Nomination, demand: Demand) -> str:
        """How many nodes there are, and how many of them are out for which reason."""
        pod_set = nomination.assignment.prepared.ask.pod_sets[demand.index]
        flavors = flavors_of(self._state.configuration, nomination.assignment.flavors[demand.index])
        labels: dict[str, str] = {}
        for flavor in flavors:
            labels.update(flavor.node_labels)
        fleet = self._state.fleet
        total, reasons = fleet.exclusions(labels, demand.forest.level_keys, pod_filter(pod_set, flavors))
        reasons.update(fleet.lacks(demand.forest.rows, demand.mask, demand.requests, FUTURE))
        listed = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        return f"; of {total} nodes" + (f" out for {listed}" if listed else " none is excluded")


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
