"""`/api/v1/tree`, `/api/v1/queues/{name}/usage`, `/api/v1/cohorts/{name}/usage`."""

from __future__ import annotations

from fastapi import APIRouter

from ..context import Ctx
from . import service
from .schemas import NodeUsage, TreeUsage

router = APIRouter(tags=["usage"])


@router.get("/tree")
def tree(context: Ctx) -> TreeUsage:
    """The whole queue tree with usage."""
    return service.read_tree(context)


@router.get("/queues/{name:path}/usage")
def queue_usage(context: Ctx, name: str) -> NodeUsage:
    """Usage of a queue, by its name or path."""
    return service.read_node(context, "Queue", name)


@router.get("/cohorts/{name:path}/usage")
def cohort_usage(context: Ctx, name: str) -> NodeUsage:
    """Usage of everything below a cohort, by its name or path."""
    return service.read_node(context, "Cohort", name)
