"""The webhook as one role: server, certificates and registration, started and stopped in the right order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import Cluster
from queue_manager.kinds.kind import Lookup
from queue_manager.kinds.kueue_keys import queue_labels
from queue_manager.webhook.certificates import CertificateStore, service_names
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.owners import Unwatched, reader
from queue_manager.webhook.registration import Selection, Target, installed, register, unregister
from queue_manager.webhook.rules import Catalogue, Rules
from queue_manager.webhook.scope import Kinds
from queue_manager.webhook.server import Refresh, WebhookServer, application, nothing_newer
from queue_manager.webhook.tls import Tls
from queue_manager.webhook.upkeep import Publish, Upkeep


@dataclass(frozen=True, slots=True)
class Options:
    """`names` are those the certificate is for. `target` makes what is registered of the port that is listened on; None
    registers nothing. `leave_registered` is for replicas: what one of them registered the others need."""

    names: Sequence[str]
    host: str = "0.0.0.0"
    port: int = 8443
    target: Callable[[int], Target] | None = None
    selection: Selection = field(default_factory=Selection)
    leave_registered: bool = True


def in_cluster(namespace: str, host: str = "0.0.0.0", port: int = 8443) -> Options:
    """The options of a replica that runs in this namespace, installed from deploy/install.yaml."""
    service, selection = installed(namespace)
    return Options(service_names(service.name, namespace), host, port, lambda port: service, selection)


async def run_webhook(
    cluster: Cluster,
    kinds: Kinds,
    lookup: Lookup,
    certificates: CertificateStore,
    catalogue: Callable[[], Catalogue | None],
    clock: Clock,
    options: Options,
    ready: Callable[[], bool] = lambda: True,
    started: Callable[[int], None] = lambda port: None,
    refresh: Refresh = nothing_newer,
) -> None:
    """Serves until cancelled, then finishes what it has begun. Jobs are not asked of the `lookup`: owners are read from
    the API server.

    `ready` adds a condition to `/readyz` (the lookup has caught up), `started` is told the port; `refresh` reads
    the catalogue anew before a refusal stands. Raises: OSError when the address is taken.
    """
    rules = Rules(frozenset(options.selection.identities), catalogue=catalogue)
    tls = Tls()
    jobs = frozenset(kind.resource for kind in kinds.values())
    decider = Decider(kinds, Unwatched(lookup, jobs), rules)
    app = application(decider, lambda: tls.loaded and ready(), refresh, reader(cluster))
    server = WebhookServer(app, tls, options.host, options.port)
    target = options.target(server.port) if options.target is not None else None

    def selection() -> Selection:
        return replace(options.selection, queue_labels=queue_labels(lookup))

    publish = _publisher(cluster, target, selection, clock, ready) if target is not None else None
    upkeep = Upkeep(certificates, options.names, tls, publish, clock, selection)
    started(server.port)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(upkeep.run())
            group.create_task(_until_done(serving))
    finally:
        # In this order, so that the API server never waits for one that is gone.
        if target is not None and not options.leave_registered:
            await unregister(cluster)
        server.stop()
        await serving


def _publisher(
    cluster: Cluster, target: Target, selection: Callable[[], Selection], clock: Clock, ready: Callable[[], bool]
) -> Publish:
    async def publish(bundle: bytes) -> bool:
        # From the registration on the API server refuses what we don't answer.
        while not ready():
            await clock.sleep(0.1)
        return await register(cluster, target, bundle, selection())

    return publish


async def _until_done(task: asyncio.Task[None]) -> None:
    """Passes a failure on; a cancellation does not reach the task."""
    await asyncio.shield(task)
