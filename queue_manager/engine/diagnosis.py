"""What a waiting workload lacks: the least set of things that it would start with if nobody else waited.

The set is complete and none of it can be left out: it is found by granting what a nomination lacks, on the state itself
and revocably, until the workload can start, and then by taking back whatever is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from queue_manager.engine.configuration import Cell
from queue_manager.engine.flavors import Choice, Mode
from queue_manager.engine.limits import LimitHit
from queue_manager.engine.nominate import Nominator
from queue_manager.engine.nomination import Nomination, usable
from queue_manager.engine.prepared import Prepared
from queue_manager.engine.records import Record
from queue_manager.engine.replicas import own_levels
from queue_manager.engine.scopes import Misfit
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE, NOW, Shortage, TreeNode

MOST_GRANTS = 8
"""How often what is lacking may turn out to hide something else that is lacking."""


@dataclass(frozen=True, slots=True)
class QuotaLack:
    """Quota of one cell. The queue has enough of it when the nominal quota of `node`, the lowest with a limit in the
    way, grows by `missing`. `shortages` are all limits in the way, `most` what the queue could have at most where
    even that is too little."""

    cell: Cell
    node: TreeNode
    missing: int
    shortages: tuple[Shortage, ...]
    most: Shortage | None


@dataclass(frozen=True, slots=True)
class FlavorLack:
    """No flavor of one need can be used by its pods; one would do. `refusals` are (flavor, why), the nearest first."""

    need: int
    resource: str
    refusals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UndeclaredLack:
    """A resource that no resource group of the queue covers, or a device class that counts as no resource."""

    pod_set: str
    resource: str
    device_class: bool


@dataclass(frozen=True, slots=True)
class NodeLack:
    """Room on nodes for some pods of a pod set, in the domain that lacks least; any node there would do, such as `node`
    (None where there is none, or where domains of their own are what replicas lack)."""

    nomination: Nomination
    misfit: Misfit
    node: str | None


@dataclass(frozen=True, slots=True)
class LimitLack:
    """A limit of the queue apart from its quota."""

    hit: LimitHit


Lack = QuotaLack | FlavorLack | UndeclaredLack | NodeLack | LimitLack


def lacks_of(state: State, nomination: Nomination) -> list[Lack]:
    """What one nomination that came to nothing lacks, as it stands."""
    prepared = nomination.assignment.prepared
    found: list[Lack] = [] if nomination.limit is None else [LimitLack(nomination.limit)]
    found += [UndeclaredLack(name, resource, False) for _, name, resource in prepared.uncovered]
    found += [UndeclaredLack(name, device_class, True) for name, device_class in prepared.unmapped]
    quota: dict[Cell, QuotaLack] = {}
    for index, choice in enumerate(nomination.assignment.choices):
        if choice.taken.refusal:
            refusals = tuple((trial.flavor, trial.refusal) for trial in choice.trials or (choice.taken,))
            found.append(FlavorLack(index, choice.need.resources[0], refusals))
        for lack in _quota_lacks(state, nomination, choice):
            known = quota.get(lack.cell)
            if known is None or known.missing < lack.missing:
                quota[lack.cell] = lack
    found += quota.values()
    if nomination.misfit is not None and not nomination.behind:
        found.append(NodeLack(nomination, nomination.misfit, _node_of(nomination.misfit)))
    return found


def _node_of(misfit: Misfit) -> str | None:
    """The first node of the domain that a pod set lacks room in and may use; None where room is not what it lacks."""
    if own_levels(misfit.demand):
        return None
    forest, mask = misfit.demand.forest, misfit.demand.mask
    inside = range(*forest.run(misfit.values))
    return next((forest.names[i] for i in inside if mask[forest.rows[i]]), None)


def _quota_lacks(state: State, nomination: Nomination, choice: Choice) -> Iterator[QuotaLack]:
    node = state.tree.queues[nomination.record.workload.queue]
    own = state.own_charge(nomination.record)
    for cell, tried in choice.taken.amounts.items() if choice.taken.mode < Mode.DEFERRED else ():
        amount = max(tried, nomination.assignment.charge.get(cell, 0))
        shortages = state.tree.shortages(node, cell, amount, FUTURE)
        if shortages:
            most = state.tree.shortages(node, cell, amount + own.get(cell, 0), EMPTY)
            worst = max(most, key=lambda shortage: shortage.missing, default=None)
            missing = max(shortage.missing for shortage in shortages)
            yield QuotaLack(cell, shortages[0].node, missing, tuple(shortages), worst)


def diagnose(state: State, record: Record, prepared: Prepared) -> list[Lack]:
    """The least that a workload lacks. Empty if it could start, by preemption or once others are gone, were nobody else
    waiting. Leaves the state as it was."""
    mark = state.log.mark()
    try:
        for other in list(state.holders.values()):
            if other is not record:
                state.stand(other, FUTURE, None)
        return _Diagnosis(state, record, prepared).find()
    finally:
        state.log.revert(mark)


class _Diagnosis:
    def __init__(self, state: State, record: Record, prepared: Prepared) -> None:
        self._state = state
        self._record = record
        self._prepared = prepared

    def find(self) -> list[Lack]:
        lacks: list[Lack] = []
        for _ in range(MOST_GRANTS):
            more = self._still_lacking(lacks)
            if not more:
                break
            lacks = _merged(lacks, more)
        for lack in list(reversed(lacks)):
            others = [other for other in lacks if other is not lack]
            if not self._still_lacking(others):
                lacks = others
        return lacks

    def _still_lacking(self, granted: Sequence[Lack]) -> list[Lack]:
        """What is lacking when this much is granted; empty if the workload can start."""
        mark = self._state.log.mark()
        for lack in granted:
            if isinstance(lack, QuotaLack):
                self._state.tree.raise_quota(lack.node, lack.cell, lack.missing)
            elif isinstance(lack, NodeLack):
                self._make_room(lack)
        # Nobody knows what nodes a flavor would have that its pods could use.
        placing = not any(isinstance(x, FlavorLack) or (isinstance(x, NodeLack) and x.node is None) for x in granted)
        limits = not any(isinstance(lack, LimitLack) for lack in granted)
        prepared = _granted(self._prepared, granted)
        found = Nominator(self._state, self._record, prepared, placing=placing, limits=limits, heed=False).nominate()
        lacking = [] if usable(found) else lacks_of(self._state, found)
        self._state.log.revert(mark)
        return lacking

    def _make_room(self, lack: NodeLack) -> None:
        """Frees room for the pods that lack it on a node where they would do."""
        if lack.node is not None:
            requests = lack.misfit.demand.requests
            missing = lack.misfit.wanted - lack.misfit.best
            amounts = {resource: amount * missing for resource, amount in requests.items()}
            for view in (NOW, FUTURE):
                self._state.fleet.vacate({lack.node: amounts}, view)


def _merged(lacks: list[Lack], more: list[Lack]) -> list[Lack]:
    """Both, with one entry for what is lacking of a cell at one node."""
    quota = {(lack.node, lack.cell): lack for lack in more if isinstance(lack, QuotaLack)}
    merged: list[Lack] = []
    for lack in lacks:
        if isinstance(lack, QuotaLack) and (lack.node, lack.cell) in quota:
            extra = quota.pop((lack.node, lack.cell))
            lack = replace(lack, missing=lack.missing + extra.missing)
        merged.append(lack)
    return merged + [x for x in more if not isinstance(x, QuotaLack) or (x.node, x.cell) in quota]


def _granted(prepared: Prepared, granted: Sequence[Lack]) -> Prepared:
    """An ask whose undeclared resources count no more, and whose pods can use the flavors that they could not."""
    undeclared = {(lack.pod_set, lack.resource) for lack in granted if isinstance(lack, UndeclaredLack)}
    usable_flavors = {(lack.need, lack.refusals[0][0]) for lack in granted if isinstance(lack, FlavorLack)}
    needs = tuple(
        replace(
            need,
            options=tuple(
                replace(option, refusal="") if (index, option.flavor) in usable_flavors else option
                for option in need.options
            ),
        )
        for index, need in enumerate(prepared.needs)
    )
    return replace(
        prepared,
        needs=needs,
        uncovered=tuple(entry for entry in prepared.uncovered if entry[1:] not in undeclared),
        unmapped=tuple(entry for entry in prepared.unmapped if entry not in undeclared),
    )
