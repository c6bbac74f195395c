"""The state machine of a workload: (row, what the cluster shows) -> the next row, or nothing.

Pure functions. Every transition is decided from the row and the object as they are now, never from what was sent
earlier, so a crash at any point is repaired by deciding again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from queue_manager.engine.configuration import Cell
from queue_manager.engine.copies import replace
from queue_manager.engine.decision import EVICTION_WORDS, Admission, Eviction
from queue_manager.engine.workload import PodGroup
from queue_manager.kinds.kind import Finished, Outcome
from queue_manager.store.deadlines import open_checks, run_time
from queue_manager.store.records import (
    Action,
    AdmissionRow,
    Change,
    Check,
    CheckState,
    LedgerEntry,
    LedgerState,
    OutboxEntry,
    State,
    WorkloadRow,
)
from queue_manager.store.wishes import PENDING_EVALUATION, SUSPENDED_BY_USER

START_REFUSED = "StartRefused"
STOP_REFUSED = "StopRefused"
PLACEMENT_LOST = "PlacementLost"
NODES_LOST = "NodesLost"
NODES_RECOVERED = "NodesRecovered"
NOT_FOLLOWED = "NotFollowed"
WAITING_FOR_CHECKS = "WaitingForChecks"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster shows of one workload now.

    `exists`: the job object is there. `placed`: it is unsuspended with the placement of the row's admission.
    `live_pods`: pods that have not ended, terminating ones included. `drained`: no pod is left and none can come.
    `charge`: what the workload is charged now, loans taken off. `lost_nodes`: all pods that are left are on these, and
    nobody waits for them any longer. `ready`: all pods that can run by now are ready or done.
    """

    now: datetime
    exists: bool
    suspended: bool = False
    placed: bool = False
    finished: Finished | None = None
    live_pods: int = 0
    drained: bool = False
    managed: bool = True
    charge: Mapping[Cell, int] = field(default_factory=dict)
    lost_nodes: tuple[str, ...] = ()
    ready: bool = False


def event(row: WorkloadRow, reason: str, message: str, *, warning: bool = False) -> OutboxEntry:
    """An event on the job object, sent after the commit."""
    payload = {"reason": reason, "message": message, "type": "Warning" if warning else "Normal"}
    return OutboxEntry(uid=row.uid, action=Action.EVENT, payload=payload)


def not_followed(row: WorkloadRow, messages: Sequence[str]) -> list[OutboxEntry]:
    """Events about what of the job is not acted on."""
    return [event(row, NOT_FOLLOWED, message, warning=True) for message in messages]


def sync(row: WorkloadRow) -> OutboxEntry:
    """Asks the executor to bring the object in line with the row."""
    return OutboxEntry(uid=row.uid, action=Action.SYNC, payload={"state": row.state.value, "attempt": row.attempt})


def relabel(row: WorkloadRow) -> tuple[OutboxEntry, ...]:
    """Asks for the labels that the object has yet to get, if any."""
    return (OutboxEntry(uid=row.uid, action=Action.RELABEL),) if row.relabels else ()


def entries(charge: Mapping[Cell, int], state: LedgerState) -> tuple[LedgerEntry, ...]:
    """Ledger intervals of a charge, in a fixed order, zero amounts left out."""
    return tuple(LedgerEntry(cell, amount, state) for cell, amount in sorted(charge.items()) if amount)


def loans(full: Mapping[Cell, int], charge: Mapping[Cell, int]) -> tuple[LedgerEntry, ...]:
    """What finished pods of a running workload lend: its full charge less what it is charged now."""
    lent = {cell: amount - charge.get(cell, 0) for cell, amount in full.items()}
    return entries({cell: amount for cell, amount in lent.items() if amount > 0}, LedgerState.RECLAIMED_LOAN)


def charged(full: Mapping[Cell, int], charge: Mapping[Cell, int]) -> tuple[LedgerEntry, ...]:
    """Ledger of a running workload: reserved for what it is charged now, on loan what is left of its full charge."""
    return entries(charge, LedgerState.RESERVED) + loans(full, charge)


