"""The quota tree and its algebra (kueue.md 2.1): what a node has, lends, borrows and can still give.

Three views of usage are kept side by side:
NOW     what is charged: admitted and draining workloads (quota counts until the last pod is gone);
FUTURE  what will be charged once everything that drains is gone and those it is kept for have started; decisions look
        here first, so that nobody takes what was freed for somebody else;
EMPTY   no usage at all: what a node could have at most.
Holds for the starving add one view each, numbered from 3 on (see `holds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from queue_manager.engine.configuration import Cell, CellQuota, Configuration, ResourceGroup
from queue_manager.engine.undo import UndoLog

NOW, FUTURE, EMPTY = 0, 1, 2
Charge = Mapping[Cell, int]
Available = dict[Cell, dict["TreeNode", int]]


class TreeNode:
    """A queue (leaf) or cohort (inner node) with its quota and usage.

    `weight` is in thousandths.
    """

    __slots__ = (
        "children",
        "height",
        "is_queue",
        "known",
        "lendable",
        "local",
        "name",
        "parent",
        "path",
        "quotas",
        "root",
        "subtree",
        "usage",
        "weight",
    )

    def __init__(self, name: str, is_queue: bool, quotas: dict[Cell, CellQuota], weight: int = 1000) -> None:
        self.name = name
        self.is_queue = is_queue
        self.quotas = quotas
        self.weight = weight
        self.parent: TreeNode | None = None
        self.root: TreeNode = self
        self.children: list[TreeNode] = []
        self.height = 0
        self.path = name
        self.subtree: dict[Cell, int] = {}
        self.local: dict[Cell, int] = {}
        self.usage: list[dict[Cell, int]] = [{}, {}, {}]
        # Of a root: what `available` found in each view, by cell and node.
        self.known: list[Available] = [{}, {}, {}]
        # Of a root: what `shares.lendable` found, by node.
        self.lendable: dict[TreeNode, dict[str, int]] = {}

    def ancestors(self) -> Iterator[TreeNode]:
        """Parent, grandparent, ... root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def nominal(self, cell: Cell) -> int:
        """The node's own nominal quota."""
        quota = self.quotas.get(cell)
        return 0 if quota is None else quota.nominal

    def local_available(self, cell: Cell, view: int) -> int:
        """Unused quota that the node never lends."""
        local = self.local.get(cell, 0)
        return max(0, local - self.usage[view].get(cell, 0)) if local else 0

    def within_subtree(self, cells: Iterable[Cell], view: int) -> bool:
        """Whether the node uses no more than its subtree quota of each cell."""
        usage = self.usage[view]
        return all(usage.get(cell, 0) <= self.subtree.get(cell, 0) for cell in cells)

    def borrowing_with(self, cell: Cell, amount: int, view: int) -> bool:
        """Whether the node would use more than its subtree quota with `amount` more."""
        return self.subtree.get(cell, 0) < self.usage[view].get(cell, 0) + amount

    def available(self, cell: Cell, view: int) -> int:
        """How much more the node can take; negative where quota was cut below usage."""
        of_cell = self.root.known[view].get(cell)
        if of_cell is None:
            of_cell = self.root.known[view][cell] = {}
        found = of_cell.get(self)
        if found is None:
            way = [self]  # not recursive: trees may be deep
            while (above := way[-1].parent) is not None and above not in of_cell:
                way.append(above)
            for node in reversed(way):
                found = of_cell[node] = node._available(cell, view)
        assert found is not None
        return found

    def _available(self, cell: Cell, view: int) -> int:
        used = self.usage[view].get(cell, 0)
        subtree = self.subtree.get(cell, 0)
        if self.parent is None:
            return subtree - used
        local = self.local.get(cell, 0)
        above = self.parent.available(cell, view)
        quota = self.quotas.get(cell)
        if quota is not None and quota.borrowing_limit is not None:
            above = min(above, subtree - local - max(0, used - local) + quota.borrowing_limit)
        return max(0, local - used) + above

    def forget(self, cells: Iterable[Cell], view: int) -> None:
        """To be called on a root whenever usage of these cells in its tree has changed, or changed back; of the view
        EMPTY when their quota has."""
        known = self.known[view]
        for cell in cells:
            known.pop(cell, None)
        if view == EMPTY:
            self.lendable.clear()

    def borrow_height(self, cell: Cell, amount: int, view: int) -> tuple[int, bool]:
        """Height of the lowest subtree whose quota holds `amount` more, and whether more could be reclaimed above."""
        if self.parent is None or not self.borrowing_with(cell, amount, view):
            return 0, self.parent is not None
        remaining = amount - self.local_available(cell, view)
        for node in self.ancestors():
            if not node.borrowing_with(cell, remaining, view):
                return node.height, node.parent is not None
            remaining -= node.local_available(cell, view)
        return self.root.height, False


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit on the way to the root that a request exceeds. Amounts are seen from the queue."""

    node: TreeNode
    requested: int
    available: int
    borrowing_limit: bool

    @property
    def missing(self) -> int:
        """By how much the limit would have to grow."""
        return self.requested - self.available


class QuotaTree:
    """All nodes of one configuration, with usage. Cohorts and queues have separate names.

    `moved` are queues whose usage may have changed in the FUTURE view since whoever reads it cleared it.
    """

    def __init__(self, configuration: Configuration, log: UndoLog) -> None:
        self._log = log
        self.cohorts = {
            name: TreeNode(name, False, quotas_of(c.resource_groups), c.weight_milli)
            for name, c in configuration.cohorts.items()
        }
        self.queues = {
            name: TreeNode(name, True, quotas_of(q.resource_groups), q.weight_milli)
            for name, q in configuration.queues.items()
        }
        self.moved: set[TreeNode] = set()
        self.broken: dict[str, str] = {}
        parents = {name: cohort.parent for name, cohort in configuration.cohorts.items()}
        for name, queue in configuration.queues.items():
            self._link(self.queues[name], queue.cohort, parents)
        for name in sorted(configuration.cohorts):
            self._link(self.cohorts[name], parents[name], parents)
        for node in [*self.queues.values(), *self.cohorts.values()]:
            if node.parent is None:
                _settle(node)

    def _link(self, node: TreeNode, parent: str, parents: Mapping[str, str]) -> None:
        """Hangs `node` under `parent`; a cohort that nobody declares exists without quota.

        A node above which cohorts form a cycle hangs alone, and a queue among them is `broken`.
        """
        if not parent or node.parent is not None:
            return
        seen = {parent: 0}
        above = parents.get(parent, "")
        while above and above not in seen:
            seen[above] = len(seen)
            above = parents.get(above, "")
        if above:
            if node.is_queue:
                cycle = list(seen)[seen[above] :]
                self.broken[node.name] = f"its cohorts form a cycle: {' -> '.join([*cycle, above])}"
            return
        if parent not in self.cohorts:
            self.cohorts[parent] = TreeNode(parent, False, {})
        node.parent = self.cohorts[parent]
        self.cohorts[parent].children.append(node)

    def add(self, queue: TreeNode, charge: Charge, view: int) -> None:
        """Charges `charge` to a queue and, for what it borrows, to its ancestors."""
        if view == FUTURE:
            self.moved.add(queue)
        self._change(queue, charge, view)
        for cell, amount in charge.items():
            self._add(queue, cell, amount, view)

    def remove(self, queue: TreeNode, charge: Charge, view: int) -> None:
        """Takes a charge back."""
        if view == FUTURE:
            self.moved.add(queue)
        self._change(queue, charge, view)
        for cell, amount in charge.items():
            self._remove(queue, cell, amount, view)

    def _change(self, node: TreeNode, cells: Iterable[Cell], view: int) -> None:
        node.root.forget(cells, view)
        self._log.call(node.root.forget, cells, view)

    def _add(self, start: TreeNode, cell: Cell, amount: int, view: int) -> None:
        node: TreeNode | None = start
        while node is not None and amount > 0:
            usage = node.usage[view]
            local_available = node.local_available(cell, view)
            self._log.put(usage, cell, usage.get(cell, 0) + amount)
            amount -= local_available
            node = node.parent

    def _remove(self, start: TreeNode, cell: Cell, amount: int, view: int) -> None:
        node: TreeNode | None = start
        while node is not None and amount > 0:
            usage = node.usage[view]
            stored_above = usage.get(cell, 0) - node.local.get(cell, 0)
            self._log.put(usage, cell, usage.get(cell, 0) - amount)
            amount = min(amount, stored_above)
            node = node.parent

    def raise_quota(self, node: TreeNode, cell: Cell, amount: int) -> None:
        """Raises the nominal quota of a node, revocable, with all that follows from it on the way to the root."""
        for view in (NOW, FUTURE, EMPTY):
            self._change(node, (cell,), view)
        quota = node.quotas.get(cell, CellQuota(0))
        self._log.put(node.quotas, cell, replace(quota, nominal=quota.nominal + amount))
        above: TreeNode | None = node
        while above is not None and amount > 0:
            subtree, local = above.subtree.get(cell, 0) + amount, above.local.get(cell, 0)
            self._log.put(above.subtree, cell, subtree)
            limit = above.quotas[cell].lending_limit if cell in above.quotas else None
            if limit is not None:
                kept = max(0, subtree - limit)
                self._log.put(above.local, cell, kept)
                for view in (NOW, FUTURE):
                    used = above.usage[view].get(cell, 0)
                    if above.parent is not None:
                        self._remove(above.parent, cell, max(0, used - local) - max(0, used - kept), view)
                amount -= kept - local
            above = above.parent

    def clear_view(self, root: TreeNode, view: int) -> None:
        """Makes a view of one tree an empty one, revocable."""
        while len(root.known) <= view:
            root.known.append({})
        root.known[view].clear()
        self._log.call(root.known[view].clear)
        nodes = [root]
        for node in nodes:
            nodes.extend(node.children)
            while len(node.usage) <= view:
                node.usage.append({})
            self._log.call(node.usage.__setitem__, view, node.usage[view])
            node.usage[view] = {}

    def fits(self, queue: TreeNode, charge: Charge, view: int) -> bool:
        """Whether the queue can take the whole charge."""
        return all(amount <= max(0, queue.available(cell, view)) for cell, amount in charge.items())

    def edit(self, edits: Iterable[tuple[TreeNode, dict[Cell, CellQuota]]]) -> None:
        """Replaces the quota of queues and cohorts where they stand in the tree; what is above several of them is
        settled once. Not revocable."""
        unsettled: dict[TreeNode, set[Cell]] = {}
        for edited, quotas in edits:
            changed = {c for c in {*edited.quotas, *quotas} if edited.quotas.get(c) != quotas.get(c)}
            edited.quotas = quotas
            for node in (edited, *edited.ancestors()):
                unsettled.setdefault(node, set()).update(changed)
        for node in sorted(unsettled, key=lambda node: node.height):  # children first
            for cell in unsettled[node]:
                _settle_cell(node, cell)
        for root in {node.root for node in unsettled}:
            for view in (NOW, FUTURE, EMPTY):
                root.forget(unsettled[root], view)

    def totals(self, view: int) -> dict[str, dict[Cell, int]]:
        """Charged amounts of each queue, and of each cohort's whole subtree (a queue of the same name is added in)."""
        found: dict[str, dict[Cell, int]] = {}
        for name, node in self.queues.items():
            charged = {cell: amount for cell, amount in node.usage[view].items() if amount}
            for place in (node, *node.ancestors()):
                sums = found.setdefault(place.name if place is not node else name, {})
                for cell, amount in charged.items():
                    sums[cell] = sums.get(cell, 0) + amount
        for name in self.cohorts:
            found.setdefault(name, {})
        return found

    def shortages(self, queue: TreeNode, cell: Cell, amount: int, view: int) -> list[Shortage]:
        """Every limit from the queue up to the root that `amount` more would exceed; empty if it fits."""
        found = []
        need, below = amount, 0
        node: TreeNode | None = queue
        while node is not None:
            used, subtree, local = node.usage[view].get(cell, 0), node.subtree.get(cell, 0), node.local.get(cell, 0)
            quota = node.quotas.get(cell)
            free = node.local_available(cell, view)
            if node.parent is None:
                if need > subtree - used:
                    found.append(Shortage(_sole_source(node, queue, cell, view), amount, below + subtree - used, False))
            elif quota is not None and quota.borrowing_limit is not None:
                room = free + subtree - local - max(0, used - local) + quota.borrowing_limit
                if need > room:
                    found.append(Shortage(node, amount, below + room, True))
            need, below = max(0, need - free), below + free
            node = node.parent
        return found


