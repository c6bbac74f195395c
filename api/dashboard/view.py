"""What the pages show, ready for the templates: words, units, widths. No HTML here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from queue_manager.config import human

from ..auth.identity import Identity, Source
from ..usage.schemas import CellUsage, TreeNode
from ..workloads.schemas import Explanation, PodSet, Workload

SCALE = 1000
"""Width of a bar in its own units."""
HEADLINE_CELLS = 3
PLAIN_RESOURCES = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})

WORDS = {
    "WaitingForQuota": "waits for quota",
    "ExceedsMaxQuota": "asks for more than its queue can ever have",
    "NoMatchingFlavor": "no kind of capacity fits it",
    "TopologyPlacementFailed": "no place that is close enough together",
    "NotEvaluated": "stands behind another in its queue",
    "PendingEvaluation": "not looked at yet",
    "WaitingForPreemptedWorkloads": "waits until evicted workloads are gone",
    "Misconfigured": "its queue is missing, does not take its namespace, or is not configured well",
    "Inactive": "its queue is stopped or inactive",
    "Backoff": "tried again later",
    "WaitingForPodsReady": "jobs start one at a time",
    "UnknownQueue": "names a queue that is not there",
    "SuspendedByUser": "suspended by its user",
    "HeldByOperator": "held by an admin",
    "WaitingForChecks": "its quota is reserved; its checks are not ready",
    "PodsReadyTimeout": "its pods were not ready in time",
    "AdmissionCheck": "a check did not agree",
    "RequeuingLimitExceeded": "its pods were not ready in time too often",
    "MaximumExecutionTimeExceeded": "its run time is used up",
}
"""Reasons in words, for rows that carry no message."""
STATES = ("waiting", "held", "reserved", "starting", "running", "draining", "finished", "failed", "deactivated")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar, in units of SCALE."""

    kind: str
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One cell of one node. `tick` is where nominal quota ends, when use goes beyond."""

    parts: tuple[Part, ...]
    tick: int | None
    used: str
    nominal: str
    waiting: str
    over: bool
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree. `bars` has an entry a column, None where the node has no such cell."""

    depth: int
    kind: str
    name: str
    path: str
    parents: str
    link: str
    running: int
    waiting: int
    other: int
    note: str
    bars: tuple[Bar | None, ...]


@dataclass(frozen=True, slots=True)
class TreeView:
    """The tree as a table; `hidden` columns are left out until asked for. `totals` are bars of the whole tree."""

    columns: tuple[tuple[str, str], ...]
    hidden: int
    rows: tuple[Row, ...]
    totals: tuple[tuple[str, str, Bar], ...]


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """A line of the workloads table."""

    state: str
    namespace: str
    name: str
    kind: str
    queue: str
    path: str
    queue_link: str
    link: str
    asks: str
    priority: int
    user: str
    age: str
    created: datetime
    words: str


@dataclass(frozen=True, slots=True)
class CallerView:
    """Who looks at the page, how they proved who they are, and whether there is a log-in to end."""

    name: str
    proof: str
    may_leave: bool


PROOFS = {
    Source.LOOPBACK: "no proof is needed on this machine",
    Source.TOKEN: "by API token",
    Source.OIDC: "by the identity provider",
    Source.KUBERNETES: "by Kubernetes' token",
}


def caller(identity: Identity) -> CallerView | None:
    """Who asks, None while that is nobody."""
    if not identity.name:
        return None
    return CallerView(identity.name, PROOFS[identity.source], identity.source is not Source.LOOPBACK)


@dataclass(frozen=True, slots=True)
class BlockerView:
    """A blocker with a bar of what there is against what is asked."""

    words: str
    message: str
    where: str
    numbers: tuple[tuple[str, str], ...]
    holders: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PodSetView:
    """A pod set in words."""

    group: str
    name: str
    count: int
    requests: str
    flavors: str
    places: tuple[str, ...] = field(default=())


