"""`queue-manager controller` and `queue-manager webhook`: one role a process, as deploy/install.yaml runs them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from random import Random
from urllib.parse import urlsplit

import uvloop
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from queue_manager.cli.logs import configure_logs
from queue_manager.cli.options import ControllerOptions, WebhookOptions
from queue_manager.cli.roles import (
    listen_on,
    need_credentials,
    open_store,
    process_name,
    run_webhook_role,
    serve_http,
    until_signalled,
)
from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.controller import Controller
from queue_manager.controller.metrics import ControllerCollector
from queue_manager.store.store import Store
from queue_manager.webhook.certificate_stores import SecretStore
from queue_manager.webhook.registration import Url
from queue_manager.webhook.run import Options, in_cluster

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def run_controller(options: ControllerOptions) -> None:
    """The controller until SIGTERM; of several, one leads. Raises CommandError when it can't start."""
    configure_logs()
    with (
        contextlib.closing(listen_on(options.host, options.port)) as listening,
        open_store(options.database) as store,
    ):

        async def run() -> None:
            clock = SystemClock()
            credentials = Credentials.default(options.kubeconfig)
            await need_credentials(credentials)
            cluster = ApiServer(credentials)
            controller = Controller(
                store,
                cluster,
                holder=process_name(),
                clock=clock,
                random=Random(),
                lease_namespace=options.namespace,
                events=options.events,
            )
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(controller.run())
                    group.create_task(serve_http(_operations(controller), listening))
            finally:
                await cluster.close()

        uvloop.run(until_signalled(run()))


def _operations(controller: Controller) -> Starlette:
    """/metrics, /healthz and /readyz of a controller."""
    registry = CollectorRegistry()
    registry.register(ControllerCollector(controller))

    def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=METRICS_TYPE)

    def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def ready(request: Request) -> Response:
        return PlainTextResponse("ok\n") if controller.ready else PlainTextResponse("catching up\n", 503)

    routes: Mapping[str, object] = {"/metrics": metrics, "/healthz": health, "/readyz": ready}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in routes.items()])  # type: ignore[arg-type]


def run_webhook(options: WebhookOptions) -> None:
    """The webhook until SIGTERM; any number of replicas. Raises CommandError when it can't start."""
    configure_logs()
    with open_store(options.database) as store:
        uvloop.run(until_signalled(_webhook(options, store)))


async def _webhook(options: WebhookOptions, store: Store) -> None:
    credentials = Credentials.default(options.kubeconfig)
    await need_credentials(credentials)
    cluster = ApiServer(credentials)
    where = in_cluster(options.namespace, options.host, options.port)
    if options.url:
        names = (*where.names, urlsplit(options.url).hostname or "localhost")
        where = Options(names, where.host, where.port, lambda port: Url(options.url), where.selection)
    try:
        await run_webhook_role(store, cluster, SecretStore(cluster, options.namespace), where)
    finally:
        await cluster.close()
