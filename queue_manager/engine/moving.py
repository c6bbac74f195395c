"""Another queue for a workload that is there already: whether it could start there, and its charge if it runs.

A workload that runs takes its flavors, its places and its charge with it. Only whose quota that is changes, so it goes
where the other queue has quota of the same cells, and stays within every limit on the way, unless somebody insists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from queue_manager.engine.ask import ask_of
from queue_manager.engine.configuration import Cell, Configuration, checks_of
from queue_manager.engine.decision import Admission, BlockerType
from queue_manager.engine.guard import Guard
from queue_manager.engine.limits import MAX_JOBS, LimitHit
from queue_manager.engine.outside import outsides_of
from queue_manager.engine.prepared import prepare
from queue_manager.engine.quantities import show
from queue_manager.engine.records import Record
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE, NOW, QuotaTree, TreeNode
from queue_manager.engine.workload import Workload


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a workload does not go to another queue. `may_insist`: it would only be over a limit there."""

    message: str
    may_insist: bool = False


def obstacle_of_waiting(workload: Workload, configuration: Configuration, tree: QuotaTree) -> Obstacle | None:
    """What keeps a workload from ever starting in the queue that it names now; None where it may wait there. A queue
    that is stopped is no obstacle: it waits there."""
    queue, node = configuration.queues.get(workload.queue), tree.queues.get(workload.queue)
    if queue is None or node is None:
        return Obstacle(f"there is no queue {workload.queue}")
    for outside in outsides_of(workload, configuration, tree.broken):
        if outside.type is not BlockerType.QUEUE_STOPPED:
            return Obstacle(outside.message)
    prepared = prepare(ask_of(workload, configuration), queue, configuration)
    for _, pod_set, resource in prepared.uncovered:
        return Obstacle(f"queue {queue.name} has no quota of {resource}, which its pod set {pod_set} asks for")
    for pod_set, device_class in prepared.unmapped:
        return Obstacle(f"no quota counts devices of class {device_class}, which its pod set {pod_set} asks for")
    for need in prepared.needs:
        if not need.cells:
            why = "; ".join(dict.fromkeys(option.refusal for option in need.options))
            return Obstacle(f"queue {queue.name} has no flavor for it: {why}", may_insist=True)
        for resource, amount in zip(need.resources, need.least, strict=True):
            cells = [cell for found in need.cells for cell in found if cell.resource == resource]
            most = max((node.available(cell, EMPTY) for cell in cells), default=0)
            if amount > max(0, most):
                asked, have = show(resource, amount), show(resource, max(0, most))
                words = f"it asks for {asked} {resource}, queue {queue.name} can have {have} at most"
                return Obstacle(words, may_insist=True)
    return None


def moved(state: State, uid: str, workload: Workload) -> tuple[Admission, Obstacle | None]:
    """The admission of a running workload once it is charged to the queue that `workload` names, and what speaks
    against that. Changes nothing."""
    record = state.records[uid]
    assert record.admission is not None
    queue = state.configuration.queues.get(workload.queue)
    flavors = frozenset(flavor for pod_set in record.admission.pod_sets for flavor in pod_set.flavors.values())
    admission = replace(record.admission, queue=workload.queue, checks=checks_of(queue, flavors))
    return admission, next(_obstacles(state, record, workload), None)


def _obstacles(state: State, record: Record, workload: Workload) -> Iterator[Obstacle]:
    node, standing = state.tree.queues.get(workload.queue), record.standing[NOW]
    if node is None or standing is None:
        yield Obstacle(f"there is no queue {workload.queue}")
        return
    yield from (Obstacle(outside.message) for outside in outsides_of(workload, state.configuration, state.tree.broken))
    for cell, amount in sorted(standing.charge.items()):
        if amount and cell not in node.quotas:
            yield Obstacle(f"queue {node.name} has no {cell.resource} of flavor {cell.flavor}, on which it runs")
    mark = state.log.mark()
    try:
        state.stand(record, FUTURE, None)
        state.stand(record, NOW, None)
        yield from _over(state, replace(record, workload=workload), node, dict(standing.charge))
    finally:
        state.log.revert(mark)


def _over(state: State, record: Record, node: TreeNode, charge: Mapping[Cell, int]) -> Iterator[Obstacle]:
    """The limits that the charge would exceed; the workload itself is charged nowhere just now."""
    guard = Guard(state, record)
    for cell, amount in sorted(charge.items()):
        left = max(0, min(node.available(cell, NOW), node.available(cell, FUTURE)))
        taken = f"{show(cell.resource, amount)} {cell.resource} of flavor {cell.flavor}"
        if amount > left:
            words = f"it is charged {taken}, queue {node.name} has {show(cell.resource, left)} left, borrowing included"
            yield Obstacle(words, may_insist=True)
        elif (hold := guard.denies(cell, amount)) is not None:
            words = f"it is charged {taken}, which is kept for {hold.record.workload.key}"
            yield Obstacle(words, may_insist=True)
    hit = state.queue(node.name).limit_hit(record.workload, charge)
    if hit is not None:
        yield Obstacle(_limit_words(hit, node.name), may_insist=True)


def _limit_words(hit: LimitHit, queue: str) -> str:
    who = "" if hit.what == MAX_JOBS else f" for {hit.party[0]} {hit.party[1]}"
    return f"limit {hit.what} of queue {queue}{who} is {hit.limit}, {hit.used} used"
