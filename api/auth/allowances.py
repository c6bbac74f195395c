"""What a subtree has, and may therefore give to its children: per cell the sum of nominal quotas, and the most that may
be used together with what is borrowed from outside.

What a platform admin (or the admin of a subtree above) gives or takes changes what the subtree has; what its own admins
do never does. It is noted at the first change of somebody within, for their node and all above it, so that a quota
taken from one child may be given to another later, and no two who are admins of nodes within each other give it twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queue_manager.config.compiled import Compiled
from queue_manager.config.human import amount
from queue_manager.config.tree import Node
from queue_manager.engine.configuration import Cell, CellQuota, ResourceGroup
from queue_manager.store.allowances import Allowance, CellAllowance


@dataclass(slots=True)
class Has:
    """Base units; `most` None is without limit."""

    guaranteed: int = 0
    most: int | None = 0


Cells = Mapping[Cell, Has]
NOTHING_KEPT: Mapping[tuple[str, str], Cells] = {}


def cells_of(compiled: Compiled, node: Node, kept: Mapping[tuple[str, str], Cells] = NOTHING_KEPT) -> dict[Cell, Has]:
    """What the subtree of a node has; of nodes below that have `kept` more than they use now, that.

    Where the cohort has a borrowing limit of its own, the engine holds all below it to that. Where it has none, the
    children's limits are what bounds the subtree.
    """
    own = _quotas(compiled, node)
    children = [_child_cells(compiled, child, kept) for child in node.children]
    found: defaultdict[Cell, Has] = defaultdict(Has)
    for cells in children:
        for cell, has in cells.items():
            total = found[cell]
            total.guaranteed += has.guaranteed
            total.most = None if total.most is None or has.most is None else total.most + has.most
    for cell, quota in own.items():
        total = found[cell]
        used_below = any(cell in cells for cells in children)
        total.guaranteed += quota.nominal
        if quota.borrowing_limit is not None:
            total.most = total.guaranteed + quota.borrowing_limit
        elif not node.parent:
            total.most = total.guaranteed
        elif not used_below:
            total.most = None
    return dict(found)


def _child_cells(compiled: Compiled, node: Node, kept: Mapping[tuple[str, str], Cells]) -> Cells:
    known, now = kept.get((node.kind, node.name)), cells_of(compiled, node, kept)
    return now if known is None else greatest(known, now)


def greatest(one: Cells, other: Cells) -> dict[Cell, Has]:
    """The greater of both, cell by cell."""
    found = dict(one)
    for cell, has in other.items():
        known = found.get(cell)
        if known is not None:
            unlimited = known.most is None or has.most is None
            most = None if unlimited else max(known.most or 0, has.most or 0)
            has = Has(max(known.guaranteed, has.guaranteed), most)
        found[cell] = has
    return found


def _quotas(compiled: Compiled, node: Node) -> dict[Cell, CellQuota]:
    configuration = compiled.configuration
    groups: Iterable[ResourceGroup] = ()
    if node.kind == "Queue" and node.name in configuration.queues:
        groups = configuration.queues[node.name].resource_groups
    elif node.kind == "Cohort" and node.name in configuration.cohorts:
        groups = configuration.cohorts[node.name].resource_groups
    return {
        Cell(flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


def excess(allowed: Cells, after: Cells) -> list[str]:
    """What a subtree would have beyond what it was given, in sentences."""
    found = []
    for cell, has in sorted(after.items()):
        limit = allowed.get(cell)
        what = f"{cell.resource} of flavor {cell.flavor}"
        if limit is None:
            found.append(f"the subtree has no {what}; only a platform admin can give it some")
            continue
        if has.guaranteed > limit.guaranteed:
            total, most = amount(cell.resource, has.guaranteed), amount(cell.resource, limit.guaranteed)
            found.append(f"nominal quotas of {what} would sum to {total} with its own, the subtree has {most}")
        if limit.most is not None and (has.most is None or has.most > limit.most):
            could = "without limit" if has.most is None else f"up to {amount(cell.resource, has.most)}"
            most = amount(cell.resource, limit.most)
            found.append(f"{what} could be used {could} by borrowing, the subtree may use {most}; lower borrowingLimit")
    return found


def from_kept(kept: Allowance) -> dict[Cell, Has]:
    """As the store keeps it."""
    return {Cell(each.flavor, each.resource): Has(each.guaranteed, each.most) for each in kept.cells}


def to_kept(kind: str, name: str, cells: Cells) -> Allowance:
    """As the store keeps it."""
    return Allowance(
        kind,
        name,
        tuple(
            CellAllowance(cell.flavor, cell.resource, has.guaranteed, has.most) for cell, has in sorted(cells.items())
        ),
    )


def moved_on(allowed: Cells, before: Cells, after: Cells) -> dict[Cell, Has]:
    """What a subtree has after somebody above it gave or took: the difference is added."""
    found = dict(allowed)
    for cell in {*before, *after}:
        old, new = before.get(cell, Has()), after.get(cell, Has())
        had = allowed.get(cell, Has())
        if new.most is None or (had.most is None and old.most is not None):
            most = None
        elif old.most is None or had.most is None:
            most = new.most
        else:
            most = had.most + new.most - old.most
        given = max(0, had.guaranteed + new.guaranteed - old.guaranteed)
        found[cell] = Has(given, most if most is None else max(given, most))
    return found


def find_kept(kept: Sequence[Allowance], kind: str, name: str) -> Allowance | None:
    """What is kept of one node."""
    return next((each for each in kept if (each.kind, each.name) == (kind, name)), None)
