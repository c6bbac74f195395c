"""What each role of the program runs, put together from its parts. `up` runs all of them in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from random import Random

import structlog
import uvicorn
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError
from starlette.types import ASGIApp

from queue_manager.cli.errors import CommandError
from queue_manager.cluster.clock import Backoff, SystemClock
from queue_manager.cluster.credentials import Credentials, CredentialsError
from queue_manager.cluster.port import Cluster
from queue_manager.config.compiled import Compiled, compile_objects
from queue_manager.controller.view import WATCHED_BY_WEBHOOK, ClusterView
from queue_manager.kinds.kind import Kind
from queue_manager.kinds.registry import JOB_KINDS
from queue_manager.store.binaries import EmbeddedError
from queue_manager.store.database import Database, DatabaseError, open_database
from queue_manager.store.grants import upgrade_apart
from queue_manager.store.listen import listen
from queue_manager.store.migrate import upgrade
from queue_manager.store.store import Store
from queue_manager.webhook.certificates import CertificateStore
from queue_manager.webhook.rules import Catalogue, catalogue_of
from queue_manager.webhook.run import Options as WebhookOptions
from queue_manager.webhook.run import run_webhook

log = structlog.get_logger(__name__)

KINDS_BY_GROUP: Mapping[tuple[str, str], Kind] = {(kind.resource.group, kind.resource.kind): kind for kind in JOB_KINDS}


BACKLOG = 512
"""Connections that wait to be accepted."""


def process_name() -> str:
    """Who holds a lease: host (the pod's name in a cluster), pid, and a part that no other start has."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


class _Server(uvicorn.Server):
    """Leaves the signals to the process it is part of. `ending` is called before it waits for what it has begun."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections inherit it; asyncio does not set it on these (see webhook/server.py), and answers would wait 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve_http(app: ASGIApp, listening: socket.socket, ending: Callable[[], None] = lambda: None) -> None:
    """Serves an application until cancelled, then finishes what it has begun (3 s at most), and its lifespan. `ending`
    tells what would go on for ever that it ends."""
    # Addresses in the audit log are the peer's, unless it is a proxy that the admin names.
    proxies = os.environ.get("FORWARDED_ALLOW_IPS", "")
    config = uvicorn.Config(
        app,
        backlog=1,  # of several processes on one socket none takes many connections at once; see startup
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        proxy_headers=bool(proxies),
    )
    server = _Server(config, ending)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise
    finally:
        listening.close()


async def need_credentials(credentials: Credentials) -> None:
    """Raises CommandError when they can't be read at the start; later they are waited for."""
    try:
        await asyncio.to_thread(credentials.access)
    except CredentialsError as error:
        raise CommandError(
            f"can't use the cluster's credentials: {error}", "name a kubeconfig with --kubeconfig FILE or KUBECONFIG"
        ) from error


@contextlib.contextmanager
def open_store(url: str) -> Iterator[Store]:
    """The store at a database URL (or `embedded:DIR`), migrated; waits for a database that is not up.

    Raises CommandError when it can't be used.
    """
    try:
        database = open_database(url, timeout=None)
    except (DatabaseError, EmbeddedError) as error:
        raise CommandError(str(error)) from error
    with database:
        try:
            migrate_database(database, os.environ.get("QM_DATABASE_ADMIN", ""))
        except ProgrammingError as error:
            reason = str(error.orig).splitlines()[0]
            hint = "run `queue-manager db upgrade` as the tables' owner: QM_DATABASE_ADMIN"
            raise CommandError(f"the schema can't be brought to this version: {reason}", hint) from error
        except (DatabaseError, EmbeddedError) as error:
            raise CommandError(str(error)) from error
        yield Store(database.engine)


def migrate_database(database: Database, admin_url: str) -> str:
    """Brings the schema to this version: as the role of `admin_url`, which then owns the tables, if there is one. The
    schema's revision."""
    if not admin_url:
        return upgrade(database.engine)
    role = database.engine.url.username or ""
    with open_database(admin_url) as admin:
        return upgrade_apart(admin.engine, role)


async def until_signalled(work: Awaitable[None]) -> None:
    """Runs `work` until it ends or SIGINT or SIGTERM arrives; then cancels it and waits for it to end in order."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    waiter = asyncio.create_task(stop.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return
    await task


class ConfigurationWatch:
    """The configuration in force, followed by notifications; for roles that only read it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.compiled: Compiled | None = None
        self._catalogue: Catalogue | None = None
        self._reading = asyncio.Lock()
        self._begun = 0

    async def run(self) -> None:
        """Follows changes until cancelled; a database that is away is waited for."""
        await self._look_until_read()
        async for channel in listen(self._store):
            if channel == "queue_manager_configuration":
                await self._look_until_read()

    async def _look_until_read(self) -> None:
        backoff = Backoff(Random())
        while True:
            try:
                return await self._look()
            except SQLAlchemyError as error:
                pause = backoff.next()
                log.warning("configuration not read", error=str(error), retry_seconds=round(pause, 1))
                await asyncio.sleep(pause)

    async def _look(self) -> None:
        """Knows afterwards what was in force when it was called. One reads for all who wait: a look that begins after
        they have called serves them, too."""
        begun = self._begun
        async with self._reading:
            if self._begun == begun:
                self._begun += 1
                await self._read()

    async def _read(self) -> None:
        """The number first: who asks for what isn't there must not cost the whole configuration each time."""
        if self.compiled is not None:
            newest = await asyncio.to_thread(self._store.current_revision)
            if newest <= self.compiled.configuration.revision:
                return
        revision, objects = await asyncio.to_thread(self._store.load_configuration)
        self.compiled = await asyncio.to_thread(compile_objects, objects, revision)
        self._catalogue = catalogue_of(self.compiled)

    def kueue_labels(self) -> str:
        """`Settings.kueueLabels`; Kueue's are left alone while the configuration can't be read."""
        return self.compiled.settings.kueue_labels if self.compiled is not None else "off"

    async def catch_up(self) -> bool:
        """Reads a newer revision that no notification has told of yet; whether more is known now than when it was
        called. What is known stays while the database can't be read."""
        known = self.compiled
        try:
            await self._look()
        except SQLAlchemyError as error:
            log.warning("configuration not read anew", error=str(error))
        return self.compiled is not known

    def catalogue(self) -> Catalogue | None:
        """Names that exist, for admission decisions; None while the configuration can't be read. Asked several times in
        each of them, so it is made once for each revision."""
        return self._catalogue


async def run_webhook_role(
    store: Store, cluster: Cluster, certificates: CertificateStore, options: WebhookOptions
) -> None:
    """The webhook role until cancelled: its watches, the configuration's names, certificates, registration, server."""
    clock = SystemClock()
    view = ClusterView(cluster, clock, Random(), lambda *_: None, WATCHED_BY_WEBHOOK)
    watch = ConfigurationWatch(store)
    view.kueue_labels = watch.kueue_labels
    synced = asyncio.Event()

    async def sync() -> None:
        await view.synced()
        synced.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(view.run())
        group.create_task(watch.run())
        group.create_task(sync())
        group.create_task(
            run_webhook(
                cluster,
                KINDS_BY_GROUP,
                view,
                certificates,
                watch.catalogue,
                clock,
                options,
                ready=synced.is_set,
                refresh=watch.catch_up,
            )
        )
