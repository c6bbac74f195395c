"""Flavor choice (kueue.md 2.5): which flavor each resource takes, and whether it fits, needs preemption or cannot be.

Decisions are made in the FUTURE view of the tree (see there). What fits there but not NOW is `DEFERRED`: it only has
to wait until something that already drains is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from queue_manager.engine.ask import StageSums
from queue_manager.engine.configuration import (
    Cell,
    FlavorFungibility,
    FlavorPreference,
    PreemptionPolicy,
    Queue,
)
from queue_manager.engine.decision import Reason
from queue_manager.engine.prepared import Need, Option, Prepared, cells_of
from queue_manager.engine.tree import EMPTY, FUTURE, NOW, TreeNode


class Mode(IntEnum):
    """How a request can be met, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    DEFERRED = 4
    FIT = 5


SEVERITY = (
    Reason.BEHIND_HOLD,
    Reason.TOPOLOGY_PLACEMENT_FAILED,
    Reason.WAITING_FOR_QUOTA,
    Reason.EXCEEDS_MAX_QUOTA,
    Reason.NO_MATCHING_FLAVOR,
    Reason.MISCONFIGURED,
)
"""Reasons, the nearest to fitting first."""

Oracle = Callable[[Cell, int], tuple[Mode, int]]
"""What preemption could do for one cell and amount: PREEMPT, RECLAIM or NO_CANDIDATES, and the borrowing level then."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One flavor tried for one need: `mode` is the worst and `level` the highest of its resources, `worst` both of the
    resource that decides its rank among the flavors. `amounts` is the whole charge per cell that was tried."""

    flavor: str
    mode: Mode
    level: int
    worst: tuple[Mode, int]
    modes: Mapping[str, Mode]
    amounts: Mapping[Cell, int]
    reason: Reason | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The trials of one need and the one taken; a need that nothing fits takes the nearest one, for explanation only.

    `tried` is the index of the last flavor tried, -1 if that was the last of all.
    """

    need: Need
    trials: tuple[Trial, ...]
    taken: Trial
    tried: int

    @property
    def untried(self) -> bool:
        """Whether the search stopped before the last flavor."""
        return self.tried >= 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Flavors of every pod set, and what would be charged."""

    prepared: Prepared
    counts: tuple[int, ...]
    choices: tuple[Choice, ...]
    flavors: tuple[Mapping[str, str], ...]
    charge: Mapping[Cell, int]
    mode: Mode
    level: int
    contested: frozenset[Cell]

    @property
    def failed_unit(self) -> int | None:
        """The first unit that no flavor can take; Kueue looks no further, and forgets how far its scans went."""
        units = {choice.need.unit for choice in self.choices if choice.taken.mode is Mode.NO_FIT}
        units |= {unit for unit, _, _ in self.prepared.uncovered}
        return min(units, default=None)


Parts = list[tuple[tuple[int, int], int]]
"""Stages and amounts of one resource."""
Banned = frozenset[tuple[int, str]]
"""(index of need, flavor) that must not be taken."""


Known = dict[tuple[int, tuple[int, ...]], Assignment | None]
"""What a shape gets in its queue: by index of a flavor that has enough free, and the height at which each resource then
borrows. None if that is not good enough."""


class Guard(Protocol):
    """Says whether somebody for whom room is kept stands in the way of an amount (see `holds`)."""

    def denies(self, cell: Cell, amount: int) -> object | None: ...


