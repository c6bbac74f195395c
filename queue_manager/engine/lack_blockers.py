"""What a workload lacks, as its owner reads it: how much, of what, where, and who has it."""

from __future__ import annotations

from queue_manager.engine.advice import Advice, advise, exclusive_holders
from queue_manager.engine.configuration import Cell, labels_of
from queue_manager.engine.decision import Blocker, BlockerType
from queue_manager.engine.demand import Demand
from queue_manager.engine.diagnosis import FlavorLack, Lack, LimitLack, NodeLack, QuotaLack, UndeclaredLack
from queue_manager.engine.limits import MAX_JOBS, RUNNING, WAITING, LimitHit
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.placing import flavors_of
from queue_manager.engine.pod_rules import says
from queue_manager.engine.prepared import asked_around, pod_filter
from queue_manager.engine.quantities import show
from queue_manager.engine.records import QueueState
from queue_manager.engine.replicas import own_levels
from queue_manager.engine.scopes import Misfit
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, Shortage, TreeNode
from queue_manager.engine.workload import NO_RULES

MOST_HOLDERS = 10
MOST_NAMED = 3
"""Domains that a text names."""
_LIMIT_WORDS = {
    RUNNING: ("running", ""),
    WAITING: ("waiting for their turn", ""),
    MAX_JOBS: ("running or waiting for their turn", ""),
}


class LackBlockers:
    """Puts lacks of one state into words; does not outlive a change of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._holding: dict[tuple[TreeNode, Cell, int], tuple[str, ...]] = {}

    def of(self, lack: Lack, queue: QueueState) -> list[Blocker]:
        """What somebody reads who waits in a queue and lacks this."""
        match lack:
            case QuotaLack():
                return [self._of_quota(lack, queue)]
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
                return [self.of_limit(hit, queue)]

    def of_limit(self, hit: LimitHit, queue: QueueState) -> Blocker:
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

    def _of_quota(self, lack: QuotaLack, queue: QueueState) -> Blocker:
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
            self._enough(lack, worst.node, queue) if lack.most is None else (),
        )

    def _enough(self, lack: QuotaLack, node: TreeNode, queue: QueueState) -> tuple[str, ...]:
        """Holders whose end would free what is missing, tried on the tree: what somebody uses of quota that its queue
        does not lend frees nothing for others."""
        state, cell = self._state, lack.cell
        waits, amount = state.tree.queues[queue.name], lack.shortages[0].requested
        missing = max(shortage.missing for shortage in state.tree.shortages(waits, cell, amount, FUTURE))
        found: list[str] = []
        start = state.log.mark()
        for uid in self._holders(node, cell, FUTURE):
            standing = state.records[uid].standing[FUTURE]
            if standing is None:
                continue
            mark = state.log.mark()
            state.tree.remove(state.tree.queues[standing.queue], {cell: standing.charge[cell]}, FUTURE)
            left = state.tree.shortages(waits, cell, amount, FUTURE)
            short = max((shortage.missing for shortage in left), default=0)
            if short == missing:
                state.log.revert(mark)
                continue
            found.append(uid)
            missing = short
            if not left:
                break
        state.log.revert(start)
        return tuple(found) if not missing else ()

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
        if own_levels(demand):
            return [self._of_replicas(nomination, misfit, name)]
        place = f"{misfit.level} {'/'.join(misfit.values)}" if misfit.level and misfit.values else "any node"
        if misfit.level and misfit.values:
            text = f"no single {misfit.level} holds {misfit.wanted} pods of pod set {demand.name} (flavor {name}): "
            text += f"{misfit.best} fit in the best, {'/'.join(misfit.values)}"
        else:
            text = f"only {misfit.best} of {misfit.wanted} pods of pod set {demand.name} (flavor {name}) fit on {place}"
        if demand.rules != NO_RULES:
            text += f"; its pod template wants {says(demand.rules)}"
        text += _sliced(nomination, demand)
        text += self._excluded(nomination, demand)
        advice = advise(self._state, misfit) if misfit.level else None
        text += "" if advice is None else self._advice(misfit, advice)
        holders = () if advice is None else tuple(uid for uid, _ in advice.occupants[:MOST_HOLDERS])
        domain, missing = "/".join(misfit.values), misfit.wanted - misfit.best
        return [Blocker(BlockerType.TOPOLOGY, text, domain, name, "pods", misfit.wanted, misfit.best, missing, holders)]

    def _of_replicas(self, nomination: Nomination, misfit: Misfit, flavor: str) -> Blocker:
        """Replicas that find no domains of their own, and who has those of which an exclusive one needs one."""
        demand, best = misfit.demand, misfit.best // misfit.demand.in_replica
        levels, domain = " and ".join(own_levels(demand)), "/".join(misfit.values)
        where = f" in {misfit.level} {domain}" if misfit.level and domain else ""
        text = f"{best} of {demand.replicas} replicas of pod set {demand.name} (flavor {flavor})"
        text += f" find a {levels} of their own{where}"
        taken = exclusive_holders(self._state, demand)
        if taken:
            names = [f"{'/'.join(values)} by {self._state.name_of(uid)}" for values, uid in taken[:MOST_NAMED]]
            more = len(taken) - len(names)
            text += f"; exclusively taken: {', '.join(names)}" + (f" and {more} more" if more > 0 else "")
        text += self._excluded(nomination, demand)
        holders = tuple(dict.fromkeys(uid for _, uid in taken))[:MOST_HOLDERS]
        missing = misfit.wanted - misfit.best
        return Blocker(BlockerType.TOPOLOGY, text, domain, flavor, "pods", misfit.wanted, misfit.best, missing, holders)

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
            listed = ", ".join(f"{self._state.name_of(uid)} ({pods})" for uid, pods in advice.occupants[:3])
            more = len(advice.occupants) - 3
            text += f"; there stand {listed}" + (f" and {more} more" if more > 0 else "")
        return text

    def _excluded(self, nomination: Nomination, demand: Demand) -> str:
        """How many nodes there are, and how many of them are out for which reason."""
        pod_set = nomination.assignment.prepared.ask.pod_sets[demand.index]
        flavors = flavors_of(self._state.configuration, nomination.assignment.flavors[demand.index])
        fleet = self._state.fleet
        total, reasons = fleet.exclusions(labels_of(flavors), demand.forest.level_keys, pod_filter(pod_set, flavors))
        reasons.update(fleet.lacks(demand.forest.rows, demand.mask, demand.requests, FUTURE))
        listed = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        return f"; of {total} nodes" + (f" out for {listed}" if listed else " none is excluded")


def _sliced(nomination: Nomination, demand: Demand) -> str:
    """That pods come in slices: there may be room enough for them one by one."""
    asked = asked_around(nomination.assignment.prepared.ask, demand.index)
    slices = asked[0].slices if asked else ()
    if not slices:
        return ""
    parts = " and ".join(f"{layer.size} in one {layer.level}" for layer in slices)
    short = ", the last, short one where a whole one has room" if demand.count % slices[0].size else ""
    return f"; they go in slices, {parts}{short}"