def _sole_source(node: TreeNode, queue: TreeNode, cell: Cell, view: int) -> TreeNode:
    """The lowest node on the way to `queue` that all quota and usage of `node` come from: there the limit is felt."""
    path = [queue, *queue.ancestors()]
    for lower in reversed(path[: path.index(node)]):
        same_quota = lower.subtree.get(cell, 0) == node.subtree.get(cell, 0)
        if not same_quota or lower.usage[view].get(cell, 0) != node.usage[view].get(cell, 0):
            break
        node = lower
    return node


def quotas_of(groups: Iterable[ResourceGroup]) -> dict[Cell, CellQuota]:
    """The quota of each cell of some resource groups."""
    return {
        Cell(flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


def _settle_cell(node: TreeNode, cell: Cell) -> None:
    """Sets what follows from the quota of one cell for a node whose children are settled: subtree and local quota, and
    what of the children's usage is the node's, too."""
    quota = node.quotas.get(cell)
    whole = 0 if quota is None else quota.nominal
    used = [0, 0]
    for child in node.children:
        local = child.local.get(cell, 0)
        whole += child.subtree.get(cell, 0) - local
        for view in (NOW, FUTURE):
            used[view] += max(0, child.usage[view].get(cell, 0) - local)
    node.subtree[cell] = whole
    node.local.pop(cell, None)
    if quota is not None and quota.lending_limit is not None:
        node.local[cell] = max(0, whole - quota.lending_limit)
    for view in (NOW, FUTURE):
        if node.children and (used[view] or cell in node.usage[view]):
            node.usage[view][cell] = used[view]


def _settle(root: TreeNode) -> None:
    """Sets what follows from the shape: paths, heights, subtree and local quota. Iterative: trees may be deep."""
    order = [root]
    for node in order:
        node.children.sort(key=lambda child: (child.is_queue, child.name))
        for child in node.children:
            child.root = root
            child.path = f"{node.path}/{child.name}"
        order.extend(node.children)
    for node in reversed(order):
        node.height = max((child.height + 1 for child in node.children), default=0)
        subtree = {cell: quota.nominal for cell, quota in node.quotas.items()}
        for child in node.children:
            for cell, amount in child.subtree.items():
                subtree[cell] = subtree.get(cell, 0) + amount - child.local.get(cell, 0)
        node.subtree = subtree
        for cell, quota in node.quotas.items():
            if quota.lending_limit is not None:
                node.local[cell] = max(0, subtree[cell] - quota.lending_limit)