def admit(row: WorkloadRow, admission: Admission, now: datetime) -> Change:
    """waiting -> starting: the whole workload, charged from this commit on. With checks that are not ready yet it is
    reserved: charged, and not started."""
    attempt = row.attempt + 1
    checks = forgotten(row.checks, CheckState.RETRY)
    waits_for = open_checks(checks, admission.checks)
    checked_at = now if admission.checks and not waits_for else None
    admitted = replace(
        row,
        state=State.RESERVED if waits_for else State.STARTING,
        attempt=attempt,
        reason=WAITING_FOR_CHECKS if waits_for else "",
        message=f"Its quota is reserved; it starts once these checks are ready: {', '.join(waits_for)}"
        if waits_for
        else "",
        not_before=None,
        after_drain=None,
        emptied_at=None,
        checks=checks,
        admission=AdmissionRow(attempt=attempt, admission=admission, admitted_at=now, checked_at=checked_at),
    )
    outbox = () if waits_for else (sync(admitted),)
    return Change(row=admitted, ledger=entries(admission.charge, LedgerState.RESERVED), outbox=outbox)


def forgotten(checks: tuple[Check, ...], state: CheckState) -> tuple[Check, ...]:
    """Checks of which an answer counts no longer: they are pending again, their retries are still counted."""
    return tuple(
        replace(check, state=CheckState.PENDING, message="") if check.state is state else check for check in checks
    )


def describe_admission(admission: Admission) -> str:
    """One sentence for the person who submitted the job."""
    return f"Admitted to queue {admission.queue}: {describe_pods(admission)}"


def describe_pods(admission: Admission) -> str:
    """How many pods go where."""
    parts = []
    for pod_set in admission.pod_sets:
        flavors = ", ".join(sorted(set(pod_set.flavors.values()))) or "no flavor"
        places = ""
        if pod_set.domains:
            distinct = list(dict.fromkeys(domain.values for domain in pod_set.domains))
            names = [values[-1] for values in distinct[:3]]
            more = len(distinct) - len(names)
            places = f" at {', '.join(names)}" + (f" and {more} more" if more > 0 else "")
        parts.append(f"{pod_set.name}: {pod_set.count} pods on {flavors}{places}")
    return "; ".join(parts)


def evict(row: WorkloadRow, eviction: Eviction, preemptor: WorkloadRow | None, facts: Facts) -> Change:
    """reserved, starting, running -> draining, to queue again afterwards."""
    why = EVICTION_WORDS[eviction.reason] if eviction.by else eviction.message
    by = f" ({preemptor.namespace}/{preemptor.name}, priority {preemptor.priority})" if preemptor else ""
    message = f"Stopped because {why}{by}. It queues again with its old place in time."
    reason = "Preempted" if eviction.by else "Evicted"
    return drain(row, facts, State.WAITING, eviction.reason.value, message, by=eviction.by, event_reason=reason)


def drain(
    row: WorkloadRow,
    facts: Facts,
    after: State,
    cause: str,
    message: str,
    *,
    by: str = "",
    underlying: str = "",
    event_reason: str = "",
    not_before: datetime | None = None,
    requeued_at: datetime | None = None,
) -> Change:
    """Any charged state -> draining: the charge stays until the last pod is gone. Its time of running so far is noted,
    and answers of checks count no longer, except those by which it goes."""
    assert row.admission is not None
    ended = replace(
        row.admission, evicted_at=facts.now, cause=cause, underlying=underlying, cause_message=message, by=by
    )
    draining = replace(
        row,
        requeued_at=requeued_at,
        past_run_time=row.past_run_time + run_time(row, facts.now),
        checks=forgotten(row.checks, CheckState.READY),
        state=State.DRAINING,
        after_drain=after,
        reason=underlying if after is State.DEACTIVATED and underlying else cause,
        message=message,
        admission=ended,
        not_before=not_before,
        finished_at=facts.now if after in (State.FINISHED, State.FAILED) else None,
    )
    outbox = [sync(draining)]
    if event_reason:
        outbox.append(event(draining, event_reason, message, warning=True))
    return Change(row=draining, ledger=entries(facts.charge, LedgerState.DRAINING), outbox=tuple(outbox))


