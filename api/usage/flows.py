"""Who uses whose quota: nominal, used, borrowed and lent for every node of the tree. Pure, integers only.

`borrowed` of a node is what its subtree uses beyond its own guarantee. Where it comes from is not recorded anywhere
(quota is fungible); it is attributed top down: the pool of the cohort gives first, then the children with idle quota in
proportion to it (largest remainder), within their lending limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from queue_manager.config.compiled import Compiled
from queue_manager.config.tree import Node
from queue_manager.engine.configuration import Cell, CellQuota, ResourceGroup

NodeKey = tuple[str, str]
"""(kind, name): a cohort and a queue may have one name."""


@dataclass(slots=True)
class Flow:
    """One cell at one node, in base units. `own` is the node's own nominal quota, `nominal` that of its subtree."""

    own: int = 0
    nominal: int = 0
    used: int = 0
    draining: int = 0
    waiting: int = 0
    borrowed: int = 0
    lent: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def idle(self) -> int:
        """What others may take of it at most."""
        idle = max(0, self.nominal - self.used)
        return idle if self.lending_limit is None else min(idle, self.lending_limit)


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What the store says of one queue: charged amounts (draining included) and what its waiting workloads ask for."""

    used: Mapping[Cell, int] = field(default_factory=dict)
    draining: Mapping[Cell, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


Flows = dict[NodeKey, dict[Cell, Flow]]


def compute_flows(compiled: Compiled, uses: Mapping[str, QueueUse]) -> Flows:
    """Flows of all nodes, also of queues that are charged but configured no more."""
    order = _parents_first(compiled.tree.roots)
    known = {(node.kind, node.name) for node in order}
    # Below a cycle of cohorts no guarantee holds, but what is charged there must still be seen.
    order += [node for node in compiled.tree.nodes() if (node.kind, node.name) not in known]
    flows: Flows = {(node.kind, node.name): defaultdict(Flow) for node in order}
    for name in uses:
        flows.setdefault(("Queue", name), defaultdict(Flow))
    _enter_quotas(compiled, flows)
    _enter_use(compiled, uses, flows)
    for node in reversed(order):
        _sum_up(node, flows)
    for cells in flows.values():
        for flow in cells.values():
            flow.borrowed = max(0, flow.used - flow.nominal)
    for node in order:
        _lend(node, flows)
    return flows


def _parents_first(roots: Iterable[Node]) -> list[Node]:
    order, pending = [], list(roots)
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children)
    return order


def _quotas(groups: Iterable[ResourceGroup]) -> Iterable[tuple[Cell, CellQuota]]:
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                yield Cell(flavor.flavor, resource), quota


def _enter_quotas(compiled: Compiled, flows: Flows) -> None:
    configuration = compiled.configuration
    groups = {("Cohort", name): cohort.resource_groups for name, cohort in configuration.cohorts.items()}
    groups |= {("Queue", name): queue.resource_groups for name, queue in configuration.queues.items()}
    for key, of_node in groups.items():
        for cell, quota in _quotas(of_node):
            flow = flows[key][cell]
            flow.own = flow.nominal = quota.nominal
            flow.borrowing_limit, flow.lending_limit = quota.borrowing_limit, quota.lending_limit


def _enter_use(compiled: Compiled, uses: Mapping[str, QueueUse], flows: Flows) -> None:
    for name, use in uses.items():
        cells = flows["Queue", name]
        for cell, amount in use.used.items():
            cells[cell].used += amount
        for cell, amount in use.draining.items():
            cells[cell].draining += amount
        queue = compiled.configuration.queues.get(name)
        for group in queue.resource_groups if queue else ():
            for resource in group.resources:
                if group.flavors and (amount := use.waiting.get(resource, 0)):
                    # Which flavor it will get is not decided; it is shown where it is tried first.
                    cells[Cell(group.flavors[0].flavor, resource)].waiting += amount


def _sum_up(node: Node, flows: Flows) -> None:
    cells = flows[node.kind, node.name]
    for child in node.children:
        for cell, flow in flows[child.kind, child.name].items():
            total = cells[cell]
            total.nominal += flow.nominal
            total.used += flow.used
            total.draining += flow.draining
            total.waiting += flow.waiting


def _lend(node: Node, flows: Flows) -> None:
    children = [flows[child.kind, child.name] for child in node.children]
    for cell, flow in flows[node.kind, node.name].items():
        lenders = [child[cell] for child in children if cell in child]
        wanted = flow.lent + sum(lender.borrowed for lender in lenders) - flow.own
        if wanted > 0:
            for lender, amount in zip(lenders, _shares(wanted, [lender.idle for lender in lenders]), strict=True):
                lender.lent = amount


def _shares(wanted: int, idle: Sequence[int]) -> list[int]:
    total = sum(idle)
    if total <= wanted:
        return list(idle)
    shares = [wanted * each // total for each in idle]
    rest = wanted - sum(shares)
    by_remainder = sorted(range(len(idle)), key=lambda i: (-(wanted * idle[i] % total), i))
    for place in by_remainder[:rest]:
        shares[place] += 1
    return shares
