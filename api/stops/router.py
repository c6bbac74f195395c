"""`/api/v1/stops`, and stopping queues, cohorts, local queues and flavors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response

from ..configuration.schemas import Plan
from ..context import Ctx
from ..fields import Fields, page_of, select
from ..paging import SORTED, Cursor, Limit, Page
from . import service
from .schemas import Stop, StopQuestion, StopRequest

router = APIRouter(tags=["stops"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is none"}}


@router.get("/stops", response_model=Page[Stop])
def list_stops(
    context: Ctx,
    sort: Annotated[Literal["name", "-name", "at", "-at"], SORTED] = "name",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 500,
) -> Response:
    """Everything that is stopped by hand: who did it, when and why. By name: by kind, then namespace and name."""
    selection = select(fields, Stop)
    found = service.list_stops(context, sort, cursor, limit)
    return page_of(found.items, found.next, selection)


@router.post("/queues/{name:path}/stop", responses=NOT_FOUND)
def stop_queue(context: Ctx, name: str, request: StopRequest) -> Stop:
    """Stops a queue, by its name or path, or ends that. Applying a file changes nothing about it."""
    return service.stop(context, "Queue", "", name, request)


@router.post("/cohorts/{name:path}/stop", responses=NOT_FOUND)
def stop_cohort(context: Ctx, name: str, request: StopRequest) -> Stop:
    """Stops every queue below a cohort, by its name or path, or ends that."""
    return service.stop(context, "Cohort", "", name, request)


@router.post("/flavors/{name:path}/stop", responses=NOT_FOUND)
def stop_flavor(context: Ctx, name: str, request: StopRequest) -> Stop:
    """Gives a flavor to nobody any more; with HoldAndDrain what runs on it is evicted."""
    return service.stop(context, "Flavor", "", name, request)


@router.post("/local-queues/{namespace}/{name}/stop", responses=NOT_FOUND)
def stop_local_queue(context: Ctx, namespace: str, name: str, request: StopRequest) -> Stop:
    """Stops what one namespace has in a queue, or ends that."""
    return service.stop(context, "LocalQueue", namespace, name, request)


@router.post("/queues/{name:path}/stop/plan", responses=NOT_FOUND)
async def plan_stop_of_queue(context: Ctx, name: str, question: StopQuestion) -> Plan:
    """Whom it would hurt or help at this moment to stop a queue, or to end that. Changes nothing."""
    return await service.plan(context, "Queue", "", name, question.policy)


@router.post("/cohorts/{name:path}/stop/plan", responses=NOT_FOUND)
async def plan_stop_of_cohort(context: Ctx, name: str, question: StopQuestion) -> Plan:
    """The same for every queue below a cohort."""
    return await service.plan(context, "Cohort", "", name, question.policy)


@router.post("/flavors/{name:path}/stop/plan", responses=NOT_FOUND)
async def plan_stop_of_flavor(context: Ctx, name: str, question: StopQuestion) -> Plan:
    """The same for a flavor."""
    return await service.plan(context, "Flavor", "", name, question.policy)


@router.post("/local-queues/{namespace}/{name}/stop/plan", responses=NOT_FOUND)
async def plan_stop_of_local_queue(context: Ctx, namespace: str, name: str, question: StopQuestion) -> Plan:
    """The same for what one namespace has in a queue."""
    return await service.plan(context, "LocalQueue", namespace, name, question.policy)