def finish(row: WorkloadRow, facts: Facts, state: State, cause: str, message: str) -> Change:
    """starting, running -> finished, failed in one step: the job is over and no pod is left, so nothing drains."""
    assert row.admission is not None
    ended = replace(row.admission, evicted_at=facts.now, ended_at=facts.now, cause=cause, cause_message=message)
    over = replace(
        row,
        state=state,
        reason=cause,
        message=message,
        past_run_time=row.past_run_time + run_time(row, facts.now),
        admission=ended,
        pod_groups=unreclaimed(row.pod_groups),
        finished_at=facts.now,
    )
    return Change(row=over, ledger=(), request_changed=over.pod_groups != row.pod_groups)


def release(row: WorkloadRow) -> Change:
    """draining -> the state decided when draining began; nothing is charged any more."""
    assert row.after_drain is not None
    after = row.after_drain
    again = after is State.WAITING
    freed = replace(
        row,
        state=after,
        after_drain=None,
        admission=None,
        pod_groups=row.pod_groups if again else unreclaimed(row.pod_groups),
        reason=row.reason if not again else PENDING_EVALUATION,
    )
    outbox = (sync(freed),) if after in (State.WAITING, State.HELD, State.DEACTIVATED) else ()
    return Change(row=freed, ledger=(), outbox=outbox, request_changed=freed.pod_groups != row.pod_groups)


def unreclaimed(groups: tuple[PodGroup, ...]) -> tuple[PodGroup, ...]:
    """Pod groups as if no pod had finished; the same ones where none has."""
    if not any(p.reclaimed for g in groups for p in g.pod_sets):
        return groups
    return tuple(replace(g, pod_sets=tuple(replace(p, reclaimed=0) for p in g.pod_sets)) for g in groups)


def ended(row: WorkloadRow, facts: Facts) -> tuple[State, str, str] | None:
    """(state, cause, message) once the job is over: finished, failed or deleted."""
    if not facts.exists:
        return State.FINISHED, "Deleted", "The job was deleted"
    if facts.finished is not None:
        good = facts.finished.outcome is Outcome.SUCCEEDED
        return (
            (State.FINISHED, "Succeeded", facts.finished.message)
            if good
            else (State.FAILED, "Failed", facts.finished.message)
        )
    return None


def uncharged(row: WorkloadRow, facts: Facts) -> Change | None:
    """waiting, held, deactivated: ends with its object; nobody starts it but us."""
    end = ended(row, facts)
    if end is None and not facts.managed:
        end = State.FINISHED, "Unmanaged", "The job no longer asks for a queue"
    if end is not None:
        state, cause, message = end
        return Change(row=replace(row, state=state, reason=cause, message=message, finished_at=facts.now), outbox=())
    if facts.suspended:
        return None
    if row.state is State.HELD and row.reason == SUSPENDED_BY_USER:
        again = replace(row, state=State.WAITING, reason=PENDING_EVALUATION, message="Its user resumed it")
        return Change(
            row=again,
            outbox=(sync(again), event(again, "Queued", "Resumed by its user: it queues again")),
        )
    return None


def charged_state(row: WorkloadRow, facts: Facts) -> Change | None:
    """reserved, starting, running: follow the object."""
    end = ended(row, facts)
    if end is None and row.state is State.RESERVED and not facts.managed:
        end = State.FINISHED, "Unmanaged", "The job no longer asks for a queue"
    if end is not None:
        state, cause, message = end
        if facts.drained:
            return finish(row, facts, state, cause, message)
        return drain(row, facts, state, cause, message)
    if row.state is State.STARTING and facts.placed:
        assert row.admission is not None
        started = replace(row.admission, started_at=facts.now)
        running = replace(row, state=State.RUNNING, admission=started)
        return Change(row=running)
    if row.state is State.RUNNING and facts.suspended:
        message = "Its user suspended it: it is held until it is released or its user resumes it"
        return drain(row, facts, State.HELD, SUSPENDED_BY_USER, message, event_reason="Held")
    return None


