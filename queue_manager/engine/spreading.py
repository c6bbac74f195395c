"""Shares of equal pods by domain so that topology spread constraints hold (kube-scheduler's PodTopologySpread).

A cell is what lies in one domain of each rule, a tuple of their numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from queue_manager.engine.fleet import Ints
from queue_manager.engine.workload import SpreadRule

MOST_TRIES = 512
"""How many smallest counts of domains are tried where several spread rules hold at a time."""
MOST_WAYS = 20_000
"""How many ways to share pods out are tried one by one."""

Cell = tuple[int, ...]
Shares = dict[Cell, int]

_CLOSED = 1 << 40
"""More pods than there are."""


class Spread:
    """Shares out pods over cells with so much room each. Exact where the domains of the rules nest (as those of a
    topology do), up to `MOST_TRIES`, and in small cases; else one pod after another goes where fewest are."""

    def __init__(self, rooms: Mapping[Cell, int], rules: Sequence[SpreadRule]) -> None:
        self._rooms = rooms
        self._rules = rules
        order = sorted(range(len(rules)), key=lambda i: (len({cell[i] for cell in rooms}), i))
        self._root = _tree(rooms, order)

    def share(self, need: int) -> Shares | None:
        """So many pods by cell, so that every rule holds; None if they can't be shared out."""
        if self._root is None:
            shares = _one_by_one(self._rooms, self._rules, need)
            return shares if sum(shares.values()) == need else _searched(self._rooms, self._rules, need)
        least = self._least(need)
        if least is None:
            return None
        shares = {}
        self._root.share(self._rules, least, need, shares)
        return shares

    def most(self, need: int) -> int:
        """How many pods can be shared out, up to `need`."""
        if self._root is None:
            low = sum(_one_by_one(self._rooms, self._rules, need).values())
            more = range(need, low, -1) if _are_few(self._rooms, low + 1) else ()
            return next((n for n in more if _searched(self._rooms, self._rules, n) is not None), low)
        low, high = 0, need
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._least(middle) is not None else (low, middle - 1)
        return low

    def _least(self, need: int) -> tuple[int, ...] | None:
        """What the emptiest domain of each rule has, where so many pods are shared out; None if they can't be."""
        assert self._root is not None
        for least in _minima(self._rooms, self._rules, need):
            low, high = self._root.measure(self._rules, least)
            if low <= need <= high:
                return least
        return None


def _minima(rooms: Mapping[Cell, int], rules: Sequence[SpreadRule], need: int) -> Iterator[tuple[int, ...]]:
    """What the emptiest domain of each rule may have, the most first."""
    ranges: list[range] = []
    for i, rule in enumerate(rules):
        room: dict[int, int] = {}
        for cell, pods in rooms.items():
            room[cell[i]] = room.get(cell[i], 0) + pods
        # A pinned pod shows kube-scheduler one domain only, so fewer than the rule wants.
        most = 0 if rule.min_domains > 1 or not room else min(need // len(room), *room.values())
        ranges.append(range(most, -1, -1))
    for number, least in enumerate(product(*ranges)):
        if number == MOST_TRIES:
            return
        yield least


# ---- domains inside each other


@dataclass(slots=True)
class _Domain:
    """A domain of a rule (-1 for all of them), with the domains or the cell inside it. `deeper` are the rules whose
    domains lie inside."""

    deeper: tuple[int, ...]
    rule: int = -1
    inside: dict[int, _Domain] = field(default_factory=dict)
    cell: Cell = ()
    room: int = 0
    known: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)

    def measure(self, rules: Sequence[SpreadRule], least: Sequence[int]) -> tuple[int, int]:
        """How few and how many pods it may have if the emptiest domain of each rule has `least`; no pods may be too
        few and too many."""
        low, high = self._inner(rules, least)
        if self.rule >= 0 and low <= high:
            low = max(low, least[self.rule])
            high = min(high, least[self.rule] + rules[self.rule].max_skew)
        return low, high

    def _inner(self, rules: Sequence[SpreadRule], least: Sequence[int]) -> tuple[int, int]:
        """The same for what is inside, the domain's own rule aside."""
        if not self.inside:
            return 0, self.room
        key = tuple(least[rule] for rule in self.deeper)
        found = self.known.get(key)
        if found is None:
            parts = [part.measure(rules, least) for part in self.inside.values()]
            fits = all(low <= high for low, high in parts)
            found = (sum(low for low, _ in parts), sum(high for _, high in parts)) if fits else (1, 0)
            self.known[key] = found
        return found

    def share(self, rules: Sequence[SpreadRule], least: Sequence[int], pods: int, shares: Shares) -> None:
        """Gives pods to what is inside, always to the part with the fewest."""
        if not self.inside:
            shares[self.cell] = pods
            return
        parts = list(self.inside.values())
        bounds = [part.measure(rules, least) for part in parts]
        given = [low for low, _ in bounds]
        heap = [(low, i) for i, (low, high) in enumerate(bounds) if high > low]
        heapq.heapify(heap)
        for _ in range(pods - sum(given)):
            count, i = heapq.heappop(heap)
            given[i] = count + 1
            if given[i] < bounds[i][1]:
                heapq.heappush(heap, (given[i], i))
        for part, count in zip(parts, given, strict=True):
            part.share(rules, least, count, shares)


