"""`queue-manager api`: the REST API and the web page as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import structlog
from prometheus_client import REGISTRY

from api.app import create_app
from api.planning.elsewhere import PlannerElsewhere
from api.shared import Shared
from queue_manager.cli.authentication import authentication_of, is_required, words_on
from queue_manager.cli.errors import CommandError
from queue_manager.cli.logs import configure_logs
from queue_manager.cli.options import ApiOptions
from queue_manager.cli.roles import listen_on, open_store, serve_http, until_signalled
from queue_manager.cli.workers import Given, cores, run_workers
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.garbage import settle_garbage
from queue_manager.store.database import open_database
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)

MOST = 4
"""Processes at most, unless it is said how many: each has its memory and its connections to the database."""
CONNECTIONS = 10
"""To the database, kept open by all processes together; each has five at least."""
GIVES_WAY = 5
"""How much nicer they are than a controller on the same machine: who admits goes before who only reads."""


def run_api(options: ApiOptions) -> None:
    """Serves until SIGINT or SIGTERM. Raises CommandError when it can't start."""
    try:
        is_required(options.auth, options.host)
        listening = listen_on(options.host, options.port)
    except OSError as error:
        raise CommandError(f"can't listen on {options.host}:{options.port}: {error}", "choose another --port") from None
    configure_logs()
    workers = options.workers or min(MOST, cores(Path("/sys/fs/cgroup/cpu.max")))
    with contextlib.closing(listening), open_store(options.database) as store:
        _tell(options, store, listening, workers)
        if workers == 1:
            asyncio.run(until_signalled(_serve(options, store, listening)))
        else:
            run_workers(store.engine, listening, workers, _work, options)


def _tell(options: ApiOptions, store: Store, listening: socket.socket, workers: int) -> None:
    host, port = listening.getsockname()[:2]
    authentication = authentication_of(options.auth, options.host, store)
    log.info("serving", url=f"http://{host}:{port}", authentication=words_on(authentication), processes=workers)


def _work(given: Given, options: ApiOptions) -> None:
    """One of several processes, until SIGINT or SIGTERM."""
    configure_logs()
    os.nice(GIVES_WAY)
    with open_database(given.database, timeout=None, pool_size=max(5, CONNECTIONS // given.workers)) as database:
        planner = PlannerElsewhere(given.planner)
        serving = _serve(options, Store(database.engine), given.listening, given.shared, planner)
        asyncio.run(until_signalled(serving))


async def _serve(
    options: ApiOptions,
    store: Store,
    listening: socket.socket,
    shared: Shared | None = None,
    planner: PlannerElsewhere | None = None,
) -> None:
    reviewer = ApiServer(Credentials.default(options.kubeconfig)) if options.auth.kubernetes else None
    authentication = authentication_of(options.auth, options.host, store, reviewer, shared)
    settle_garbage()
    app = create_app(store, registry=REGISTRY, warm=True, authentication=authentication, shared=shared, planner=planner)
    await serve_http(app, listening, app.state.hub.close)
