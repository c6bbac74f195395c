"""`/api/v1/workloads` and what lies below."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from queue_manager.store.listing import NEWEST_FIRST, SORTS
from queue_manager.store.records import State, Wish, WorkloadRow

from ..context import Context, Ctx
from ..fields import Fields, answer, page_of, select
from ..paging import SORTED, Cursor, Limit, Page
from . import actions, pages, service
from .asked import Asked, quick_route
from .schemas import (
    ActionRequest,
    Check,
    CheckAnswer,
    EvictRequest,
    Explanation,
    History,
    MoveRequest,
    ReprioritiseRequest,
    Workload,
)


def _list(context: Context, asked: Asked) -> Response:
    wanted, sort, fields, cursor, limit = asked
    return pages.answer(context, wanted, sort, cursor, limit, select(fields, Workload))


lists = APIRouter(prefix="/workloads", tags=["workloads"], route_class=quick_route(_list))
"""The list by itself: it is asked for more than all else."""
router = APIRouter(prefix="/workloads", tags=["workloads"])

NOTED: dict[int | str, dict[str, Any]] = {202: {"description": "Noted; the leader has yet to carry it out"}}
REFUSED: dict[int | str, dict[str, Any]] = {
    **NOTED,
    409: {"description": "Refused, with the reason: it makes no sense now, or it is not possible"},
}
Word = Annotated[str, Query(max_length=600)]
Kind = Annotated[str, Query(max_length=100, description="When jobs of several kinds have this name")]


@lists.get("", response_model=Page[Workload])
def list_workloads(
    context: Ctx,
    queue: Annotated[str, Query(max_length=600, description="Name or path of a queue")] = "",
    cohort: Annotated[str, Query(max_length=600, description="Name or path of a cohort: every queue below it")] = "",
    state: Annotated[list[State], Query(max_length=20, description="Repeatable")] = [],  # noqa: B006 - read only
    user: Word = "",
    kind: Word = "",
    namespace: Word = "",
    text: Annotated[
        str, Query(max_length=600, description="Part of `namespace/name`, at least three characters of it")
    ] = "",
    sort: Annotated[
        Literal[SORTS],  # type: ignore[valid-type]
        Query(description="With `-` the greatest first. By `finished` only what has ended is listed"),
    ] = NEWEST_FIRST,
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """Workloads, live and ended ones, the newest first unless `sort` says otherwise; every filter narrows the list."""
    wanted = service.Wanted(queue, cohort, tuple(state), user, kind, namespace, text)
    return _list(context, Asked(wanted, sort, fields, cursor, limit))


@router.get("/{namespace}/{name}", response_model=Workload)
def get_workload(context: Ctx, namespace: str, name: str, kind: Kind = "", fields: Fields = "") -> Response:
    """One workload."""
    selection = select(fields, Workload)
    return answer(service.get_workload(context, namespace, name, kind), selection)


@router.get("/{namespace}/{name}/explanation")
def explanation(context: Ctx, namespace: str, name: str, kind: Kind = "") -> Explanation:
    """Why it waits: every blocker with numbers, its position, who holds what is missing."""
    context = context.pinned()
    return service.explain(context, service.get_row(context, namespace, name, kind))


@router.get("/{namespace}/{name}/history")
def history(context: Ctx, namespace: str, name: str, kind: Kind = "") -> History:
    """Its admissions, how each ended, and what people asked of it."""
    return service.history(context, service.get_row(context, namespace, name, kind))


@router.get("/{namespace}/{name}/checks", response_model=Page[Check])
def list_checks(
    context: Ctx,
    namespace: str,
    name: str,
    kind: Kind = "",
    sort: Annotated[Literal["name", "-name", "at", "-at"], SORTED] = "name",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 500,
) -> Response:
    """The checks of its queue, and what they say of it."""
    selection = select(fields, Check)
    row = service.get_row(context, namespace, name, kind)
    found = actions.page_of_checks(context, row, sort, cursor, limit)
    return page_of(found.items, found.next, selection)


@router.get("/{namespace}/{name}/checks/{check}")
def get_check(context: Ctx, namespace: str, name: str, check: str, kind: Kind = "") -> Check:
    """One check; Pending until it answers."""
    return actions.get_check(context, service.get_row(context, namespace, name, kind), check)


@router.put("/{namespace}/{name}/checks/{check}", responses=NOTED)
def put_check(
    context: Ctx, namespace: str, name: str, check: str, said: CheckAnswer, response: Response, kind: Kind = ""
) -> Check:
    """The answer of a check: Ready lets it start, Retry gives its quota back for a while, Rejected for good."""
    row = service.get_row(context, namespace, name, kind)
    found, done = actions.put_check(context, row, check, said)
    response.status_code = 200 if done else 202
    return found


@router.post("/{namespace}/{name}/hold", responses=REFUSED)
def hold(
    context: Ctx, namespace: str, name: str, request: ActionRequest, response: Response, kind: Kind = ""
) -> Workload:
    """Takes it out of its queue, or stops it, until it is released."""
    return _act(context, namespace, name, kind, Wish.HOLD, request, response)


@router.post("/{namespace}/{name}/release", responses=REFUSED)
def release(
    context: Ctx, namespace: str, name: str, request: ActionRequest, response: Response, kind: Kind = ""
) -> Workload:
    """Lets it queue again: held, deactivated, or backing off."""
    return _act(context, namespace, name, kind, Wish.RELEASE, request, response)


@router.post("/{namespace}/{name}/move", responses=REFUSED)
def move(
    context: Ctx, namespace: str, name: str, request: MoveRequest, response: Response, kind: Kind = ""
) -> Workload:
    """Puts it into another queue. One that runs goes on running and is charged there from now on."""
    found = actions.move(context, service.get_row(context, namespace, name, kind), request)
    return _answer(context, response, *found)


@router.post("/{namespace}/{name}/reprioritise", responses=REFUSED)
def reprioritise(
    context: Ctx, namespace: str, name: str, request: ReprioritiseRequest, response: Response, kind: Kind = ""
) -> Workload:
    """Gives it another priority class; one that runs goes on running."""
    found = actions.reprioritise(context, service.get_row(context, namespace, name, kind), request)
    return _answer(context, response, *found)


@router.post("/{namespace}/{name}/evict", responses=REFUSED)
def evict(
    context: Ctx, namespace: str, name: str, request: EvictRequest, response: Response, kind: Kind = ""
) -> Workload:
    """Stops it; it queues again with its old place in time, at once or after a pause."""
    found = actions.evict(context, service.get_row(context, namespace, name, kind), request)
    return _answer(context, response, *found)


def _act(
    context: Ctx, namespace: str, name: str, kind: str, wish: Wish, request: ActionRequest, response: Response
) -> Workload:
    found = actions.act(context, service.get_row(context, namespace, name, kind), wish, request.reason)
    return _answer(context, response, *found)


def _answer(context: Ctx, response: Response, row: WorkloadRow, done: bool) -> Workload:
    response.status_code = 200 if done else 202
    return service.show(context, row)
