"""`queue-manager up`: all roles in one process; embedded database and simulated cluster unless told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from api.app import create_app
from api.configuration.service import apply_text
from api.context import Context
from api.security import is_loopback
from queue_manager.cli.authentication import authentication_of, first_token, is_required, words_on
from queue_manager.cli.demo import DemoView, play
from queue_manager.cli.errors import CommandError
from queue_manager.cli.live import run_live
from queue_manager.cli.logs import configure_logs
from queue_manager.cli.options import ClusterKind, UpOptions
from queue_manager.cli.roles import (
    KINDS_BY_GROUP,
    ConfigurationWatch,
    listen_on,
    need_credentials,
    open_store,
    process_name,
    run_webhook_role,
    serve_http,
    until_signalled,
)
from queue_manager.cli.submitted import submit
from queue_manager.cli.target import token_for
from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import CRDS, NAMESPACES, Cluster
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.simulated.fleet import install
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.controller import Controller
from queue_manager.controller.metrics import ControllerCollector
from queue_manager.controller.view import WATCHED, ClusterView
from queue_manager.kinds.kind import MANAGED_LABEL
from queue_manager.store.store import Store
from queue_manager.webhook.callbacks import Callbacks
from queue_manager.webhook.certificate_stores import FolderStore
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.registration import RESOURCES, Selection, Url
from queue_manager.webhook.rules import Rules
from queue_manager.webhook.run import Options as WebhookOptions

log = structlog.get_logger(__name__)

DATA = ".queue-manager"


def run_up(options: UpOptions) -> None:
    """Runs until Ctrl-C or SIGTERM, then stops everything in order. Raises CommandError when it can't start."""
    data = Path(options.data or DATA).absolute()
    live = options.demo and sys.stdout.isatty()
    configure_logs(data / "queue-manager.log" if live else None)
    is_required(options.auth, options.host)
    try:
        data.mkdir(parents=True, exist_ok=True)
        listening = listen_on(options.host, options.port)
    except OSError as error:
        raise CommandError(
            f"can't start: {error}", "choose another port with --port, another folder with --data"
        ) from error
    if live:
        print(f"starting on http://{options.host}:{listening.getsockname()[1]}, data in {data} ...", flush=True)
    with open_store(options.database or f"embedded:{data / 'database'}") as store, contextlib.closing(listening):
        asyncio.run(until_signalled(_up(options, store, data, listening)))


async def _up(options: UpOptions, store: Store, data: Path, listening: socket.socket) -> None:
    clock, random = SystemClock(), Random()
    simulated = SimulatedCluster(clock, random) if options.cluster is ClusterKind.SIMULATED else None
    credentials = Credentials.default(options.kubeconfig)
    if simulated is None:
        await need_credentials(credentials)
    cluster: Cluster = simulated or ApiServer(credentials)
    controller = Controller(store, cluster, holder=process_name(), clock=clock, random=random)
    registry = CollectorRegistry()
    registry.register(ControllerCollector(controller))
    url = f"http://{_shown_host(options.host)}:{listening.getsockname()[1]}"
    # The API closes what it asks about tokens when it ends, so that is a connection of its own.
    reviewer = simulated or (ApiServer(credentials) if options.auth.kubernetes else None)
    authentication = authentication_of(options.auth, options.host, store, reviewer)
    await asyncio.to_thread(first_token, store, url, required=authentication.required)
    try:
        async with asyncio.TaskGroup() as group:
            if simulated is not None:
                _prepare(simulated, store, demo=options.demo)
                group.create_task(_admit_in_process(simulated, store, clock))
                group.create_task(simulated.run())
                if options.demo:
                    group.create_task(play(simulated, random))
                if options.jobs:
                    group.create_task(submit(simulated, Path(options.jobs)))
            elif options.webhook_url or await _is_here(credentials):
                group.create_task(_webhook(store, cluster, options, data))
            else:
                log.warning(
                    "the API server is remote and can't call a webhook here: unadmitted jobs are suspended on sight"
                    " (give --webhook-url when it can reach this machine)"
                )
            group.create_task(controller.run())
            app = create_app(
                store,
                authentication=authentication,
                registry=registry,
                warm=True,
                not_ready=lambda: "" if controller.ready else "catching up",
            )
            group.create_task(serve_http(app, listening, app.state.hub.close))
            log.info("serving", url=url, authentication=words_on(authentication))
            if options.demo:
                group.create_task(_show(DemoView(url, token_for(url) if authentication.required else "")))
    finally:
        await cluster.close()


def _shown_host(host: str) -> str:
    """An address by which this machine reaches what listens on `host`."""
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _prepare(cluster: SimulatedCluster, store: Store, *, demo: bool) -> None:
    install(cluster)
    if demo and store.load_configuration()[0] == 0:
        text = files("queue_manager.cli").joinpath("demo.yaml").read_text()
        apply_text(Context(store, lambda: datetime.now(UTC)), text, file="demo.yaml", reason="the demo's configuration")


async def _admit_in_process(cluster: SimulatedCluster, store: Store, clock: SystemClock) -> None:
    """The webhook's decisions as callbacks of the simulated API server."""
    # These decisions can't wait for what is read: owners are watched, in this process.
    watched = {resource: WATCHED[resource] for resource in (CRDS, *RESOURCES)}
    view = ClusterView(cluster, clock, Random(), lambda *_: None, watched)
    watch = ConfigurationWatch(store)
    view.kueue_labels = watch.kueue_labels
    decider = Decider(KINDS_BY_GROUP, view, Rules(frozenset({cluster.user}), catalogue=watch.catalogue))
    callbacks = Callbacks(decider, lambda namespace: _is_managed(cluster, namespace))
    cluster.state.mutators.append(callbacks.mutator)
    cluster.state.validators.append(callbacks.validator)
    async with asyncio.TaskGroup() as group:
        group.create_task(view.run())
        group.create_task(watch.run())


def _is_managed(cluster: SimulatedCluster, namespace: str) -> bool:
    labels = cluster.state.get(NAMESPACES, "", namespace)["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_LABEL) == "true")


async def _is_here(credentials: Credentials) -> bool:
    """Whether the API server runs on this machine, so that it can call a webhook on loopback."""
    access = await asyncio.to_thread(credentials.access)
    return is_loopback(urlsplit(access.host).hostname or "")


async def _webhook(store: Store, cluster: Cluster, options: UpOptions, data: Path) -> None:
    url = options.webhook_url
    host = (urlsplit(url).hostname if url else "") or "127.0.0.1"
    names = tuple(dict.fromkeys((host, "localhost", "127.0.0.1")))
    webhook = WebhookOptions(
        names,
        host="0.0.0.0" if url else "127.0.0.1",
        port=(urlsplit(url).port or 443) if url else 0,
        target=lambda port: Url(url or f"https://127.0.0.1:{port}"),
        selection=Selection(),
        leave_registered=False,
    )
    await run_webhook_role(store, cluster, FolderStore(data / "certificates"), webhook)


async def _show(view: DemoView) -> None:
    """The live view in a thread of its own, until cancelled."""
    stop = threading.Event()
    thread = threading.Thread(target=run_live, args=(view.snapshot, stop), daemon=True, name="live view")
    thread.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, 2.0)
