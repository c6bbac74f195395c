"""Reads workloads and says why they wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from queue_manager.config.compiled import Compiled
from queue_manager.engine import workload as engine
from queue_manager.engine.configuration import Queue
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.store import records
from queue_manager.store.audits import AuditEntry
from queue_manager.store.deadlines import STARTED, must_end_by, needed_checks, open_checks, ready_by, run_time
from queue_manager.store.instructions import object_name
from queue_manager.store.listing import BadCursor
from queue_manager.store.records import ENDED, CheckState, State, WorkloadFilter, WorkloadRow
from queue_manager.store.workloads import LedgerInterval

from ..auth.veil import Veil, texts_of, veiled
from ..context import Context
from ..paging import Page
from ..problems import ProblemError, not_found
from . import ways_out
from .schemas import (
    ActionEntry,
    AdmissionEntry,
    Blocker,
    Check,
    Domain,
    Explanation,
    History,
    PodGroup,
    PodSet,
    Ready,
    Requeue,
    RunTime,
    Topology,
    Workload,
)

SECOND = 1_000_000
HISTORY = 1000
"""Actions that a history shows at most."""
ENDS = frozenset({"Succeeded", "Failed", "Deleted", "Unmanaged"})
"""Causes of an admission's end that are no evictions."""


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
    compiled, now = context.configuration().compiled, context.now()
    veil = Veil(context, (row.message for row in rows))
    rows = [replace(row, message=veil.text(row.message)) for row in rows]
    return Page(items=[to_schema(compiled, row, now) for row in rows], next=following)


def filter_of(wanted: Wanted, queues: tuple[str, ...]) -> WorkloadFilter:
    """The store's filter, given the names of the queues that are meant."""
    return WorkloadFilter(
        queues=queues,
        states=wanted.states,
        user=wanted.user,
        kind=wanted.kind,
        namespace=wanted.namespace,
        text=wanted.text,
    )


def _page(
    context: Context, wanted: Wanted, queues: tuple[str, ...], cursor: str, limit: int
) -> tuple[list[WorkloadRow], str | None]:
    try:
        return context.store.list_workloads(filter_of(wanted, queues), cursor or None, limit)
    except BadCursor:
        raise ProblemError(400, "Bad cursor", "use `next` of the page before, as it was given") from None


def get_row(context: Context, namespace: str, name: str, kind: str = "") -> WorkloadRow:
    """The workload of this name; of several of one kind the newest. 404 when there is none, 409 when it
    takes `kind` to tell."""
    sees_all = context.sees_all or not context.access.narrowed
    rows = context.store.find_workloads(namespace, name, kind or None, alive=sees_all)
    if not sees_all:  # of what is hidden it is not even said that it is there
        rows = [row for row in rows if context.access.sees_queue(row.queue)]
    if not rows:
        raise not_found("workload", f"{namespace}/{name}", f"no {kind} has this name" if kind else "")
    live = [row for row in rows if row.state not in ENDED] or rows
    kinds = sorted({row.kind for row in live})
    if len(kinds) > 1:
        raise ProblemError(409, "Several workloads have this name", f"say which: ?kind={' or ?kind='.join(kinds)}")
    return live[0]


def get_workload(context: Context, namespace: str, name: str, kind: str = "") -> Workload:
    """One workload."""
    return show(context, get_row(context, namespace, name, kind))


def show(context: Context, row: WorkloadRow) -> Workload:
    """A row as it is now."""
    veil = Veil(context, [row.message])
    return to_schema(context.configuration().compiled, replace(row, message=veil.text(row.message)), context.now())


def explain(context: Context, row: WorkloadRow) -> Explanation:
    """What was said of it when it was last looked at; for one that does not wait, its state and reason. A running one
    may wait for more pods."""
    if row.state is State.RESERVED:
        return _waits_for_checks(context, row)
    body = context.store.explanation(row.uid) if row.explained else None
    told = veiled(context, {"reason": row.reason, "message": row.message, **(body or {})})
    found = Explanation.model_validate({"since": row.created_at, **told, "state": row.state})
    if not body:
        if row.state is State.HELD and row.reason:
            held = Blocker(type=row.reason, message=found.message)
            found.blockers = [ways_out.completed(held, {})]
        elif row.state is State.DEACTIVATED:
            found.blockers = [Blocker(type=row.reason, message=found.message, ways_out=[ways_out.RELEASED])]
        return found
    found.blockers = completed(context, found.blockers)
    found.waiting_since = _waiting_since(context, row)
    if row.state is State.WAITING and row.queue:
        found.queued = context.store.waiting_in(row.queue)
    return found


def completed(context: Context, blockers: Sequence[Blocker]) -> list[Blocker]:
    """Blockers with what their holders have now, and with the ways out."""
    names = {holder for blocker in blockers for holder in blocker.holders}
    pairs = [(namespace, name) for namespace, _, name in (each.partition("/") for each in sorted(names))]
    rows = {f"{row.namespace}/{row.name}": row for row in context.store.charged_workloads(pairs)}
    return [ways_out.completed(blocker, rows) for blocker in blockers]


def _waiting_since(context: Context, row: WorkloadRow) -> datetime:
    """When it was created, or when its last admission was over."""
    if not row.attempt:
        return row.created_at  # it was never admitted, so nothing has to be looked for
    ends = (each.evicted_at or each.ended_at for each in context.store.admissions(row.uid))
    return max((row.created_at, *(end for end in ends if end is not None)))