def bar(cell: CellUsage) -> Bar:
    """Widths and words of one cell."""
    scale = max(cell.nominal, cell.used, 1)

    def width(amount: int) -> int:
        return amount * SCALE // scale

    settled = max(0, cell.used - cell.draining)
    own = min(settled, cell.nominal)
    spans = [
        ("own", 0, own),
        ("borrowed", own, settled - own),
        ("draining", settled, cell.used - settled),
        ("lent", max(cell.used, cell.nominal - cell.lent), cell.nominal - max(cell.used, cell.nominal - cell.lent)),
    ]
    # What is there must be seen: no part is thinner than a pixel or so.
    parts = tuple(Part(kind, width(start), max(8, width(size))) for kind, start, size in spans if size > 0)
    over = cell.used > cell.nominal
    return Bar(
        parts,
        width(cell.nominal) if over and cell.nominal else None,
        human.amount(cell.resource, cell.used),
        human.amount(cell.resource, cell.nominal),
        human.amount(cell.resource, cell.waiting) if cell.waiting else "",
        over,
        _label(cell),
    )


def _label(cell: CellUsage) -> str:
    def say(amount: int) -> str:
        return human.amount(cell.resource, amount)

    words = [f"{cell.flavor} {human.resource_name(cell.resource)}: {say(cell.used)} of {say(cell.nominal)} used"]
    amounts = {name: getattr(cell, name) for name in ("borrowed", "lent", "draining", "waiting")}
    words += [f"{say(amount)} {name}" for name, amount in amounts.items() if amount]
    limits = {"borrowing limit": cell.borrowing_limit, "lending limit": cell.lending_limit}
    words += [f"{name} {say(limit)}" for name, limit in limits.items() if limit is not None]
    return ", ".join(words)


def tree_view(items: Sequence[TreeNode], query: Mapping[str, str], every_column: bool) -> TreeView:
    """The table of the whole tree."""
    flat = list(_flat(items, 0, ()))
    cells = {(cell.flavor, cell.resource) for _, node, _ in flat for cell in node.cells}
    ordered = sorted(cells, key=lambda cell: (cell[1] in PLAIN_RESOURCES, cell))
    devices = [cell for cell in ordered if cell[1] not in PLAIN_RESOURCES]
    columns = ordered if every_column else (devices or ordered)[:HEADLINE_CELLS]
    rows = [_row(depth, node, parents, columns, query) for depth, node, parents in flat]
    return TreeView(
        tuple((flavor, human.resource_name(resource)) for flavor, resource in columns),
        len(ordered) - len(columns),
        tuple(rows),
        tuple(_totals(items, ordered[:6])),
    )


def _flat(
    nodes: Iterable[TreeNode], depth: int, parents: tuple[str, ...]
) -> Iterator[tuple[int, TreeNode, tuple[str, ...]]]:
    for node in nodes:
        yield depth, node, parents
        yield from _flat(node.children, depth + 1, (*parents, node.path))


def _row(
    depth: int, node: TreeNode, parents: tuple[str, ...], columns: Sequence[tuple[str, str]], query: Mapping[str, str]
) -> Row:
    found = {(cell.flavor, cell.resource): cell for cell in node.cells}
    counts = node.workloads
    running, waiting = counts.get("running", 0), counts.get("waiting", 0)
    return Row(
        depth,
        node.kind,
        node.name,
        node.path,
        " ".join(quote(parent, safe="/") for parent in parents),
        filter_link(query, "cohort" if node.kind == "Cohort" else "queue", node.name),
        running,
        waiting,
        sum(counts.values()) - running - waiting,
        _note(node),
        tuple(bar(found[column]) if column in found else None for column in columns),
    )


def _note(node: TreeNode) -> str:
    if not node.configured and node.kind == "Queue":
        return "deleted, still in use"
    if node.inactive:
        return node.inactive
    return {"Hold": "stopped", "HoldAndDrain": "stopped, draining"}.get(node.stop_policy, "")


def _totals(items: Sequence[TreeNode], cells: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Bar]]:
    for flavor, resource in cells:
        total = CellUsage(
            flavor=flavor, resource=resource, nominal=0, own=0, used=0, borrowed=0, lent=0, draining=0, waiting=0
        )
        for node in items:
            for cell in node.cells:
                if (cell.flavor, cell.resource) == (flavor, resource):
                    total.nominal += cell.nominal
                    total.used += cell.used
                    total.draining += cell.draining
                    total.waiting += cell.waiting
        yield flavor, human.resource_name(resource), bar(total)


def filter_link(query: Mapping[str, str], name: str, value: str) -> str:
    """The overview with one filter set instead of the queue or cohort that is chosen now."""
    kept = {key: item for key, item in query.items() if item and key not in ("queue", "cohort", "cursor")}
    return "/?" + urlencode({**kept, name: value})