def draining(row: WorkloadRow, facts: Facts) -> Change | None:
    """draining: a job that ends meanwhile does not queue again; released when drained."""
    if row.after_drain is State.HELD and row.reason == SUSPENDED_BY_USER and facts.exists and not facts.suspended:
        message = "Its user resumed it: it queues again once its pods are gone"
        resumed = replace(row, after_drain=State.WAITING, reason="ResumedByUser", message=message)
        return Change(row=resumed, outbox=(sync(resumed),))
    if row.after_drain not in (State.FINISHED, State.FAILED):
        end = ended(row, facts)
        if end is not None:
            state, cause, message = end
            return Change(
                row=replace(
                    row, after_drain=state, reason=cause, message=message, finished_at=facts.now, not_before=None
                )
            )
    if facts.drained:
        return release(row)
    return give_up(row, facts.lost_nodes) if facts.lost_nodes else None


def give_up(row: WorkloadRow, nodes: Sequence[str]) -> Change:
    """draining -> as `release`, although pods are left on nodes that are deleted or not ready."""
    change = release(row)
    named = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
    message = f"Its quota is released although pods of it are left on nodes that are lost: {named}"
    return replace(change, outbox=(*change.outbox, event(change.row, NODES_LOST, message, warning=True)))


TRANSITIONS: Mapping[State, Callable[[WorkloadRow, Facts], Change | None]] = {
    State.WAITING: uncharged,
    State.HELD: uncharged,
    State.DEACTIVATED: uncharged,
    State.RESERVED: charged_state,
    State.STARTING: charged_state,
    State.RUNNING: charged_state,
    State.DRAINING: draining,
    State.FINISHED: lambda row, facts: None,
    State.FAILED: lambda row, facts: None,
}


def decide(row: WorkloadRow, facts: Facts) -> Change | None:
    """The next transition of a workload, None when the row says what the cluster shows."""
    return TRANSITIONS[row.state](row, facts)


def start_refused(row: WorkloadRow, message: str, facts: Facts, failures: int) -> Change:
    """starting -> draining: the start is refused for good; it queues again after a pause (60 s, doubling, to 1 h)."""
    pause = timedelta(seconds=min(60 * 2 ** min(failures, 6), 3600))
    text = f"It could not be started and is tried again in {int(pause.total_seconds())} s: {message}"
    until = facts.now + pause
    return drain(row, facts, State.WAITING, START_REFUSED, text, event_reason=START_REFUSED, not_before=until)


def stop_trouble(row: WorkloadRow, problem: str) -> Change:
    """draining: stopping it is refused, or takes another way than usual. Told to its user; the charge stays."""
    assert row.admission is not None
    message = " ".join(filter(None, (row.admission.cause_message, f"It could not be stopped as usual: {problem}")))
    told = replace(row, message=message)
    return Change(row=told, outbox=(event(told, STOP_REFUSED, message, warning=True),))


def placement_lost(row: WorkloadRow, problem: str, *, running: bool) -> Change | None:
    """running: somebody took our entry away. Written again (running -> starting, same admission) while no pod runs yet;
    else the pods keep what they were made with, and their user is told. None when that has been said."""
    if row.message.endswith(problem):
        return None
    if running:
        message = f"Its running pods stay where they are, but a restart would lose their place: {problem}"
        told = replace(row, message=message)
        return Change(row=told, outbox=(event(told, PLACEMENT_LOST, message, warning=True),))
    message = f"Its placement is written again, no pod ran yet: {problem}"
    again = replace(row, state=State.STARTING, message=message)
    return Change(row=again, outbox=(sync(again), event(again, PLACEMENT_LOST, message, warning=True)))
