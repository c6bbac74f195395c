"""The application: `create_app(store)`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import REGISTRY, CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store

from . import document, problems
from .audit.router import router as audit
from .auth.authentication import Authenticate, Authentication
from .auth.authorisation import authorise
from .auth.decisions import needs_of
from .auth.login import router as login
from .auth.refusals import veiled_problem
from .auth.token_verifier import TokenVerifier
from .configuration.router import router as configuration
from .context import Context, utc_now
from .dashboard.router import router as dashboard
from .dashboard.router import static
from .events.hub import Hub
from .events.router import router as events
from .operations.router import router as operations
from .planning.elsewhere import PlannerElsewhere
from .replays import ReplayedError, Replays, once
from .requests import BodyLimit, RateLimit, RequestIds
from .security import Guard, require_loopback
from .shared import Shared
from .stops.router import router as stops
from .tokens.router import router as tokens
from .usage.router import router as usage
from .workloads.router import lists
from .workloads.router import router as workloads

__all__ = ["create_app", "require_loopback"]


def create_app(
    store: Store,
    *,
    now: Callable[[], datetime] = utc_now,
    registry: CollectorRegistry = REGISTRY,
    not_ready: Callable[[], str] = lambda: "",
    patience: float = 2.0,
    warm: bool = False,
    authentication: Authentication | None = None,
    shared: Shared | None = None,
    planner: PlannerElsewhere | None = None,
) -> FastAPI:
    """REST API and web page over a store.

    `patience` are the seconds that a request waits for the leader to carry out what it asks for.
    `warm`: the process of plans starts, and reads the live state, with the server instead of with the first plan.
    `registry` is what /metrics shows, `not_ready` says why the process is not ready yet ("" when it is). Without
    `authentication` API tokens count and none is needed: whoever serves the application calls `require_loopback` with
    the address first. `shared` and `planner` are of servers that have several processes.
    """
    authentication = authentication or Authentication(verifiers=[TokenVerifier(store, now)])
    context = Context(store, now, patience, shared=shared, planner=planner)
    context.authentication = authentication

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if warm:
            context.planner.warm()
        yield
        app.state.hub.close()
        await run_in_threadpool(context.close)
        await authentication.close()

    app = FastAPI(
        title="Queue Manager",
        version=version("queue-manager"),
        description="Batch queues for AI training on Kubernetes.",
        docs_url=None,
        redoc_url=None,
        responses=problems.RESPONSES,
        dependencies=[Depends(authorise), Depends(once)],
        lifespan=lifespan,
    )
    app.state.context = context
    app.state.hub = Hub(RequestStore(store.engine), shared)
    app.state.registry = registry
    app.state.not_ready = not_ready
    problems.install(app, veiled_problem)
    app.add_exception_handler(ReplayedError, lambda _request, error: error.response)
    app.add_middleware(Replays)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)
    app.add_middleware(Authenticate, authentication=authentication)
    app.add_middleware(BodyLimit)
    app.add_middleware(Guard, hosts=authentication.hosts)
    app.add_middleware(RateLimit, limits=context.limits, buckets=shared)
    app.add_middleware(RequestIds)
    v1 = APIRouter(prefix="/api/v1")
    # Usage before others: its paths end in a word behind names that may contain slashes.
    for router in (lists, usage, stops, configuration, workloads, events, tokens, audit):
        v1.include_router(router)
    app.include_router(v1)
    app.include_router(operations)
    app.include_router(login)
    app.include_router(dashboard)
    app.mount("/static", static, name="static")
    app.state.needs = needs_of(app)
    document.install(app)
    return app
