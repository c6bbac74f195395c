"""What pod templates demand of the places of their own pods: spread, together, apart (issue 5; kube-scheduler's
PodTopologySpread and InterPodAffinity).

A domain of a rule is a value of a node label, wherever the nodes lie in the topology. A node without the label is out
of the question for spread and together, and no matter for apart.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from queue_manager.engine.configuration import Node
from queue_manager.engine.fleet import Fleet, Forest, Ints, Mask, PodFilter
from queue_manager.engine.picking import pick
from queue_manager.engine.workload import PodRules, SpreadRule

MOST_TRIES = 512
"""How many smallest counts of domains are tried where several spread rules hold at a time."""
MOST_WAYS = 20_000
"""How many ways to share pods out are tried one by one."""

Found = list[tuple[int, int]]
"""Members of a forest, and pods."""


def domains_of(forest: Forest, nodes: Mapping[str, Node], key: str) -> Ints:
    """The domain of each member as a number, -1 for a node without the label."""
    found = forest.ids.get(key)
    if found is None:
        numbers: dict[str, int] = {}
        values = (nodes[name].labels.get(key) for name in forest.names)
        numbered = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
        found = forest.ids[key] = np.array(numbered, dtype=np.int64)
    return found


def one_each(forest: Forest, nodes: Mapping[str, Node], counts: Ints, keys: Sequence[str]) -> Ints:
    """Room if no two pods may be in one domain of a key: of each domain the tightest node, for one pod."""
    by_key = [domains_of(forest, nodes, key) for key in keys]
    for numbers in sorted(by_key, key=lambda numbers: int(numbers.max(initial=-1))):
        inside = np.flatnonzero((counts > 0) & (numbers >= 0))
        order = inside[np.lexsort((inside, counts[inside], numbers[inside]))]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = numbers[order[1:]] != numbers[order[:-1]]
        counts = np.where(numbers >= 0, 0, counts)
        counts[order[first]] = 1
    return counts


def counted(fleet: Fleet, forest: Forest, pods: PodFilter, rules: PodRules) -> Mask:
    """The members whose domains kube-scheduler takes into account for the spread of these pods: selector and affinity
    have to admit them, and where the rules say so taints."""
    honors_taints = any(rule.honors_taints for rule in rules.spread)
    mask: Mask = (fleet.mask(pods) if honors_taints else fleet.wanted(pods))[forest.rows]
    return mask


@dataclass(frozen=True, slots=True)
class Ruled:
    """The places that the rules of a pod set leave, among so many pods as fit on each member of a forest. Domains of
    the members `counted` matter for spread, even where there is no room."""

    forest: Forest
    nodes: Mapping[str, Node]
    counted: Mask
    rules: PodRules
    counts: Ints

    def find(self, run: tuple[int, int], need: int) -> Found | None:
        """Members for `need` pods inside a range of them; None where the rules leave no such places."""
        for members in self._together(np.arange(*run)):
            if int(self.counts[members].sum()) >= need:
                found = self._spread(members, need)
                if found is not None:
                    return found
        return None

    def allows(self, run: tuple[int, int], found: Found) -> bool:
        """Whether these pods, all of them inside a range of members, may be there."""
        used = {member for member, _ in found}
        members = next((group for group in self._together(np.arange(*run)) if used <= set(group.tolist())), None)
        if members is None:
            return False
        cells = self._cells(members)
        where = {member: cell for cell, group in cells.items() for member in group}
        if not used <= where.keys():
            return False
        shares = dict.fromkeys(cells, 0)
        for member, pods in found:
            shares[where[member]] += pods
        return _holds(shares, self.rules.spread)

    def best(self, run: tuple[int, int], need: int) -> int:
        """How many pods the rules let into a range of members at most, up to `need`."""
        low, high = 0, need
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.find(run, middle) is not None else (low, middle - 1)
        return low

    def _together(self, members: Ints) -> list[Ints]:
        """The members that pods can share, the fewest that fit first."""
        if not self.rules.together:
            return [members]
        groups: dict[tuple[int, ...], list[int]] = {}
        columns = [domains_of(self.forest, self.nodes, key)[members].tolist() for key in self.rules.together]
        for member, numbers in zip(members.tolist(), zip(*columns, strict=True), strict=True):
            if min(numbers) >= 0:
                groups.setdefault(numbers, []).append(member)
        found = [np.array(group, dtype=np.int64) for group in groups.values()]
        return sorted(found, key=lambda group: (int(self.counts[group].sum()), int(group[0])))

    def _spread(self, members: Ints, need: int) -> Found | None:
        rules = self.rules.spread
        if not rules:
            return [(int(members[i]), n) for i, n in pick(self.counts[members], need)]
        cells = self._cells(members)
        rooms = {numbers: int(self.counts[group].sum()) for numbers, group in cells.items()}
        shares = spread(rooms, rules, need)
        if shares is None:
            return None
        found: Found = []
        for numbers, count in shares.items():
            if count:
                group = np.array(cells[numbers], dtype=np.int64)
                found += [(int(group[i]), n) for i, n in pick(self.counts[group], count)]
        return found

    def _cells(self, members: Ints) -> dict[tuple[int, ...], list[int]]:
        """The members that take part in the spread, by their domains, one a rule."""
        cells: dict[tuple[int, ...], list[int]] = {}
        rules, counted = self.rules.spread, self.counted.tolist()
        columns = [domains_of(self.forest, self.nodes, rule.key)[members].tolist() for rule in rules]
        domains = zip(*columns, strict=True) if rules else itertools.repeat((0,))
        for member, numbers in zip(members.tolist(), domains, strict=bool(rules)):
            if min(numbers) >= 0 and counted[member]:
                cells.setdefault(numbers, []).append(member)
        return cells


# ---- spread


def spread(
    rooms: Mapping[tuple[int, ...], int], rules: Sequence[SpreadRule], need: int
) -> dict[tuple[int, ...], int] | None:
    """Shares of `need` pods by cell, a tuple of one domain a rule, so that every rule holds; None if there are none.

    Exact where the domains of the rules nest (as those of a topology do), up to `MOST_TRIES`, and in small cases; else
    one pod after another goes where fewest are.
    """
    order = sorted(range(len(rules)), key=lambda i: (len({cell[i] for cell in rooms}), i))
    root = _tree(rooms, order)
    if root is None:
        return _one_by_one(rooms, rules, need) or _searched(rooms, rules, need)
    for least in _minima(rooms, rules, need):
        low, high = root.measure(rules, least)
        if low <= need <= high:
            shares: dict[tuple[int, ...], int] = {}
            root.share(need, shares)
            return shares
    return None


def _minima(rooms: Mapping[tuple[int, ...], int], rules: Sequence[SpreadRule], need: int) -> Iterator[tuple[int, ...]]:
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


@dataclass(slots=True)
class _Domain:
    """A domain of a rule (-1 for all of them), with the domains or the cell inside it."""

    rule: int = -1
    inside: dict[int, _Domain] = field(default_factory=dict)
    cell: tuple[int, ...] = ()
    room: int = 0
    low: int = 0
    high: int = 0

    def measure(self, rules: Sequence[SpreadRule], least: Sequence[int]) -> tuple[int, int]:
        """How few and how many pods it may have if the emptiest domain of each rule has `least`; no pods may be too
        few and too many."""
        low, high = 0, self.room
        if self.inside:
            parts = [part.measure(rules, least) for part in self.inside.values()]
            low, high = sum(part[0] for part in parts), sum(part[1] for part in parts)
            if any(part[0] > part[1] for part in parts):
                low, high = 1, 0
        if self.rule >= 0 and low <= high:
            low = max(low, least[self.rule])
            high = min(high, least[self.rule] + rules[self.rule].max_skew)
        self.low, self.high = low, high
        return low, high

    def share(self, pods: int, shares: dict[tuple[int, ...], int]) -> None:
        """Gives pods to what is inside, always to the part with the fewest."""
        if not self.inside:
            shares[self.cell] = pods
            return
        parts = list(self.inside.values())
        given = [part.low for part in parts]
        heap = [(given[i], i) for i, part in enumerate(parts) if part.high > part.low]
        heapq.heapify(heap)
        for _ in range(pods - sum(given)):
            count, i = heapq.heappop(heap)
            given[i] = count + 1
            if given[i] < parts[i].high:
                heapq.heappush(heap, (given[i], i))
        for part, count in zip(parts, given, strict=True):
            part.share(count, shares)


def _tree(rooms: Mapping[tuple[int, ...], int], order: Sequence[int]) -> _Domain | None:
    """The domains of all rules inside each other, None if some cross."""
    around: dict[tuple[int, int], tuple[int, ...]] = {}
    root = _Domain()
    for cell, room in rooms.items():
        here = root
        path: tuple[int, ...] = ()
        for rule in order:
            if around.setdefault((rule, cell[rule]), path) != path:
                return None
            here = here.inside.setdefault(cell[rule], _Domain(rule))
            path = (*path, cell[rule])
        here.cell, here.room = cell, room
    return root


def _one_by_one(
    rooms: Mapping[tuple[int, ...], int], rules: Sequence[SpreadRule], need: int
) -> dict[tuple[int, ...], int] | None:
    shares = dict.fromkeys(rooms, 0)
    there: list[dict[int, int]] = [{cell[i]: 0 for cell in rooms} for i in range(len(rules))]
    for _ in range(need):
        least = [0 if rule.min_domains > 1 else min(there[i].values()) for i, rule in enumerate(rules)]
        open_cells = [
            (sum(there[i][number] for i, number in enumerate(cell)), number_of, cell)
            for number_of, (cell, room) in enumerate(rooms.items())
            if shares[cell] < room
            and all(there[i][cell[i]] + 1 - least[i] <= rule.max_skew for i, rule in enumerate(rules))
        ]
        if not open_cells:
            return None
        cell = min(open_cells)[2]
        shares[cell] += 1
        for i, number in enumerate(cell):
            there[i][number] += 1
    return shares


def _searched(
    rooms: Mapping[tuple[int, ...], int], rules: Sequence[SpreadRule], need: int
) -> dict[tuple[int, ...], int] | None:
    """Every way to share out the pods, where there are not too many."""
    ways = [range(min(room, need) + 1) for room in rooms.values()]
    if math.prod(len(way) for way in ways) > MOST_WAYS:
        return None
    for counts in product(*ways):
        if sum(counts) == need and _holds(dict(zip(rooms, counts, strict=True)), rules):
            return dict(zip(rooms, counts, strict=True))
    return None


def _holds(shares: Mapping[tuple[int, ...], int], rules: Sequence[SpreadRule]) -> bool:
    for i, rule in enumerate(rules):
        there: dict[int, int] = {}
        for cell, pods in shares.items():
            there[cell[i]] = there.get(cell[i], 0) + pods
        least = 0 if rule.min_domains > 1 else min(there.values())
        if max(there.values()) - least > rule.max_skew:
            return False
    return True


# ---- what can't be at all


def contradiction(rules: PodRules, count: int, keys: Sequence[str], one_of: int) -> str:
    """Why `count` pods that have to lie in one domain of level `one_of` (-1: they need not) can't follow the rules
    whatever is free, "" if they can."""
    if count < 2:
        return ""
    for key in rules.apart:
        what = f"its pod anti-affinity allows one pod per {key}"
        if one_of >= 0 and key in keys[: one_of + 1]:
            return f"{what}, and all {count} pods have to lie in one {keys[one_of]}"
        for other in rules.together:
            if key == other or (key in keys and other in keys and keys.index(key) <= keys.index(other)):
                return f"{what}, and its pod affinity wants all {count} pods in one {other}"
    return ""


def says(rules: PodRules) -> str:
    """The rules in words."""
    found = [f"one pod per {key} (pod anti-affinity)" for key in rules.apart]
    found += [f"all pods in one {key} (pod affinity)" for key in rules.together]
    for rule in rules.spread:
        text = f"at most {rule.max_skew} pods more in one {rule.key} than in another (topology spread constraint"
        found.append(text + (f", of at least {rule.min_domains})" if rule.min_domains > 1 else ")"))
    return ", ".join(found)
