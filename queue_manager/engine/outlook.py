"""Why workloads wait, by kind alone: for those who ask of very many at once whether they could ever start.

To put a reason into words and numbers costs more than to decide. Most of those who wait in a large system stand on
shelves, where a few comparisons tell that they lack nothing but quota which others use; the rest is asked as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import HOPELESS, BlockerType, Reason
from queue_manager.engine.explain import Explainer
from queue_manager.engine.pending import Group
from queue_manager.engine.records import Phase, Record
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, TreeNode


class Outlook(NamedTuple):
    """The reason, and whether something is in the way that no end of another workload takes away."""

    reason: Reason
    for_good: bool


FOR_GOOD = frozenset(
    {
        *(BlockerType.MAX_QUOTA, BlockerType.FLAVOR, BlockerType.DEVICE_CLASS, BlockerType.NAMESPACE),
        *(BlockerType.QUEUE_STOPPED, BlockerType.QUEUE_INACTIVE),
    }
)
"""Blockers that no end of another workload takes away."""
QUOTA_OF_OTHERS = Outlook(Reason.WAITING_FOR_QUOTA, False)


def outlook(state: State) -> dict[str, Outlook]:
    """What the last pass found for each workload that waits in a queue, by uid."""
    explainer = Explainer(state)
    found: dict[str, Outlook] = {}
    known: dict[int, Outlook] = {}
    for record in state.records.values():
        if record.phase is not Phase.WAITING or record.held or record.workload.resizes:
            continue
        group = record.group
        if group is None or group.shelf is None:
            found[record.uid] = _asked(explainer, record)
            continue
        answer = known.get(id(group))
        if answer is None:
            short = not state.starving.by_uid and _lacks_what_others_use(state, record, group)
            answer = known[id(group)] = QUOTA_OF_OTHERS if short else _asked(explainer, record)
        found[record.uid] = answer
    return found


def _asked(explainer: Explainer, record: Record) -> Outlook:
    waiting = explainer.tell(record)
    lasting = any(blocker.type in FOR_GOOD for blocker in waiting.blockers)
    return Outlook(waiting.reason, lasting or waiting.reason in HOPELESS)


def _lacks_what_others_use(state: State, record: Record, group: Group) -> bool:
    """Whether a group on a shelf surely has all it asks for once nobody uses anything: whatever flavors it takes, and
    though all its needs take the same. False where that can't be told so simply."""
    node, prepared = state.queue(record.workload.queue).node, group.prepared
    if node is None or prepared.unusable:
        return False
    if any(need.shrinks or any(option.refusal for option in need.options) for need in prepared.needs):
        return False
    return _gives(node, _most(group))


def _most(group: Group) -> Mapping[Cell, int]:
    most: dict[Cell, int] = {}
    for need in group.prepared.needs:
        for cells in need.cells:
            for cell, amount in zip(cells, need.least, strict=True):
                most[cell] = most.get(cell, 0) + amount
    return most


def _gives(node: TreeNode, amounts: Mapping[Cell, int]) -> bool:
    return all(amount <= node.available(cell, EMPTY) for cell, amount in amounts.items())