def workload_line(workload: Workload, query: Mapping[str, str], now: datetime) -> WorkloadLine:
    """A line of the table."""
    return WorkloadLine(
        workload.state.value,
        workload.namespace,
        workload.name,
        workload.kind,
        workload.queue or workload.local_queue,
        workload.path or f"{workload.local_queue}: no such queue",
        filter_link(query, "queue", workload.queue) if workload.queue else "",
        workload_link(workload.namespace, workload.name, workload.kind),
        asks(workload),
        workload.priority,
        workload.user,
        human.age(workload.created, now),
        workload.created,
        words(workload.reason, workload.message),
    )


def workload_link(namespace: str, name: str, kind: str = "") -> str:
    """Address of a workload's page."""
    path = f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return f"{path}?{urlencode({'kind': kind})}" if kind else path


def moment(at: datetime) -> str:
    """A time of the past in full, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def words(reason: str, message: str) -> str:
    """Why, in a sentence."""
    return message or WORDS.get(reason, reason)


def asks(workload: Workload) -> str:
    """What it asks for in a few words: pods and the resource that matters (`8 × 8 gpu`)."""
    sets = [each for group in workload.pod_groups for each in group.pod_sets]
    texts = []
    for each in sorted(sets, key=_weight, reverse=True)[:2]:
        resource = _main_resource(each)
        amount = human.amount(resource, each.requests[resource]) if resource else ""
        texts.append(f"{each.count} × {amount} {human.resource_name(resource)}" if resource else f"{each.count} pods")
    if len(sets) > 2:
        texts.append("…")
    return " + ".join(texts)


def _main_resource(each: PodSet) -> str:
    named = [name for name, amount in sorted(each.requests.items()) if amount]
    devices = [name for name in named if name not in PLAIN_RESOURCES]
    return (devices or [name for name in ("cpu", "memory") if name in named] or [""])[0]


def _weight(each: PodSet) -> tuple[bool, int]:
    resource = _main_resource(each)
    return resource not in PLAIN_RESOURCES and bool(resource), each.count * each.requests.get(resource, 0)


BLOCKER_WORDS = {
    "Quota": "Not enough free quota",
    "MaxQuota": "More than the queue can ever have",
    "Flavor": "This kind of capacity does not fit",
    "Topology": "No place close enough together",
    "Preemption": "Waits for evicted workloads to leave",
    "AheadInQueue": "Others are ahead in the queue",
    "QueueStopped": "The queue is stopped",
    "QueueInactive": "The queue is inactive",
    "Namespace": "The namespace may not use the queue",
    "Backoff": "Tried again later",
    "PodsReady": "Another job has to get ready first",
    "AdmissionCheck": "A check has not agreed yet",
}


def blockers(explanation: Explanation) -> list[BlockerView]:
    """Blockers in words, with the numbers that are known."""
    views = []
    for each in explanation.blockers:
        where = " · ".join(part for part in (each.node, each.flavor, human.resource_name(each.resource)) if part)
        numbers = [(name, getattr(each, name)) for name in ("requested", "available", "missing")]
        if not each.resource or not (each.requested or each.missing):
            numbers = []
        holders = []
        for holder in each.holders:
            namespace, slash, name = holder.partition("/")
            holders.append((holder, workload_link(namespace, name) if slash else ""))
        title = BLOCKER_WORDS.get(each.type) or WORDS.get(each.type, each.type)
        shown = tuple((name, human.amount(each.resource, amount)) for name, amount in numbers)
        views.append(BlockerView(title, each.message, where, shown, tuple(holders)))
    return views


def pod_sets(workload: Workload) -> list[PodSetView]:
    """Pod sets with what they ask for and where they are."""
    views = []
    for group in workload.pod_groups:
        for each in group.pod_sets:
            requests = ", ".join(
                f"{human.amount(name, amount)} {human.resource_name(name)}"
                for name, amount in sorted(each.requests.items())
            )
            flavors = ", ".join(sorted(set(each.flavors.values())))
            counts: dict[str, int] = {}
            for domain in each.domains or ():
                name = " / ".join(domain.values)
                counts[name] = counts.get(name, 0) + domain.count
            places = tuple(f"{count} in {name}" for name, count in counts.items())
            views.append(PodSetView(group.name, each.name, each.count, requests, flavors, places[:20]))
    return views
