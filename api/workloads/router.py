"""`/api/v1/workloads` and what lies below."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from queue_manager.store.records import State

from ..context import Ctx
from ..paging import Cursor, Limit, Page
from . import service
from .schemas import Explanation, Workload

router = APIRouter(prefix="/workloads", tags=["workloads"])

Word = Annotated[str, Query(max_length=600)]
Kind = Annotated[str, Query(max_length=100, description="When jobs of several kinds have this name")]


@router.get("")
def list_workloads(
    context: Ctx,
    queue: Annotated[str, Query(max_length=600, description="Name or path of a queue")] = "",
    cohort: Annotated[str, Query(max_length=600, description="Name or path of a cohort: every queue below it")] = "",
    state: Annotated[list[State], Query(max_length=20, description="Repeatable")] = [],  # noqa: B006 - read only
    user: Word = "",
    kind: Word = "",
    namespace: Word = "",
    text: Annotated[str, Query(max_length=600, description="Part of the name")] = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Page[Workload]:
    """Workloads, newest first; every filter narrows the list."""
    wanted = service.Wanted(queue, cohort, tuple(state), user, kind, namespace, text)
    return service.list_workloads(context, wanted, cursor, limit)


@router.get("/{namespace}/{name}")
def get_workload(context: Ctx, namespace: str, name: str, kind: Kind = "") -> Workload:
    """One workload."""
    return service.get_workload(context, namespace, name, kind)


@router.get("/{namespace}/{name}/explanation")
def explanation(context: Ctx, namespace: str, name: str, kind: Kind = "") -> Explanation:
    """Why it waits: every blocker with numbers, its position, who holds what is missing."""
    return service.explain(context, service.get_row(context, namespace, name, kind))
