"""Reads workloads and says why they wait."""

from __future__ import annotations

from dataclasses import dataclass

from queue_manager.config.tree import Tree
from queue_manager.engine import workload as engine
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.store.records import ENDED, State, WorkloadFilter, WorkloadRow
from queue_manager.store.workloads import BadCursor

from ..context import Context
from ..paging import Page
from ..problems import ProblemError, not_found
from .schemas import Domain, Explanation, PodGroup, PodSet, Topology, Workload


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters of a list, as people give them."""

    queue: str = ""
    cohort: str = ""
    states: tuple[State, ...] = ()
    user: str = ""
    kind: str = ""
    namespace: str = ""
    text: str = ""


def list_workloads(context: Context, wanted: Wanted, cursor: str, limit: int) -> Page[Workload]:
    """A page of workloads, newest first."""
    queues = context.queue_names(wanted.queue, wanted.cohort)
    if queues == ():
        return Page(items=[])
    rows, following = _page(context, wanted, queues or (), cursor, limit)
    tree = context.configuration().compiled.tree
    return Page(items=[to_schema(tree, row) for row in rows], next=following)


def _page(
    context: Context, wanted: Wanted, queues: tuple[str, ...], cursor: str, limit: int
) -> tuple[list[WorkloadRow], str | None]:
    chosen = WorkloadFilter(
        queues=queues,
        states=wanted.states,
        user=wanted.user,
        kind=wanted.kind,
        namespace=wanted.namespace,
        text=wanted.text,
    )
    try:
        return context.store.list_workloads(chosen, cursor or None, limit)
    except BadCursor:
        raise ProblemError(400, "Bad cursor", "use `next` of the page before, as it was given") from None


def get_row(context: Context, namespace: str, name: str, kind: str = "") -> WorkloadRow:
    """The workload of this name; of several of one kind the newest. 404 when there is none, 409 when it
    takes `kind` to tell."""
    rows = context.store.find_workloads(namespace, name, kind or None)
    if not rows:
        raise not_found("workload", f"{namespace}/{name}", f"no {kind} has this name" if kind else "")
    live = [row for row in rows if row.state not in ENDED] or rows
    kinds = sorted({row.kind for row in live})
    if len(kinds) > 1:
        raise ProblemError(409, "Several workloads have this name", f"say which: ?kind={' or ?kind='.join(kinds)}")
    return live[0]


def get_workload(context: Context, namespace: str, name: str, kind: str = "") -> Workload:
    """One workload."""
    return to_schema(context.configuration().compiled.tree, get_row(context, namespace, name, kind))


def explain(context: Context, row: WorkloadRow) -> Explanation:
    """What was said of it when it was last looked at; for one that does not wait, its state and reason."""
    body = context.store.explanation(row.uid) if row.state in (State.WAITING, State.HELD) else None
    if not body:
        return Explanation(state=row.state, reason=row.reason, message=row.message, since=row.created_at)
    return Explanation.model_validate(
        {"reason": row.reason, "message": row.message, "since": row.created_at, **body, "state": row.state}
    )


def to_schema(tree: Tree, row: WorkloadRow) -> Workload:
    """A row in the API's shape."""
    node = tree.queues.get(row.queue)
    admission = row.admission.admission if row.admission else None
    assigned = {each.name: each for each in admission.pod_sets} if admission else {}
    return Workload(
        namespace=row.namespace,
        name=row.name,
        kind=row.kind,
        uid=row.uid,
        queue=row.queue,
        path=node.path if node else row.queue,
        cohort=node.parent if node else "",
        local_queue=row.local_queue,
        user=row.user,
        priority=row.priority,
        priority_class=row.priority_class,
        state=row.state,
        reason=row.reason,
        message=row.message,
        created=row.created_at,
        admitted=row.admission.admitted_at if row.admission else None,
        finished=row.finished_at,
        attempt=row.attempt,
        topology=_topology(row.topology),
        pod_groups=[_pod_group(group, assigned) for group in row.pod_groups],
    )


def _topology(request: engine.TopologyRequest | None) -> Topology | None:
    return Topology(mode=request.mode.value, level=request.level) if request else None


def _pod_group(group: engine.PodGroup, assigned: dict[str, PodSetAssignment]) -> PodGroup:
    return PodGroup(
        name=group.name,
        policy=group.policy.value,
        minimum=group.minimum,
        topology=_topology(group.topology),
        pod_sets=[_pod_set(each, assigned.get(each.name)) for each in group.pod_sets],
    )


def _pod_set(each: engine.PodSet, assignment: PodSetAssignment | None) -> PodSet:
    domains = assignment.domains if assignment else None
    return PodSet(
        name=each.name,
        count=each.count,
        requests=dict(each.requests),
        stages=each.stages,
        reclaimed=each.reclaimed,
        min_count=each.min_count,
        node_selector=dict(each.node_selector),
        topology=_topology(each.topology),
        flavors=dict(assignment.flavors) if assignment else {},
        domains=None if domains is None else [Domain(values=list(d.values), count=d.count) for d in domains],
    )