def _tree(rooms: Mapping[Cell, int], order: Sequence[int]) -> _Domain | None:
    """The domains of all rules inside each other, None if some cross."""
    around: dict[tuple[int, int], Cell] = {}
    deeper = [tuple(order[depth:]) for depth in range(len(order) + 1)]
    root = _Domain(deeper[0])
    for cell, room in rooms.items():
        here = root
        path: Cell = ()
        for depth, rule in enumerate(order, 1):
            if around.setdefault((rule, cell[rule]), path) != path:
                return None
            inner = here.inside.get(cell[rule])
            if inner is None:
                inner = here.inside[cell[rule]] = _Domain(deeper[depth], rule)
            here = inner
            path = (*path, cell[rule])
        here.cell, here.room = cell, room
    return root


# ---- domains that cross


class _Even:
    """Pods in the domains of one rule, and which of these can have no more for now."""

    def __init__(self, rule: SpreadRule, numbers: Sequence[int]) -> None:
        self._rule = rule
        cells: dict[int, list[int]] = {}
        for cell, number in enumerate(numbers):
            cells.setdefault(number, []).append(cell)
        self.cells: dict[int, Ints] = {number: np.array(found, dtype=np.int64) for number, found in cells.items()}
        self._pods = dict.fromkeys(cells, 0)
        self._least = 0
        self._at_least = len(cells)
        self._closed: set[int] = set()

    def put(self, number: int, keys: Ints) -> None:
        """One more pod in a domain. `keys` are the pods around each cell, more than there are where it is closed."""
        before = self._pods[number]
        self._pods[number] = before + 1
        keys[self.cells[number]] += 1
        if self._full(number):
            self._closed.add(number)
            keys[self.cells[number]] += _CLOSED
        self._at_least -= before == self._least
        if not self._at_least and self._rule.min_domains <= 1:
            self._least = min(self._pods.values())
            self._at_least = sum(pods == self._least for pods in self._pods.values())
            for other in [other for other in self._closed if not self._full(other)]:
                self._closed.discard(other)
                keys[self.cells[other]] -= _CLOSED

    def _full(self, number: int) -> bool:
        return self._pods[number] + 1 - self._least > self._rule.max_skew


def _one_by_one(rooms: Mapping[Cell, int], rules: Sequence[SpreadRule], need: int) -> Shares:
    """Up to so many pods, each where the fewest are in all the domains around."""
    cells = list(rooms)
    shares = dict.fromkeys(cells, 0)
    if not cells:
        return shares
    evens = [_Even(rule, [cell[i] for cell in cells]) for i, rule in enumerate(rules)]
    keys: Ints = np.zeros(len(cells), dtype=np.int64)
    keys[[room < 1 for room in rooms.values()]] += _CLOSED
    for _ in range(need):
        lowest = int(keys.argmin())
        if keys[lowest] >= _CLOSED:
            break
        cell = cells[lowest]
        shares[cell] += 1
        if shares[cell] == rooms[cell]:
            keys[lowest] += _CLOSED
        for number, even in zip(cell, evens, strict=True):
            even.put(number, keys)
    return shares


def _searched(rooms: Mapping[Cell, int], rules: Sequence[SpreadRule], need: int) -> Shares | None:
    """Every way to share out the pods, where there are not too many."""
    if not _are_few(rooms, need):
        return None
    for counts in product(*(range(min(room, need) + 1) for room in rooms.values())):
        if sum(counts) == need and holds(dict(zip(rooms, counts, strict=True)), rules):
            return dict(zip(rooms, counts, strict=True))
    return None


def _are_few(rooms: Mapping[Cell, int], need: int) -> bool:
    """Whether few enough ways to share out the pods are to be tried."""
    ways = 1
    for room in rooms.values():
        ways *= min(room, need) + 1
        if ways > MOST_WAYS:
            return False
    return True


def holds(shares: Mapping[Cell, int], rules: Sequence[SpreadRule]) -> bool:
    """Whether pods shared out so keep the rules."""
    for i, rule in enumerate(rules):
        there: dict[int, int] = {}
        for cell, pods in shares.items():
            there[cell[i]] = there.get(cell[i], 0) + pods
        least = 0 if rule.min_domains > 1 else min(there.values(), default=0)
        if max(there.values(), default=0) - least > rule.max_skew:
            return False
    return True
