"""`queue-manager api`: the REST API and the web page as a process of their own."""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from prometheus_client import REGISTRY

from api.app import create_app
from api.security import require_loopback
from queue_manager.cli.errors import CommandError
from queue_manager.cli.logs import configure_logs
from queue_manager.cli.options import ApiOptions
from queue_manager.cli.roles import listen_on, open_store, serve_http, until_signalled

log = structlog.get_logger(__name__)


def run_api(options: ApiOptions) -> None:
    """Serves until SIGINT or SIGTERM. Raises CommandError when it can't start."""
    try:
        require_loopback(options.host)
        listening = listen_on(options.host, options.port)
    except ValueError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"can't listen on {options.host}:{options.port}: {error}", "choose another --port") from None
    configure_logs()
    with contextlib.closing(listening), open_store(options.database) as store:
        host, port = listening.getsockname()[:2]
        log.info("serving", url=f"http://{host}:{port}", authentication="none yet, so on loopback only")
        asyncio.run(until_signalled(serve_http(create_app(store, registry=REGISTRY, warm=True), listening)))
