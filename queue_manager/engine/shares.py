"""Dominant resource shares (kueue.md 2.8): how far a node of the tree is over its own quota, as exact fractions.

For each resource: what the node borrows of it in all flavors, over what its parent could have of it at most. The
greatest of these is the node's share; divided by its weight it is compared with the shares of its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_manager.engine.configuration import Cell
from queue_manager.engine.tree import EMPTY, FUTURE, Charge, TreeNode

MILLI = 1000


@dataclass(frozen=True, slots=True)
class Share:
    """The share `borrowed / lendable / (weight / 1000)`.

    `cells` are those that the node borrows; `resource` is the dominant one. A node of weight 0 that borrows has an
    infinite share; infinite shares compare as if the weights were equal.
    """

    cells: tuple[Cell, ...] = ()
    borrowed: int = 0
    lendable: int = 1
    weight: int = MILLI
    resource: str = ""

    @property
    def infinite(self) -> bool:
        """Whether it is greater than every share of a node with a weight."""
        return self.weight == 0 and self.borrowed > 0

    def borrows_any(self, charge: Charge) -> bool:
        """Whether the node borrows a cell of which `charge` takes something."""
        for cell in self.cells:  # noqa: SIM110 - asked of every contender, quicker than `any`
            if charge.get(cell, 0) > 0:
                return True
        return False


NO_SHARE = Share()


def compare(a: Share, b: Share) -> int:
    """Negative if `a` is the smaller share, 0 if they are equal, else positive. Exact: cross-multiplied integers."""
    if not (a.borrowed and b.borrowed):
        return a.borrowed - b.borrowed
    if a.infinite != b.infinite:
        return 1 if a.infinite else -1
    left, right = a.borrowed * b.lendable, b.borrowed * a.lendable
    return left - right if a.infinite else left * b.weight - right * a.weight


def share_of(node: TreeNode, more: Charge | None = None, view: int = FUTURE) -> Share:
    """The share of a node, with `more` charged to it. A root shares with nobody: its share is 0."""
    if node.parent is None:
        return NO_SHARE
    more = more or {}
    usage, subtree = node.usage[view], node.subtree
    cells: list[Cell] = []
    borrowed: dict[str, int] = {}
    for cell, used in usage.items():
        over = used + more.get(cell, 0) - subtree.get(cell, 0)
        if over > 0:
            cells.append(cell)
            borrowed[cell.resource] = borrowed.get(cell.resource, 0) + over
    for cell, amount in more.items():
        if cell not in usage and (over := amount - subtree.get(cell, 0)) > 0:
            cells.append(cell)
            borrowed[cell.resource] = borrowed.get(cell.resource, 0) + over
    return _dominant(node, tuple(cells), borrowed) if cells else NO_SHARE


def _dominant(node: TreeNode, cells: tuple[Cell, ...], borrowed: Mapping[str, int]) -> Share:
    """The resource with the greatest ratio, the first by name of equals; what nobody could lend does not count."""
    assert node.parent is not None
    available = lendable(node.parent)
    best, of, name = 0, 1, ""
    for resource, amount in borrowed.items():
        whole = available.get(resource, 0)
        if whole <= 0:
            continue
        left, right = amount * of, best * whole
        if left > right or (left == right and resource < name):
            best, of, name = amount, whole, resource
    if not best:
        return Share(cells)
    return Share(cells, best, of, node.weight, name)


def lendable(node: TreeNode) -> Mapping[str, int]:
    """By resource, what a node could have at most when nothing runs, over all flavors of its tree. Another object
    whenever quota has changed."""
    known = node.root.lendable.get(node)
    if known is None:
        known = node.root.lendable[node] = {}
        for cell in node.root.subtree:
            known[cell.resource] = known.get(cell.resource, 0) + node.available(cell, EMPTY)
    return known


def passed_up(node: TreeNode, charge: Charge, view: int = FUTURE) -> dict[Cell, int]:
    """What of a further charge to a node is charged to its parent, too: all but what the node never lends."""
    found = {}
    for cell, amount in charge.items():
        rest = amount - node.local_available(cell, view)
        if rest > 0:
            found[cell] = rest
    return found
