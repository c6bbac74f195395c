"""What people ask of workloads. The API notes it with an audit line; whoever leads carries it out.

A request waits a moment for that: 200 is done, 202 is noted and not done yet (nobody leads just now).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC
from typing import Any

from queue_manager.config.problem import nearest_or_list
from queue_manager.store.instructions import object_name
from queue_manager.store.records import Instruction, Wish, WorkloadRow
from queue_manager.store.targets import NoTargetError, target_of
from queue_manager.store.wishes import answered, refusal

from ..auth.access import demand_role
from ..auth.roles import Role
from ..auth.veil import Veil
from ..context import Context
from ..paging import Page, Place, page_by
from ..problems import ProblemError, not_found
from .schemas import Check, CheckAnswer, EvictRequest, MoveRequest, ReprioritiseRequest
from .service import list_checks

NOTHING: Mapping[str, Any] = {}
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.25
"""Seconds between two looks whether the leader has done it: doubled each time."""


def act(
    context: Context, row: WorkloadRow, wish: Wish, reason: str, arguments: Mapping[str, Any] = NOTHING
) -> tuple[WorkloadRow, bool]:
    """Notes a wish; the workload afterwards and whether it was carried out. 409 where it makes no sense, or the leader
    refuses it."""
    why_not = refusal(row, wish, context.now())
    if why_not:
        raise ProblemError(409, f"Nothing to {wish.value}", f"{row.namespace}/{row.name}: {why_not}")
    done = _instruct(context, row, wish, arguments, reason)
    return _again(context, row), done


def move(context: Context, row: WorkloadRow, request: MoveRequest) -> tuple[WorkloadRow, bool]:
    """Moves it to another queue; 422 where nothing of that name is a queue for it."""
    try:
        target = target_of(context.configuration().compiled, row.namespace, request.queue, context.access.sees_queue)
    except NoTargetError as problem:
        raise _bad_field("queue", str(problem)) from None
    # To whom the quota there belongs has a say; past the limits of a queue only its admin lets a job.
    demand_role(context, Role.QUEUE_ADMIN if request.force else Role.OPERATOR, ("Queue", target.queue))
    return act(context, row, Wish.MOVE, request.reason, {"queue": request.queue, "force": request.force})


def reprioritise(context: Context, row: WorkloadRow, request: ReprioritiseRequest) -> tuple[WorkloadRow, bool]:
    """Gives it another priority class; 422 where there is none of that name."""
    name, known = request.priority_class, context.configuration().compiled.priority_classes
    if name not in known:
        hint = nearest_or_list(name, known, "priority class")
        raise _bad_field("priorityClass", f"there is no priority class {name!r}; {hint}")
    return act(context, row, Wish.REPRIORITISE, request.reason, {"priorityClass": name})


def evict(context: Context, row: WorkloadRow, request: EvictRequest) -> tuple[WorkloadRow, bool]:
    """Stops it; it queues again."""
    return act(context, row, Wish.EVICT, request.reason, {"requeueAfter": request.requeue_after})


def _bad_field(field: str, message: str) -> ProblemError:
    errors = [{"field": f"body.{field}", "message": message}]
    return ProblemError(422, "Request is not valid", message, errors=errors)


def get_checks(context: Context, row: WorkloadRow) -> list[Check]:
    """The checks of a workload, with answers that are noted and not carried out yet."""
    return list_checks(context.configuration().compiled, replace(row, checks=_answers(context, row)))


PLACES: Mapping[str, Callable[[Check], Place]] = {
    "name": lambda check: (check.name,),
    "at": lambda check: (check.at.astimezone(UTC).isoformat(timespec="microseconds") if check.at else "", check.name),
}
"""What lists of checks are sorted by: those that have not answered come before all others in time."""


def page_of_checks(context: Context, row: WorkloadRow, sort: str, cursor: str, limit: int) -> Page[Check]:
    """The same in order."""
    page, following = page_by(get_checks(context, row), PLACES, sort, cursor, limit)
    return Page(items=page, next=following)


def get_check(context: Context, row: WorkloadRow, name: str) -> Check:
    """One check of a workload; 404 names those there are."""
    found = {check.name: check for check in get_checks(context, row)}
    if name not in found:
        known = ", ".join(found) or "none"
        raise not_found("check", name, f"checks of queue {row.queue or row.local_queue}: {known}")
    return found[name]


def put_check(context: Context, row: WorkloadRow, name: str, answer: CheckAnswer) -> tuple[Check, bool]:
    """Notes the answer of a check; the same answer again changes nothing."""
    known = get_check(context, row, name)
    if why_not := refusal(row, Wish.CHECK, context.now()):
        raise ProblemError(409, "Nothing to check", f"{row.namespace}/{row.name}: {why_not}")
    said = (known.state.value, known.message, known.requeue_after)
    if said == (answer.state, answer.message, answer.requeue_after):
        return known, not any(each.arguments["check"] == name for each in _pending_answers(context, row))
    arguments = {
        "check": name,
        "state": answer.state,
        "message": answer.message,
        "requeueAfter": answer.requeue_after,
    }
    done = _instruct(context, row, Wish.CHECK, arguments, answer.message)
    return get_check(context, _again(context, row), name), done


def _answers(context: Context, row: WorkloadRow) -> tuple[Any, ...]:
    answers = {check.name: check for check in row.checks}
    for instruction in _pending_answers(context, row):
        name = instruction.arguments["check"]
        answers[name] = answered(answers.get(name), instruction)
    return tuple(answers[name] for name in sorted(answers))


def _pending_answers(context: Context, row: WorkloadRow) -> list[Instruction]:
    """Answers of checks that are noted and not carried out yet."""
    return [each for each in context.store.pending_instructions(row.uid) if each.wish is Wish.CHECK]


def _again(context: Context, row: WorkloadRow) -> WorkloadRow:
    """The workload as it is now; as it was where it has been forgotten meanwhile."""
    return next(iter(context.store.get_workloads([row.uid])), row)


def _instruct(context: Context, row: WorkloadRow, wish: Wish, arguments: Mapping[str, Any], reason: str) -> bool:
    caller = context.caller
    id_ = context.store.instruct(
        row.uid,
        wish,
        arguments,
        who=caller.name,
        reason=reason,
        source=caller.source.value,
        now=context.now(),
        address=caller.address,
    )
    if id_ is None:
        raise not_found("workload", f"{row.namespace}/{row.name}")
    deadline = time.monotonic() + context.patience
    pause = FIRST_PAUSE
    while context.store.instruction_is_pending(id_):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    if why_not := context.store.refusal_of(object_name(row.namespace, row.name), id_):
        why_not = Veil(context, [why_not]).text(why_not)
        raise ProblemError(409, f"Refused to {wish.value}", f"{row.namespace}/{row.name}: {why_not}")
    return True
