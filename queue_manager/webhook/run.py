"""The webhook as one role: server, certificates, registration, and what it knows of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import Cluster
from queue_manager.config.compiled import Compiled
from queue_manager.kinds.kind import Lookup
from queue_manager.webhook.certificates import CertificateStore, service_names
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.registration import Selection, Target, installed, register, unregister
from queue_manager.webhook.rules import Catalogue, Rules, catalogue_of
from queue_manager.webhook.scope import Kinds
from queue_manager.webhook.server import WebhookServer, application
from queue_manager.webhook.tls import Tls
from queue_manager.webhook.upkeep import Publish, Upkeep

RELOAD = 5.0
"""Seconds between two looks at the configuration; it only makes warnings and checks of levels."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """`names` are those the certificate is for. With `target` None nothing is registered. `leave_registered` is for
    replicas: what one of them registered the others need."""

    names: Sequence[str]
    host: str = "0.0.0.0"
    port: int = 8443
    target: Target | None = None
    selection: Selection = field(default_factory=Selection)
    leave_registered: bool = True


def in_cluster(namespace: str, port: int = 8443) -> Options:
    """The options of a replica that runs in this namespace, installed from deploy/install.yaml."""
    service, selection = installed(namespace)
    return Options(service_names(service.name, namespace), port=port, target=service, selection=selection)


class Configuration:
    """The catalogue of the newest configuration that could be read."""

    def __init__(self, load: Callable[[], Compiled], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._catalogue: Catalogue | None = None

    def __call__(self) -> Catalogue | None:
        return self._catalogue

    async def run(self) -> None:
        """Reads again and again; while that fails the last one holds, and the database is not needed to admit jobs."""
        while True:
            try:
                self._catalogue = catalogue_of(await asyncio.to_thread(self._load))
            except Exception as error:
                log.warning("the configuration can't be read", error=str(error))
            await self._clock.sleep(RELOAD)


async def run_webhook(
    cluster: Cluster,
    kinds: Kinds,
    lookup: Lookup,
    certificates: CertificateStore,
    load: Callable[[], Compiled],
    clock: Clock,
    options: Options,
    ready: Callable[[], bool] = lambda: True,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Serves until cancelled, then finishes what it has begun.

    `ready` adds a condition to `/readyz` (the lookup has caught up), `started` is told the port. Raises: OSError when
    the address is taken.
    """
    configuration = Configuration(load, clock)
    rules = Rules(frozenset(options.selection.identities), options.selection.queue_labels, catalogue=configuration)
    tls = Tls()
    app = application(Decider(kinds, lookup, rules), lambda: tls.loaded and ready())
    server = WebhookServer(app, tls, options.host, options.port)
    publish = _publisher(cluster, options, clock, ready)
    upkeep = Upkeep(certificates, options.names, tls, publish, clock)
    started(server.port)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(configuration.run())
            group.create_task(upkeep.run())
            group.create_task(_until_done(serving))
    finally:
        # In this order, so that the API server never waits for one that is gone.
        if options.target is not None and not options.leave_registered:
            await unregister(cluster)
        server.stop()
        await serving


def _publisher(cluster: Cluster, options: Options, clock: Clock, ready: Callable[[], bool]) -> Publish | None:
    """Registers `options.target`; None when there is none."""
    target = options.target
    if target is None:
        return None

    async def publish(bundle: bytes) -> bool:
        # From the registration on the API server refuses what we don't answer.
        while not ready():
            await clock.sleep(0.1)
        return await register(cluster, target, bundle, options.selection)

    return publish


async def _until_done(task: asyncio.Task[None]) -> None:
    """Passes a failure on; a cancellation does not reach the task."""
    await asyncio.shield(task)
