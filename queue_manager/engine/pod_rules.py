"""What pod templates demand of the places of their own pods: spread, together, apart (issue 5; kube-scheduler's
PodTopologySpread and InterPodAffinity).

A domain of a rule is a value of a node label, wherever the nodes lie in the topology. A node without the label is out
of the question for spread and together, and no matter for apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queue_manager.engine.configuration import Node
from queue_manager.engine.fleet import Fleet, Forest, Ints, Mask, PodFilter
from queue_manager.engine.picking import pick
from queue_manager.engine.spreading import Spread, holds
from queue_manager.engine.workload import PodRules

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
class _Group:
    """Members that pods can share, their room, and what matters for the spread among them: members by their domains,
    one a rule."""

    members: Ints
    room: int
    cells: Mapping[tuple[int, ...], Ints]
    spread: Spread | None


@dataclass(frozen=True, slots=True)
class Ruled:
    """The places that the rules of a pod set leave, among so many pods as fit on each member of a forest. Domains of
    the members `counted` matter for spread, even where there is no room."""

    forest: Forest
    nodes: Mapping[str, Node]
    counted: Mask
    rules: PodRules
    counts: Ints
    _known: dict[tuple[int, int], list[_Group]] = field(default_factory=dict)

    def find(self, run: tuple[int, int], need: int) -> Found | None:
        """Members for `need` pods inside a range of them; None where the rules leave no such places."""
        for group in self._groups(run):
            if group.room >= need:
                found = self._share(group, need)
                if found is not None:
                    return found
        return None

    def allows(self, run: tuple[int, int], found: Found) -> bool:
        """Whether these pods, all of them inside a range of members, may be there."""
        used = {member for member, _ in found}
        group = next((group for group in self._groups(run) if used <= set(group.members.tolist())), None)
        if group is None:
            return False
        where = {member: cell for cell, members in group.cells.items() for member in members.tolist()}
        if not used <= where.keys():
            return False
        shares = dict.fromkeys(group.cells, 0)
        for member, pods in found:
            shares[where[member]] += pods
        return holds(shares, self.rules.spread)

    def best(self, run: tuple[int, int], need: int) -> int:
        """How many pods the rules let into a range of members at most, up to `need`."""
        best = 0
        for group in self._groups(run):
            most = min(need, group.room)
            if most > best:
                best = max(best, most if group.spread is None else group.spread.most(most))
        return best

    def _groups(self, run: tuple[int, int]) -> list[_Group]:
        found = self._known.get(run)
        if found is None:
            found = self._known[run] = [self._group(members) for members in self._together(np.arange(*run))]
        return found

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

    def _group(self, members: Ints) -> _Group:
        cells = self._cells(members)
        rules, spread = self.rules.spread, None
        if rules:
            spread = Spread({cell: int(self.counts[group].sum()) for cell, group in cells.items()}, rules)
        return _Group(members, int(self.counts[members].sum()), cells, spread)

    def _cells(self, members: Ints) -> dict[tuple[int, ...], Ints]:
        """The members that take part in the spread, by their domains, one a rule."""
        members = members[self.counted[members]]
        if not self.rules.spread:
            return {(): members}
        columns = np.stack([domains_of(self.forest, self.nodes, rule.key)[members] for rule in self.rules.spread])
        inside = (columns >= 0).all(axis=0)
        members, columns = members[inside], columns[:, inside]
        _, firsts, numbers = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        numbers = numbers.reshape(-1)
        order = np.argsort(numbers, kind="stable")
        groups = np.split(members[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        return {tuple(columns[:, firsts[i]].tolist()): groups[i] for i in np.argsort(firsts).tolist()}

    def _share(self, group: _Group, need: int) -> Found | None:
        if group.spread is None:
            return [(int(group.members[i]), n) for i, n in pick(self.counts[group.members], need)]
        shares = group.spread.share(need)
        if shares is None:
            return None
        found: Found = []
        for cell, count in shares.items():
            if count:
                members = group.cells[cell]
                found += [(int(members[i]), n) for i, n in pick(self.counts[members], count)]
        return found


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
