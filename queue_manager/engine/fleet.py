"""The nodes: what they offer, what is used on them, which pods may go there, and their domains by topology level.

Dictionaries hold the truth and are changed through the undo log; the matrices are caches for sweeps over all nodes.
Views of usage are those of `tree`. Rows are in no meaningful order: whatever is decided goes by domain values and
names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from queue_manager.engine.alone import Alone, Exclusives
from queue_manager.engine.configuration import HOSTNAME, Node
from queue_manager.engine.quantities import port_of
from queue_manager.engine.selectors import affine, selects, untolerated, wants
from queue_manager.engine.tree import EMPTY, FUTURE, NOW
from queue_manager.engine.undo import UndoLog
from queue_manager.engine.workload import SelectorTerm, Taint, Toleration

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Amounts = Mapping[str, int]
Occupancy = Mapping[str, Amounts]
"""Node -> resource -> amount in base units."""

_HUGE = 1 << 60
_NOTHING: Amounts = {}
_VIEWS = (NOW, FUTURE, EMPTY)
MOST_COUNTS = 64
"""Shapes of pods of which a forest remembers what fits; the one not asked for longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class PodFilter:
    """What decides, apart from capacity, whether pods may go to a node."""

    selector: tuple[tuple[str, str], ...]
    affinity: tuple[SelectorTerm, ...]
    tolerations: tuple[Toleration, ...]


def exclusion(node: Node, pods: PodFilter) -> str:
    """Why pods may not go to a node, "" if they may."""
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "unschedulable"
    taint = untolerated(node.taints, pods.tolerations)
    if taint is not None:
        return f"taint {show_taint(taint)}"
    if not selects(dict(pods.selector), node.labels):
        return "node selector"
    if not affine(pods.affinity, node.labels, node.name):
        return "node affinity"
    return ""


def show_taint(taint: Taint) -> str:
    """`key=value:Effect`, as kubectl prints it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


class Level:
    """The domains of one level: contiguous runs of a forest's members, ordered by their values."""

    __slots__ = ("children", "ends", "index", "starts", "values")

    def __init__(self, paths: Sequence[tuple[str, ...]], depth: int) -> None:
        starts = [i for i, path in enumerate(paths) if i == 0 or path[: depth + 1] != paths[i - 1][: depth + 1]]
        self.starts: Ints = np.array(starts, dtype=np.int64)
        self.ends: Ints = np.array([*starts[1:], len(paths)], dtype=np.int64) if starts else self.starts
        self.values = [paths[start][: depth + 1] for start in starts]
        self.index = {values: i for i, values in enumerate(self.values)}


class Forest:
    """The nodes of some flavor labels that carry all level labels, in order of domain values, then name."""

    def __init__(
        self, levels: tuple[str, ...], labels: Mapping[str, str], nodes: Mapping[str, Node], rows: Mapping[str, int]
    ):
        self.level_keys = levels
        members = sorted(
            (tuple(node.labels[key] for key in levels), name)
            for name, node in nodes.items()
            if selects(labels, node.labels) and all(key in node.labels for key in levels)
        )
        paths = [path for path, _ in members]
        self.names = [name for _, name in members]
        self.path_of = dict(zip(self.names, paths, strict=True))
        self.member_of = {name: i for i, name in enumerate(self.names)}
        self.rows: Ints = np.array([rows[name] for name in self.names], dtype=np.int64)
        self.counts: dict[tuple[object, ...], _CachedCounts] = {}
        self.ids: dict[str, Ints] = {}  # numbers of domains of other labels, see `pod_rules.py`
        self.foreign: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[int, int]]]] = {}  # see Fleet.members
        self.levels = [Level(paths, depth) for depth in range(len(levels))]

    def run(self, values: tuple[str, ...]) -> tuple[int, int]:
        """The members that lie in a domain, as a range; all of them for ()."""
        if not values:
            return 0, len(self.names)
        level = self.levels[len(values) - 1]
        index = level.index.get(values)
        return (0, 0) if index is None else (int(level.starts[index]), int(level.ends[index]))

    def level_of(self, key: str) -> int | None:
        """Index of a level key, None if the topology has no such level."""
        return self.level_keys.index(key) if key in self.level_keys else None


