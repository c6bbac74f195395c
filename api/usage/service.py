"""The queue tree with usage, from configuration and ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from queue_manager.config.compiled import Compiled
from queue_manager.config.tree import MAX_LEVELS, Node
from queue_manager.engine.configuration import StopPolicy
from queue_manager.store.records import LedgerState
from queue_manager.store.store import Store

from ..auth.access import Access
from ..auth.veil import Veil
from ..context import Context
from ..problems import not_found
from .flows import Flow, Flows, QueueUse, compute_flows
from .schemas import CellUsage, NodeUsage, TreeNode, TreeUsage

NO_STOP = (StopPolicy.NONE, "")
Counts = Mapping[tuple[str, str], Mapping[str, int]]


def read_tree(context: Context) -> TreeUsage:
    """The whole tree; queues that are charged without being configured come last. Who may not see all of it gets the
    subtrees that they may see."""
    loaded = context.configuration()
    compiled = loaded.compiled
    flows = compute_flows(compiled, queue_uses(context.store))
    counts = _counts(context.store, compiled)
    access = context.access_by(loaded)
    if access.narrowed:
        items = [_tree_node(node, compiled, flows, counts) for node in _highest(access)]
        _veil(context, _all(items))
        return TreeUsage(revision=loaded.revision, items=items)
    items = [_tree_node(node, compiled, flows, counts) for node in compiled.tree.roots]
    shown = {(item.kind, item.name) for item in _all(items)}
    for kind, name in sorted(set(flows) - shown):
        node = _configured(compiled, kind, name)
        items.append(_tree_node(node, compiled, flows, counts, below=False))
    return TreeUsage(revision=loaded.revision, items=items)


def _highest(access: Access) -> list[Node]:
    """Nodes that the caller may see and that stand below none of those, by path."""
    nodes = [node for node in access.tree.nodes() if access.sees((node.kind, node.name))]
    return sorted(
        (node for node in nodes if not (node.parent and access.sees(("Cohort", node.parent)))),
        key=lambda node: (node.path, node.kind),
    )


def read_node(context: Context, kind: str, name: str) -> NodeUsage:
    """Usage of one queue or cohort, by name or path; 404 when there is none."""
    compiled = context.configuration().compiled
    node = compiled.tree.find(kind, name)
    uses = queue_uses(context.store)
    if node is None and kind == "Queue" and name in uses:
        node = Node(kind, name, path=name)
    if node is None:
        raise not_found(kind.lower(), name)
    found = _node(node, compiled, compute_flows(compiled, uses), _counts(context.store, compiled))
    _veil(context, [found])
    return found


def _veil(context: Context, nodes: Sequence[NodeUsage]) -> None:
    """Takes out of who stopped a queue, and why it is inactive, what the caller may not see."""
    told = [node for node in nodes if node.stopped or node.inactive]
    veil = Veil(context, (text for node in told for text in (node.stopped, node.inactive)))
    for node in told:
        node.stopped, node.inactive = veil.text(node.stopped), veil.text(node.inactive)


def queue_uses(store: Store) -> dict[str, QueueUse]:
    """What is charged to each queue and what its waiting workloads ask for."""
    used: dict[str, Counter[object]] = {}
    draining: dict[str, Counter[object]] = {}
    for row in store.usage():
        if row.state is LedgerState.RECLAIMED_LOAN:
            continue  # finished pods of a running workload: not charged
        used.setdefault(row.queue, Counter())[row.cell] += row.amount
        if row.state is LedgerState.DRAINING:
            draining.setdefault(row.queue, Counter())[row.cell] += row.amount
    waiting = store.waiting_requests()
    names = {*used, *waiting} - {""}
    return {
        name: QueueUse(used.get(name, {}), draining.get(name, {}), waiting.get(name, {}))  # type: ignore[arg-type]
        for name in names
    }


def _counts(store: Store, compiled: Compiled) -> Counts:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for queue, by_state in store.queue_counts().items():
        numbers = Counter({state.value: number for state, number in by_state.items()})
        counts[("Queue", queue)] = numbers
        node = compiled.tree.queues.get(queue)
        parent, seen = node.parent if node else "", set[str]()
        while parent and parent not in seen:
            seen.add(parent)
            counts.setdefault(("Cohort", parent), Counter()).update(numbers)
            parent = compiled.tree.cohorts[parent].parent
    return counts


def _configured(compiled: Compiled, kind: str, name: str) -> Node:
    nodes = compiled.tree.queues if kind == "Queue" else compiled.tree.cohorts
    return nodes.get(name) or Node(kind, name, path=name)


def _all(items: list[TreeNode]) -> list[TreeNode]:
    found, pending = [], list(items)
    while pending:
        item = pending.pop()
        found.append(item)
        pending.extend(item.children)
    return found


def _tree_node(node: Node, compiled: Compiled, flows: Flows, counts: Counts, below: bool = True) -> TreeNode:
    """A node with all below it. What is deeper than a configuration may be now (one that is stored may be older) stands
    at the deepest level that may be, parents first: JSON and its readers take only so much nesting."""

    def made(each: Node) -> TreeNode:
        return TreeNode.model_construct(**dict(_node(each, compiled, flows, counts)), children=[])

    top = made(node)
    pending = [(child, top, 1) for child in reversed(node.children)] if below else []
    while pending:
        each, parent, level = pending.pop()
        item = made(each)
        parent.children.append(item)
        above = item if level < MAX_LEVELS else parent
        pending.extend((child, above, level + 1) for child in reversed(each.children))
    return top


def _node(node: Node, compiled: Compiled, flows: Flows, counts: Counts) -> NodeUsage:
    configuration = compiled.configuration
    queue = configuration.queues.get(node.name) if node.kind == "Queue" else None
    cohort = configuration.cohorts.get(node.name) if node.kind == "Cohort" else None
    policy, stopped = (queue.stop_policy, queue.stopped) if queue else NO_STOP
    if cohort:
        policy, stopped = compiled.stopped_cohorts.get(node.name, NO_STOP)
    weight = (queue or cohort).weight_milli if queue or cohort else 1000  # type: ignore[union-attr]
    return NodeUsage.model_construct(
        kind=node.kind,
        name=node.name,
        path=node.path,
        parent=node.parent,
        weight=weight / 1000,
        stop_policy=policy.value,
        stopped=stopped,
        inactive=queue.inactive if queue else "",
        configured=bool(queue or cohort),
        workloads=dict(sorted(counts.get((node.kind, node.name), {}).items())),
        cells=[_cell(*entry) for entry in sorted(flows.get((node.kind, node.name), {}).items())],
    )


def _cell(cell: tuple[str, str], flow: Flow) -> CellUsage:
    return CellUsage.model_construct(
        flavor=cell[0],
        resource=cell[1],
        nominal=flow.nominal,
        own=flow.own,
        used=flow.used,
        borrowed=flow.borrowed,
        lent=flow.lent,
        draining=flow.draining,
        waiting=flow.waiting,
        borrowing_limit=flow.borrowing_limit,
        lending_limit=flow.lending_limit,
    )