def _waits_for_checks(context: Context, row: WorkloadRow) -> Explanation:
    """Its quota is reserved: a blocker for each check that is not ready."""
    compiled = context.configuration().compiled
    waits_for = open_checks(row.checks, needed_checks(row, _queue_of(compiled, row)) or ())
    blockers = []
    for check in list_checks(compiled, row):
        if check.name not in waits_for:
            continue
        said = f"{check.state.value} ({check.message})" if check.message else check.state.value
        told = said if check.at is not None else f"{said}: nothing has answered yet"
        blockers.append(Blocker(type="AdmissionCheck", message=f"check {check.name} is {told}"))
    return Explanation(
        state=row.state,
        reason=row.reason,
        message="; ".join(blocker.message for blocker in blockers) or "its checks are ready: it starts now",
        since=row.created_at,
        waiting_since=row.admission.admitted_at if row.admission else None,
        as_of=context.now(),
        blockers=completed(context, blockers),
    )


def to_schema(compiled: Compiled, row: WorkloadRow, now: datetime) -> Workload:
    """A row in the API's shape."""
    node = compiled.tree.queues.get(row.queue)
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
        after_drain=row.after_drain,
        requeue=Requeue(
            count=row.requeues,
            since=row.requeued_at,
            at=row.not_before if row.not_before and row.not_before > now else None,
        ),
        ready=_ready(compiled, row),
        run_time=RunTime(
            limit=row.max_run_time / SECOND if row.max_run_time else None,
            used=(row.past_run_time + run_time(row, now)) / SECOND,
            until=must_end_by(row),
        ),
        checks=list_checks(compiled, row),
        topology=_topology(row.topology),
        pod_groups=[_pod_group(group, assigned) for group in row.pod_groups],
    )


def _ready(compiled: Compiled, row: WorkloadRow) -> Ready | None:
    if row.admission is None or row.state not in STARTED:
        return None
    return Ready(at=row.admission.ready_at, lost_at=row.admission.unready_at, by=ready_by(row, compiled.settings))


def list_checks(compiled: Compiled, row: WorkloadRow) -> list[Check]:
    """All checks that its queue knows, or that have answered."""
    queue = _queue_of(compiled, row)
    names = [check.name for check in queue.checks] if queue is not None else []
    needed = needed_checks(row, queue)
    answers = {check.name: check for check in row.checks}
    return [_check(name, answers.get(name), needed) for name in dict.fromkeys([*names, *answers])]


def _queue_of(compiled: Compiled, row: WorkloadRow) -> Queue | None:
    """Its queue as configured now: the one it is admitted to, or waits in."""
    return compiled.configuration.queues.get(row.admission.admission.queue if row.admission else row.queue)


def _check(name: str, answer: records.Check | None, needed: Sequence[str] | None) -> Check:
    asked = None if needed is None else name in needed
    if answer is None:
        return Check(name=name, state=CheckState.PENDING, needed=asked)
    return Check(
        name=name,
        state=answer.state,
        message=answer.message,
        at=answer.at,
        by=answer.who,
        needed=asked,
        requeue_after=answer.requeue_after if answer.state is CheckState.RETRY else None,
    )


def history(context: Context, row: WorkloadRow) -> History:
    """Its admissions and what people asked of it."""
    found = list_admissions(context, row)
    intervals = context.store.history(row.uid).intervals
    entries = context.store.audit_entries(HISTORY, object=object_name(row.namespace, row.name))
    causes = Counter(a.underlying or a.cause for a in found if a.evicted_at is not None and a.cause not in ENDS)
    actions = [_action(entry) for entry in reversed(entries) if (entry.before or {}).get("uid") == row.uid]
    veil = Veil(context, texts_of([each.model_dump(mode="json") for each in actions]))
    return History(
        admissions=[_admission(each, veil.text(_admitted_to(each, intervals))) for each in found],
        actions=[_told(each, veil) for each in actions],
        evictions=dict(sorted(causes.items())),
    )


def list_admissions(context: Context, row: WorkloadRow) -> list[records.AdmissionRow]:
    """Its admissions, oldest first."""
    found = context.store.admissions(row.uid)
    veil = Veil(context, (each.cause_message for each in found))
    return [replace(each, cause_message=veil.text(each.cause_message)) for each in found]


def _admitted_to(admission: records.AdmissionRow, intervals: Sequence[LedgerInterval]) -> str:
    """The queue that an admission was charged to first: it may have been moved since."""
    since = (each.queue for each in intervals if each.since >= admission.admitted_at)
    return next(since, admission.admission.queue)


def _admission(each: records.AdmissionRow, queue: str) -> AdmissionEntry:
    return AdmissionEntry(
        attempt=each.attempt,
        queue=queue,
        admitted=each.admitted_at,
        checked=each.checked_at,
        started=each.started_at,
        ready=each.ready_at,
        evicted=each.evicted_at,
        ended=each.ended_at,
        cause=each.cause,
        underlying_cause=each.underlying,
        message=each.cause_message,
        by=each.by,
    )


def _action(entry: AuditEntry) -> ActionEntry:
    return ActionEntry(
        at=entry.at, who=entry.who, action=entry.action, reason=entry.reason, arguments=dict(entry.after or {})
    )


def _told(entry: ActionEntry, veil: Veil) -> ActionEntry:
    """An action without what its reader may not see: where a job was moved to, whom its reason names."""
    said = {"who": veil.text(entry.who), "reason": veil.text(entry.reason), "arguments": veil.value(entry.arguments)}
    return entry.model_copy(update=said)


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
