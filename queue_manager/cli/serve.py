"""`queue-manager api`: the REST API and the web page as a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import structlog
from prometheus_client import REGISTRY

from api.app import create_app
from queue_manager.cli.authentication import authentication_of, is_required, words_on
from queue_manager.cli.errors import CommandError
from queue_manager.cli.logs import configure_logs
from queue_manager.cli.options import ApiOptions
from queue_manager.cli.roles import listen_on, open_store, serve_http, until_signalled
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.garbage import settle_garbage
from queue_manager.store.store import Store

log = structlog.get_logger(__name__)


def run_api(options: ApiOptions) -> None:
    """Serves until SIGINT or SIGTERM. Raises CommandError when it can't start."""
    try:
        is_required(options.auth, options.host)
        listening = listen_on(options.host, options.port)
    except OSError as error:
        raise CommandError(f"can't listen on {options.host}:{options.port}: {error}", "choose another --port") from None
    configure_logs()
    with contextlib.closing(listening), open_store(options.database) as store:
        asyncio.run(until_signalled(_serve(options, store, listening)))


async def _serve(options: ApiOptions, store: Store, listening: socket.socket) -> None:
    reviewer = ApiServer(Credentials.default(options.kubeconfig)) if options.auth.kubernetes else None
    authentication = authentication_of(options.auth, options.host, store, reviewer)
    host, port = listening.getsockname()[:2]
    settle_garbage()
    log.info("serving", url=f"http://{host}:{port}", authentication=words_on(authentication))
    app = create_app(store, registry=REGISTRY, warm=True, authentication=authentication)
    await serve_http(app, listening, app.state.hub.close)