class FlavorAssigner:
    """Assigns flavors to one workload of one queue."""

    def __init__(
        self,
        node: TreeNode,
        queue: Queue,
        oracle: Oracle,
        *,
        draining: bool,
        fair: bool,
        own: Mapping[Cell, int],
        fit_by_rank: bool,
        first_fit: bool,
        guard: Guard | None,
        known: Known | None,
    ) -> None:
        """`own` is what the workload has already, where it asks for more of it. With `first_fit` flavors with too
        little free are not looked at when another one is good enough: for those who may evict nobody. `known` is what
        was found for the shape before, and is added to."""
        self._known = None if own or draining or guard is not None or not first_fit else known
        self._first_fit = first_fit
        self._own = own
        self._fit_by_rank = fit_by_rank
        self._node = node
        self._queue = queue
        self._oracle = oracle
        self._draining = draining
        self._guard = guard
        preemption = queue.preemption
        self._while_borrowing = preemption.borrow_within_cohort is not PreemptionPolicy.NEVER or (
            fair and preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )

    def assign(
        self,
        prepared: Prepared,
        counts: tuple[int, ...],
        banned: Banned = frozenset(),
        pinned: Mapping[int, str] | None = None,
        start: Mapping[int, int] | None = None,
    ) -> Assignment:
        """The best flavors; with `pinned` (index of need -> flavor) exactly those, with `start` from that index on."""
        whole = not banned and pinned is None and not start and len(prepared.needs) == 1
        if self._known is not None and whole and not prepared.needs[0].shrinks:
            quick = self._from_known(prepared, counts, self._known)
            if quick is not None:
                return quick
        return self._assign(prepared, counts, banned, pinned, start)

    def _from_known(self, prepared: Prepared, counts: tuple[int, ...], known: Known) -> Assignment | None:
        """The first flavor that is good enough, as `_choose_quickly` finds it; None if none is.

        With one need that takes `least` of whatever flavor, it follows from the heights at which it borrows.
        """
        node, need = self._node, prepared.needs[0]
        for index, option, cells, amounts in self._roomy(need, None, None, enumerate(need.options)):
            key = (index, tuple([node.borrow_height(c, a, FUTURE)[0] for c, a in zip(cells, amounts, strict=True)]))
            if key not in known:
                made = self._assign(prepared, counts, pinned={0: option.flavor})
                known[key] = made if self._good_enough(made.choices[0].taken) else None
            found = known[key]
            if found is not None:
                return found
        return None

    def _roomy(
        self,
        need: Need,
        parts: Sequence[Parts] | None,
        sums: StageSums | None,
        options: Iterable[tuple[int, Option]],
    ) -> Iterator[tuple[int, Option, tuple[Cell, ...], Sequence[int]]]:
        """The flavors with enough free, with the cells and what is taken of them."""
        for index, option in options:
            if option.refusal:
                continue
            cells = cells_of(option.flavor, need.resources)
            amounts = _amounts(need, parts, sums, cells)
            for cell, amount in zip(cells, amounts, strict=True):
                if amount > 0 and amount > self._node.available(cell, FUTURE):
                    break
            else:
                yield index, option, cells, amounts

    def _assign(
        self,
        prepared: Prepared,
        counts: tuple[int, ...],
        banned: Banned = frozenset(),
        pinned: Mapping[int, str] | None = None,
        start: Mapping[int, int] | None = None,
    ) -> Assignment:
        pod_sets = prepared.ask.pod_sets
        sums = StageSums(pod_set.stages for pod_set in pod_sets)
        flavors: list[dict[str, str]] = [{} for _ in pod_sets]
        choices: list[Choice] = []
        for index, need in enumerate(prepared.needs):
            names = frozenset(f for i, f in banned if i == index)
            only = None if pinned is None else pinned[index]
            first = 0 if start is None else start.get(index, 0)
            options = [
                (i, option)
                for i, option in enumerate(need.options)
                if i >= first and option.flavor not in names and only in (None, option.flavor)
            ]
            choice = self._choose(prepared, counts, need, sums, options)
            choices.append(choice)
            if not choice.taken.flavor:
                continue
            for member in need.pod_sets:
                for resource in need.resources:
                    if resource in prepared.requests[member]:
                        flavors[member][resource] = choice.taken.flavor
                        for stages, amount in pod_sets[member].needs(resource, counts[member]):
                            sums.add(Cell(choice.taken.flavor, resource), stages, amount)
        mode = min((choice.taken.mode for choice in choices), default=Mode.FIT)
        return Assignment(
            prepared,
            counts,
            tuple(choices),
            tuple(flavors),
            sums.charge() if choices else {},
            Mode.NO_FIT if prepared.uncovered or prepared.unmapped else mode,
            max((choice.taken.level for choice in choices), default=0),
            frozenset(
                Cell(choice.taken.flavor, resource)
                for choice in choices
                for resource, found in choice.taken.modes.items()
                if Mode.NO_FIT < found < Mode.DEFERRED
            ),
        )

    def _choose(
        self,
        prepared: Prepared,
        counts: tuple[int, ...],
        need: Need,
        sums: StageSums,
        options: list[tuple[int, Option]],
    ) -> Choice:
        """Tries flavors in order until one is good enough, and takes the best."""
        parts: list[Parts] | None = None
        if need.shrinks or not sums.empty:  # else it takes `least` of any flavor
            parts = [_parts(prepared, counts, need, resource) for resource in need.resources]
        if self._first_fit and (quick := self._choose_quickly(need, parts, sums, options)) is not None:
            return quick
        trials: list[Trial] = []
        tried = -1
        for index, option in options:
            if option.refusal:
                trial = _refused(option.flavor, option.refusal)
            else:
                trial = self._try(need, parts, sums, option.flavor)
            trials.append(trial)
            if self._good_enough(trial):
                tried = index if index + 1 < len(need.options) else -1
                break
        taken = max(trials, key=self._rank, default=None)  # the first of equals
        if taken is None:
            taken = _refused("", "no flavor left to try")
        return Choice(need, tuple(trials), taken, tried)

    def _choose_quickly(
        self, need: Need, parts: Sequence[Parts] | None, sums: StageSums, options: list[tuple[int, Option]]
    ) -> Choice | None:
        """The first flavor that is good enough, without a word on those before it; None if none is."""
        for index, option, _, _ in self._roomy(need, parts, sums, options):
            trial = self._try(need, parts, sums, option.flavor)
            if self._good_enough(trial):
                return Choice(need, (trial,), trial, index if index + 1 < len(need.options) else -1)
        return None

    def _rank(self, trial: Trial) -> tuple[int, int, int]:
        if trial.mode is Mode.NO_FIT:
            assert trial.reason is not None
            return (0, -SEVERITY.index(trial.reason), 0)
        return self._preference(*trial.worst)

    def _preference(self, mode: Mode, level: int) -> tuple[int, int, int]:
        """How good a mode and a level of borrowing are, greater is better (kueue.md 2.5e)."""
        if mode <= Mode.NO_CANDIDATES:
            return (int(mode), -level, 0)
        if self._queue.flavor_preference is FlavorPreference.BORROWING_OVER_PREEMPTION:
            return (2, mode, -level)
        return (2, -level, mode)

    def _good_enough(self, trial: Trial) -> bool:
        """Whether the search stops here (kueue.md 2.5d)."""
        mode, level = trial.worst
        if trial.mode <= Mode.NO_CANDIDATES:
            return False
        if mode < Mode.FIT and self._queue.when_can_preempt is FlavorFungibility.TRY_NEXT_FLAVOR:
            return False
        return level == 0 or self._queue.when_can_borrow is FlavorFungibility.MAY_STOP_SEARCH

    def _try(self, need: Need, parts: Sequence[Parts] | None, sums: StageSums, flavor: str) -> Trial:
        mode, level, reason = Mode.FIT, 0, None
        worst = (Mode.FIT, 0)
        modes: dict[str, Mode] = {}
        amounts: dict[Cell, int] = {}
        cells = cells_of(flavor, need.resources)
        for cell, amount in zip(cells, _amounts(need, parts, sums, cells), strict=True):
            found, height, why = self._cell(cell, amount)
            modes[cell.resource] = found
            amounts[cell] = amount
            if why is not None and (reason is None or SEVERITY.index(why) > SEVERITY.index(reason)):
                reason = why
            if found < mode:
                mode = found
            if height > level:
                level = height
            if (found, height) != worst and self._preference(found, height) < self._preference(*worst):
                worst = (found, height)
        if self._fit_by_rank and worst[0] is Mode.FIT:
            mode = Mode.FIT
        return Trial(flavor, mode, level, worst, modes, amounts, reason)

    def _cell(self, cell: Cell, amount: int) -> tuple[Mode, int, Reason | None]:
        """How `amount` of one cell can be met, and at which height it borrows."""
        node = self._node
        whole = amount + self._own.get(cell, 0)
        if whole > max(0, node.available(cell, EMPTY)):
            return Mode.NO_FIT, 0, Reason.EXCEEDS_MAX_QUOTA
        level, can_reclaim = node.borrow_height(cell, amount, FUTURE)
        if amount <= max(0, node.available(cell, FUTURE)):
            if self._guard is not None and self._guard.denies(cell, amount) is not None:
                return Mode.NO_FIT, level, Reason.BEHIND_HOLD
            if self._draining and amount > max(0, node.available(cell, NOW)):
                return Mode.DEFERRED, level, Reason.WAITING_FOR_QUOTA
            return Mode.FIT, level, None
        if whole <= node.nominal(cell) or can_reclaim or self._while_borrowing:
            mode, level = self._oracle(cell, amount)
            return mode, level, Reason.WAITING_FOR_QUOTA
        return Mode.NO_FIT, level, Reason.WAITING_FOR_QUOTA


def _amounts(
    need: Need, parts: Sequence[Parts] | None, sums: StageSums | None, cells: tuple[Cell, ...]
) -> Sequence[int]:
    """The charge of each cell with what the need takes of it."""
    if parts is None or sums is None:
        return need.least
    return [sums.with_more(cell, part) for cell, part in zip(cells, parts, strict=True)]


def _parts(prepared: Prepared, counts: tuple[int, ...], need: Need, resource: str) -> Parts:
    """What the pod sets of a need take of a resource, as stages and amounts."""
    return [
        part
        for member in need.pod_sets
        if resource in prepared.requests[member]
        for part in prepared.ask.pod_sets[member].needs(resource, counts[member])
    ]


def _refused(flavor: str, why: str) -> Trial:
    return Trial(flavor, Mode.NO_FIT, 0, (Mode.NO_FIT, 0), {}, {}, Reason.NO_MATCHING_FLAVOR, why)
