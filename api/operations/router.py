"""`/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from ..context import Ctx
from ..problems import ProblemError

router = APIRouter(tags=["operations"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(context: Ctx, request: Request) -> dict[str, str]:
    """Whether requests can be served: the database answers, and what else the process waits for is done."""
    reason = request.app.state.not_ready()
    if reason:
        raise ProblemError(503, "Not ready", reason)
    try:
        context.revision()
    except SQLAlchemyError as error:
        raise ProblemError(503, "Not ready", f"the database does not answer: {type(error).__name__}") from None
    return {"status": "ok"}


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Metrics of the registry that the process was given."""
    content = await run_in_threadpool(generate_latest, request.app.state.registry)
    return Response(content, media_type=CONTENT_TYPE_LATEST)
