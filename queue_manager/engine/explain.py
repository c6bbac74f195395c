"""Why a workload waits, in numbers: every limit and every lack that stands in the way (design, section 7)."""

from __future__ import annotations

from collections.abc import Iterator

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Blocker, BlockerType, Reason, Waiting
from queue_manager.engine.flavors import Choice, Mode
from queue_manager.engine.limits import MAX_JOBS, RUNNING, WAITING, LimitHit
from queue_manager.engine.nominate import Nomination, Nominator
from queue_manager.engine.pending import Parked
from queue_manager.engine.placing import flavors_of
from queue_manager.engine.prepared import pod_filter
from queue_manager.engine.quantities import show
from queue_manager.engine.reasons import reason_of
from queue_manager.engine.resize import owner_uid
from queue_manager.engine.state import Phase, QueueState, Record, State
from queue_manager.engine.topology import Demand, Misfit
from queue_manager.engine.tree import EMPTY, FUTURE, NOW, Shortage, TreeNode

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
        """The full, present answer; None if the workload does not wait (or is held)."""
        if record.phase is not Phase.WAITING or record.held:
            return None
        known = self._parked(record)
        queue = self._state.queue(record.workload.queue)
        if record.group is None or (known is not None and known.ahead):
            return self.tell(record)
        nomination = Nominator(self._state, record, record.group.prepared).nominate()
        if nomination.mode >= Mode.DEFERRED or nomination.victims:
            because = self._not_tried(record, queue)
        else:
            because = self.failure(nomination)
            ahead = self._ahead(record, queue)
            if ahead is not None:
                because = (Reason.NOT_EVALUATED, (ahead, *because[1]))
        return self._waiting(record, because)

    def tell(self, record: Record) -> Waiting:
        """The answer that the last pass found, without trying again."""
        queue = self._state.queue(record.workload.queue)
        if record.hold is not None:
            return self._waiting(record, self._held(record))
        if record.limit is not None:
            return self._waiting(record, (Reason.LIMIT_REACHED, (self._of_limit(record.limit, queue),)))
        outside = record.outside
        if outside is not None:
            blocker = Blocker(outside.type, outside.message, node=outside.node)
            return self._waiting(record, (outside.reason, (blocker,)))
        if record.group is None:
            until = f"is tried again at {record.workload.not_before} (microseconds since 1970)"
            return self._waiting(record, (Reason.BACKOFF, (Blocker(BlockerType.BACKOFF, until),)))
        parked = self._parked(record)
        if parked is None:
            return self._waiting(record, self._not_tried(record, queue))
        verdict = self._verdicts.get(id(parked))  # one for all workloads of a group
        if verdict is None:
            verdict = self._verdicts[id(parked)] = self.failure(parked.nomination, parked.ahead)
        return self._waiting(record, verdict)

    def kind(self, record: Record) -> Kind:
        """What has to change for a workload's reason to be news; cheap, and blind to numbers."""
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
        parked = self._parked(record)
        if parked is None:
            ahead = self._ahead(record, self._state.queue(record.workload.queue))
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
        return Waiting(owner_uid(record.uid), reason, message, blockers, self.position(record))

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
        message = f"room is kept for it; waits until the pods of {len(draining)} ending workload(s) are gone"
        return (Reason.WAITING_FOR_PREEMPTED_WORKLOADS, (Blocker(BlockerType.PREEMPTION, message, holders=uids),))

    def _not_tried(self, record: Record, queue: QueueState) -> Because:
        ahead = self._ahead(record, queue)
        if ahead is not None:
            return (Reason.NOT_EVALUATED, (ahead,))
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
        if not uid and first is not None and self._state.records[first[1]].order < record.order:
            uid = first[1]
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
        prepared = nomination.assignment.prepared
        queue = self._state.queue(nomination.record.workload.queue)
        limit = [] if nomination.limit is None else [self._of_limit(nomination.limit, queue)]
        blockers = [
            Blocker(
                BlockerType.FLAVOR,
                f"queue {queue.name} has no quota for {resource} (pod set {name})",
                queue.name,
                "",
                resource,
            )
            for _, name, resource in prepared.uncovered
        ]
        for name, device_class in prepared.unmapped:
            message = f"no quota counts devices of DeviceClass {device_class} (pod set {name})"
            message += ": name it in deviceClassMappings of the Settings' resources"
            blockers.append(Blocker(BlockerType.DEVICE_CLASS, message, resource=device_class))
        for choice in nomination.assignment.choices:
            if choice.taken.reason is not None:
                blockers.extend(self._of_choice(nomination, choice))
        if nomination.misfit is not None:
            blockers.extend(self._of_misfit(nomination, nomination.misfit))
        return (reason_of(nomination), tuple(dict.fromkeys([*limit, *blockers])))

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

    def _of_choice(self, nomination: Nomination, choice: Choice) -> Iterator[Blocker]:
        if choice.taken.refusal:
            for trial in choice.trials or (choice.taken,):
                if trial.refusal:
                    resource = choice.need.resources[0]
                    yield Blocker(BlockerType.FLAVOR, trial.refusal, flavor=trial.flavor, resource=resource)
            return
        queue = self._state.queue(nomination.record.workload.queue)
        assert queue.node is not None
        own = self._state.own_charge(nomination.record)
        for cell, tried in choice.taken.amounts.items():
            amount = max(tried, nomination.assignment.charge.get(cell, 0))
            whole = amount + own.get(cell, 0)
            most = {s.node: s.missing for s in self._state.tree.shortages(queue.node, cell, whole, EMPTY)}
            for shortage in self._state.tree.shortages(queue.node, cell, whole, EMPTY):
                yield self._of_shortage(cell, shortage, BlockerType.MAX_QUOTA, NOW)
            for shortage in self._state.tree.shortages(queue.node, cell, amount, FUTURE):
                if shortage.missing > most.get(shortage.node, 0):
                    yield self._of_shortage(cell, shortage, BlockerType.QUOTA, FUTURE)

    def _of_shortage(self, cell: Cell, shortage: Shortage, kind: BlockerType, view: int) -> Blocker:
        node = shortage.node
        short, needs = show(cell.resource, shortage.missing), show(cell.resource, shortage.requested)
        where = f"{'queue' if node.is_queue else 'cohort'} {node.path} (flavor {cell.flavor})"
        if kind is BlockerType.MAX_QUOTA:
            most = show(cell.resource, max(0, shortage.available))
            message = f"{short} {cell.resource} short in {where}: needs {needs}, it can never give more than {most}"
        else:
            free = show(cell.resource, max(0, shortage.available)) + " free"
            if shortage.available < 0:
                free += f" ({show(cell.resource, -shortage.available)} over quota)"
            limit = " within its borrowing limit" if shortage.borrowing_limit else ""
            message = f"{short} {cell.resource} short in {where}: needs {needs}, {free}{limit}"
        holders = () if kind is BlockerType.MAX_QUOTA else self._holders(node, cell, view)
        return Blocker(
            kind,
            message,
            node.name,
            cell.flavor,
            cell.resource,
            shortage.requested,
            shortage.available,
            shortage.missing,
            holders,
        )

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
        domain = "/".join(misfit.values)
        missing = misfit.wanted - misfit.best
        return [Blocker(BlockerType.TOPOLOGY, text, domain, name, "pods", misfit.wanted, misfit.best, missing)]

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
