"""`/api/v1/workloads` and what lies below."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

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


def _row_of(context: Ctx, namespace: str, name: str, kind: Kind = "") -> WorkloadRow:
    return service.get_row(context, namespace, name, kind)


Row = Annotated[WorkloadRow, Depends(_row_of)]
"""The workload of the URL."""


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
def history(context: Ctx, row: Row) -> History:
    """Its admissions, how each ended, and what people asked of it."""
    return service.history(context, row)


@router.get("/{namespace}/{name}/checks", response_model=Page[Check])
def list_checks(
    context: Ctx,
    row: Row,
    sort: Annotated[Literal["name", "-name", "at", "-at"], SORTED] = "name",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 500,
) -> Response:
    """The checks of its queue, and what they say of it."""
    selection = select(fields, Check)
    found = actions.page_of_checks(context, row, sort, cursor, limit)
    return page_of(found.items, found.next, selection)


@router.get("/{namespace}/{name}/checks/{check}")
def get_check(context: Ctx, row: Row, check: str) -> Check:
    """One check; Pending until it answers."""
    return actions.get_check(context, row, check)


@router.put("/{namespace}/{name}/checks/{check}", responses=NOTED)
def put_check(context: Ctx, row: Row, check: str, said: CheckAnswer, response: Response) -> Check:
    """The answer of a check: Ready lets it start, Retry gives its quota back for a while, Rejected for good."""
    found, done = actions.put_check(context, row, check, said)
    response.status_code = 200 if done else 202
    return found


@router.post("/{namespace}/{name}/hold", responses=REFUSED)
def hold(context: Ctx, row: Row, request: ActionRequest, response: Response) -> Workload:
    """Takes it out of its queue, or stops it, until it is released."""
    return _answer(context, response, *actions.act(context, row, Wish.HOLD, request.reason))


@router.post("/{namespace}/{name}/release", responses=REFUSED)
def release(context: Ctx, row: Row, request: ActionRequest, response: Response) -> Workload:
    """Lets it queue again: held, deactivated, or backing off."""
    return _answer(context, response, *actions.act(context, row, Wish.RELEASE, request.reason))


@router.post("/{namespace}/{name}/move", responses=REFUSED)
def move(context: Ctx, row: Row, request: MoveRequest, response: Response) -> Workload:
    """Puts it into another queue. One that runs goes on running and is charged there from now on."""
    return _answer(context, response, *actions.move(context, row, request))


@router.post("/{namespace}/{name}/reprioritise", responses=REFUSED)
def reprioritise(context: Ctx, row: Row, request: ReprioritiseRequest, response: Response) -> Workload:
    """Gives it another priority class; one that runs goes on running."""
    return _answer(context, response, *actions.reprioritise(context, row, request))


@router.post("/{namespace}/{name}/evict", responses=REFUSED)
def evict(context: Ctx, row: Row, request: EvictRequest, response: Response) -> Workload:
    """Stops it; it queues again with its old place in time, at once or after a pause."""
    return _answer(context, response, *actions.evict(context, row, request))


def _answer(context: Ctx, response: Response, row: WorkloadRow, done: bool) -> Workload:
    response.status_code = 200 if done else 202
    return service.show(context, row)