@dataclass(slots=True)
class _CachedMask:
    mask: Mask
    seen: int


@dataclass(slots=True)
class _CachedCounts:
    """Pods that fit on each member of a forest; `seen` says up to where changes of nodes and of usage are in."""

    counts: Ints
    seen: tuple[int, int]


class Fleet:
    """All nodes, with what is used on them in each view."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self.alone = Exclusives(log)
        self.nodes: dict[str, Node] = {}
        self.occupied: list[dict[str, Amounts]] = [{} for _ in _VIEWS]
        self._hosts: dict[str, set[str]] = {}
        self._rows: dict[str, int] = {}
        self._spare_rows: list[int] = []
        self._columns: dict[str, int] = {}
        self._ports: list[str] = []
        self._capacity: Ints = np.zeros((0, 0), dtype=np.int64)
        self._used: list[Ints] = [np.zeros((0, 0), dtype=np.int64) for _ in _VIEWS]
        self._stale: list[set[str]] = [set() for _ in _VIEWS]
        self._changed: list[str] = []
        self._moved: list[list[str]] = [[] for _ in _VIEWS]
        self._masks: dict[tuple[PodFilter, bool], _CachedMask] = {}
        self._forests: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Forest] = {}

    # ---- nodes

    def upsert(self, node: Node) -> bool:
        """Adds or replaces a node; says whether anything that matters changed."""
        old = self.nodes.get(node.name)
        if old == node:
            return False
        self.nodes[node.name] = node
        if old is None or old.labels != node.labels:
            self._forests.clear()
            self._forget_host(old)
            if HOSTNAME in node.labels:
                self._hosts.setdefault(node.labels[HOSTNAME], set()).add(node.name)
        if node.name not in self._rows:
            self._rows[node.name] = self._spare_rows.pop() if self._spare_rows else len(self._rows)
        self._reserve(node)
        self._write_capacity(node)
        self._note(node.name)
        for stale in self._stale:
            stale.add(node.name)
        return True

    def remove(self, name: str) -> bool:
        """Forgets a node; what was used on it counts again if it comes back."""
        node = self.nodes.pop(name, None)
        if node is None:
            return False
        self._forget_host(node)
        row = self._rows.pop(name)
        self._spare_rows.append(row)
        self._capacity[row] = 0
        for used in self._used:
            used[row] = 0
        self._forests.clear()
        self._masks.clear()
        self._changed.clear()
        self._forget_counts()
        return True

    def host(self, value: str) -> str | None:
        """The node with this host name, the first by name if several have it; None if none has."""
        return min(self._hosts.get(value, ()), default=None)

    def _forget_host(self, node: Node | None) -> None:
        host = None if node is None else node.labels.get(HOSTNAME)
        if node is not None and host is not None:
            self._hosts[host].discard(node.name)
            if not self._hosts[host]:
                del self._hosts[host]

    def _note(self, name: str) -> None:
        if len(self._changed) > 4 * len(self._rows) + 64:
            self._masks.clear()
            self._changed.clear()
            self._forget_counts()
        self._changed.append(name)

    def _forget_counts(self) -> None:
        for forest in self._forests.values():
            forest.counts.clear()
        for moved in self._moved:
            moved.clear()

    def _reserve(self, node: Node) -> None:
        """Makes the matrices large enough for a node and its resources."""
        for resource in node.allocatable:
            self._columns.setdefault(resource, len(self._columns))
        rows, columns = self._capacity.shape
        wanted = self._rows[node.name] + 1
        if wanted > rows or len(self._columns) > columns:
            shape = (max(wanted, 2 * rows, 8) if wanted > rows else rows, max(len(self._columns), columns))
            self._capacity = _grown(self._capacity, shape)
            self._used = [_grown(used, shape) for used in self._used]
            for stale in self._stale:
                stale.update(self._rows)

    def _write_capacity(self, node: Node) -> None:
        row = np.zeros(self._capacity.shape[1], dtype=np.int64)
        for resource, amount in node.allocatable.items():
            row[self._columns[resource]] = min(amount, _HUGE) - min(node.foreign.get(resource, 0), _HUGE)
        for resource in self._ports:
            row[self._columns[resource]] = _capacity(node, resource)
        self._capacity[self._rows[node.name]] = row

    # ---- usage

    def occupy(self, places: Occupancy, view: int, alone: Iterable[Alone] = ()) -> None:
        """Counts pods on nodes, and domains that exclusive replicas among them have for themselves; revocable."""
        self._shift(places, view, 1)
        self.alone.take(alone, view)

    def vacate(self, places: Occupancy, view: int, alone: Iterable[Alone] = ()) -> None:
        """Takes `occupy` back, revocable."""
        self._shift(places, view, -1)
        self.alone.give_back(alone, view)

    def _shift(self, places: Occupancy, view: int, sign: int) -> None:
        occupied = self.occupied[view]
        before: dict[str, Amounts] = {}
        after: dict[str, Amounts] = {}
        for name, amounts in places.items():
            old = before[name] = occupied.get(name, _NOTHING)
            if sign < 0 and old == amounts:
                after[name] = _NOTHING
            elif sign > 0 and not old and 0 not in amounts.values():
                after[name] = amounts
            else:
                sums = {r: old.get(r, 0) + sign * amounts.get(r, 0) for r in {**old, **amounts}}
                after[name] = {resource: amount for resource, amount in sums.items() if amount}
        self._log.call(self._set_occupied, before, view)
        self._set_occupied(after, view)

    def _set_occupied(self, places: Occupancy, view: int) -> None:
        occupied = self.occupied[view]
        for name, amounts in places.items():
            if amounts:
                occupied[name] = amounts
            else:
                occupied.pop(name, None)
        self._note_moved(places, view)

    def _note_moved(self, names: Collection[str], view: int) -> None:
        self._stale[view].update(names)
        moved = self._moved[view]
        if len(moved) + len(names) > 4 * len(self._rows) + 64:
            self._forget_counts()
        moved.extend(names)

    def clear_view(self, view: int) -> None:
        """Makes a view an empty one, revocable."""
        while len(self.occupied) <= view:
            self.occupied.append({})
            self._used.append(np.zeros_like(self._capacity))
            self._stale.append(set())
            self._moved.append([])
        self._log.call(self._set_view, view, self.occupied[view])
        self._set_view(view, {})
        self.alone.clear_view(view)

    def _set_view(self, view: int, occupied: dict[str, Amounts]) -> None:
        touched = {*self.occupied[view], *occupied}
        self.occupied[view] = occupied
        self._note_moved(touched, view)

    def has_room(self, places: Occupancy, view: int, alone: Iterable[Alone] = ()) -> bool:
        """Whether usable nodes have all of this left, and nobody else these domains."""
        if self.alone.clash(alone, view):
            return False
        for name, amounts in places.items():
            node = self.nodes.get(name)
            if node is None or not node.ready or node.unschedulable:
                return False
            free = self.free_on(node, view)
            if any(free(resource) < amount for resource, amount in amounts.items()):
                return False
        return True

    def free(self, view: int) -> Ints:
        """Free amounts, row by column, as a new matrix."""
        if view == EMPTY:
            return self._capacity.copy()
        used, occupied = self._used[view], self.occupied[view]
        used[[row for name in self._stale[view] if (row := self._rows.get(name)) is not None]] = 0
        for name in self._stale[view]:
            amounts, row = occupied.get(name), self._rows.get(name)
            for resource, amount in amounts.items() if amounts and row is not None else ():
                if resource in self._columns:
                    used[row, self._columns[resource]] = min(amount, _HUGE)
        self._stale[view].clear()
        return self._capacity - self._used[view]

    def room(self, name: str, requests: Amounts, view: int) -> int:
        """How many pods with these requests one node has room for, 0 for an unknown node."""
        node = self.nodes.get(name)
        if node is None:
            return 0
        free = self.free_on(node, view)
        return max(0, min((free(r) // amount for r, amount in requests.items() if amount > 0), default=0))

    def free_on(self, node: Node, view: int) -> Callable[[str], int]:
        """What is free of a resource on one node."""
        used = {} if view == EMPTY else self.occupied[view].get(node.name, {})
        return lambda resource: _capacity(node, resource) - used.get(resource, 0)

    def overbooked(self, name: str, view: int) -> bool:
        """Whether more is used of some resource of a node than it has; False for an unknown node."""
        node = self.nodes.get(name)
        if node is None:
            return False
        free = self.free_on(node, view)
        return any(free(resource) < 0 for resource in {*self.occupied[view].get(name, {}), *node.foreign})

    def counts(self, forest: Forest, pods: PodFilter, requests: Amounts, view: int) -> Ints:
        """How many pods with these requests fit on each member of a forest. Not to be changed by the caller."""
        key = (pods, tuple(sorted(requests.items())), view)
        cached = forest.counts.pop(key, None)
        seen = (len(self._changed), len(self._moved[view]))
        stale: set[str] = set()
        if cached is not None and cached.seen != seen:
            stale = {*self._changed[cached.seen[0] :], *self._moved[view][cached.seen[1] :]}
        if cached is None or 64 * len(stale) > len(forest.names) + 4096:
            cached = _CachedCounts(self._all_counts(forest, pods, requests, view), seen)
        for name in stale if cached.seen != seen else ():
            member = forest.member_of.get(name)
            if member is not None:
                node = self.nodes[name]
                cached.counts[member] = 0 if exclusion(node, pods) else self.room(name, requests, view)
        cached.seen = seen
        if len(forest.counts) >= MOST_COUNTS:
            del forest.counts[next(iter(forest.counts))]
        forest.counts[key] = cached
        return cached.counts

    def _all_counts(self, forest: Forest, pods: PodFilter, requests: Amounts, view: int) -> Ints:
        rows = forest.rows
        columns = [self.column(resource) for resource in requests]
        if not len(rows) or None in columns:
            return np.zeros(len(rows), dtype=np.int64)
        free = self.free(view)
        counts: Ints = np.full(len(rows), _HUGE, dtype=np.int64)
        for column, amount in zip(columns, requests.values(), strict=True):
            np.minimum(counts, free[rows, column] // amount, out=counts)
        np.maximum(counts, 0, out=counts)
        counts[~self.mask(pods)[rows]] = 0
        return counts

    # ---- what pods see

    def column(self, resource: str) -> int | None:
        """The matrix column of a resource, None if no node has it. Every node has every host port, once."""
        if resource not in self._columns and port_of(resource) is not None:
            self._add_port(resource)
        return self._columns.get(resource)

    def _add_port(self, resource: str) -> None:
        column = self._columns[resource] = len(self._columns)
        self._ports.append(resource)
        if column >= self._capacity.shape[1]:
            shape = (self._capacity.shape[0], column + 1)
            self._capacity = _grown(self._capacity, shape)
            self._used = [_grown(used, shape) for used in self._used]
        for name, row in self._rows.items():
            self._capacity[row, column] = _capacity(self.nodes[name], resource)
        for stale in self._stale:
            stale.update(self._rows)

    def forest(self, levels: tuple[str, ...], labels: Mapping[str, str]) -> Forest:
        """Domains of the nodes with these labels."""
        key = (levels, tuple(sorted(labels.items())))
        found = self._forests.get(key)
        if found is None:
            found = self._forests[key] = Forest(levels, labels, self.nodes, self._rows)
        return found

    def members(self, forest: Forest, domain: Alone) -> list[tuple[int, int]]:
        """The members of a forest that lie in a domain, as ranges."""
        depth = len(domain.keys)
        if domain.keys == forest.level_keys[:depth]:
            run = forest.run(domain.values)
            return [run] if run != (0, 0) else []
        found = forest.foreign.get(domain.keys)
        if found is None:
            found = forest.foreign[domain.keys] = self._domains(forest, domain.keys)
        return found.get(domain.values, [])

    def _domains(self, forest: Forest, keys: tuple[str, ...]) -> dict[tuple[str, ...], list[tuple[int, int]]]:
        """The members of a forest that have these labels, as ranges by their values."""
        found: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for member, name in enumerate(forest.names):
            labels = self.nodes[name].labels
            values = tuple(labels[key] for key in keys if key in labels)
            if len(values) == len(keys):
                ranges = found.setdefault(values, [])
                if ranges and ranges[-1][1] == member:
                    ranges[-1] = (ranges[-1][0], member + 1)
                else:
                    ranges.append((member, member + 1))
        return found

    def mask(self, pods: PodFilter) -> Mask:
        """Rows of the nodes that the pods may go to, capacity apart."""
        return self._mask(pods, whole=True)

    def wanted(self, pods: PodFilter) -> Mask:
        """Rows of the nodes that the pods ask for by selector and affinity, whatever keeps them away."""
        return self._mask(pods, whole=False)

    def _mask(self, pods: PodFilter, *, whole: bool) -> Mask:
        cached = self._masks.get((pods, whole))
        if cached is None or len(cached.mask) != len(self._capacity):
            cached = _CachedMask(np.zeros(len(self._capacity), dtype=np.bool_), 0)
            self._masks[pods, whole] = cached
            names: Sequence[str] = list(self.nodes)
        else:
            names = self._changed[cached.seen :]
        cached.seen = len(self._changed)
        for name in names:
            node = self.nodes.get(name)
            if node is not None:
                open_to = not exclusion(node, pods) if whole else wants(pods.selector, pods.affinity, node.labels, name)
                cached.mask[self._rows[name]] = open_to
        return cached.mask

    def no_rows(self) -> Mask:
        """A mask of no node."""
        return np.zeros(len(self._capacity), dtype=np.bool_)

    def lacks(self, rows: Ints, mask: Mask, requests: Amounts, view: int) -> Counter[str]:
        """For how many allowed rows which resource is the first, by name, that has no room for one pod."""
        free = self.free(view)
        left = mask[rows]
        reasons: Counter[str] = Counter()
        for resource in sorted(requests):
            column = self.column(resource)
            short = left if column is None else left & (free[rows, column] < requests[resource])
            if count := int(short.sum()):
                reasons[_lack(resource)] += count
            left = left & ~short
        return reasons

    def exclusions(
        self, labels: Mapping[str, str], levels: tuple[str, ...], pods: PodFilter
    ) -> tuple[int, Counter[str]]:
        """How many nodes carry the labels, and for how many of them which reason keeps the pods away."""
        reasons: Counter[str] = Counter()
        total = 0
        for node in self.nodes.values():
            if selects(labels, node.labels):
                total += 1
                lacking = next((key for key in levels if key not in node.labels), None)
                reason = f"no label {lacking}" if lacking is not None else exclusion(node, pods)
                if reason:
                    reasons[reason] += 1
        return total, reasons


def _lack(resource: str) -> str:
    port = port_of(resource)
    return f"too little {resource}" if port is None else f"host port {port} taken"


def _capacity(node: Node, resource: str) -> int:
    """What pods that we manage can have of a resource at most."""
    most = node.allocatable.get(resource, 0) if port_of(resource) is None else 1
    return most - node.foreign.get(resource, 0)


def _grown(matrix: Ints, shape: tuple[int, int]) -> Ints:
    grown = np.zeros(shape, dtype=np.int64)
    grown[: matrix.shape[0], : matrix.shape[1]] = matrix
    return grown
