"""What is measured: our processes on the test control plane, with a PostgreSQL of their own that syncs its writes."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import sync_write, with_children
from benchmarks.report import percentile
from queue_manager.store import migrate
from queue_manager.store.database import make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.store import Store
from tests.control_plane import versions
from tests.control_plane.client import NAMESPACE
from tests.control_plane.cluster import ControlPlane
from tests.e2e.product import Product

BARE: Mapping[str, Any] = {
    "controller_manager": False,
    "scheduler": False,
    "kwok": False,
    "jobset": False,
    "trainer": False,
}
"""An API server without any controller but ours."""


class NotBuilt(Exception):
    """The test control plane is missing."""


@dataclass(slots=True)
class World:
    """All parts of one installation."""

    cluster: ControlPlane
    database: EmbeddedPostgres
    product: Product
    store: Store
    sync_write_ms: float
    round_trip_ms: float

    def floor(self) -> str:
        """What a commit and a request at least cost here."""
        return (
            f"PostgreSQL with fsync: one synced write takes {self.sync_write_ms:.2f} ms here,"
            f" one GET at the idle API server {self.round_trip_ms:.2f} ms"
        )

    def processes(self) -> Mapping[str, list[int]]:
        """Process ids by part; call it while our processes run."""
        parts = {name: [process._popen.pid] for name, process in self.cluster.processes.items()}
        parts["postgres"] = with_children(self.database.pid or 0)
        for role in (self.product.controller, self.product.webhook):
            if role.process is not None:
                parts[f"our {role.name}"] = [role.process.pid]
        return parts


@contextlib.contextmanager
def world(
    keep: Path | None = None, prepare: Callable[[ControlPlane], None] | None = None, **parts: Any
) -> Iterator[World]:
    """Starts control plane and database in a folder of their own (`keep` stays); our processes are not started yet.

    `prepare` fills the cluster before our webhooks are registered; `parts` go to `ControlPlane.start`. Raises NotBuilt.
    """
    if missing := versions.missing_parts():
        raise NotBuilt(f"the control plane is not built ({', '.join(missing)}): python -m tests.control_plane.build")
    with contextlib.ExitStack() as stack:
        if keep is None:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="qm-bench-", ignore_cleanup_errors=True))
            )
        else:
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=keep))
        cluster = stack.enter_context(ControlPlane.start(folder / "cluster", **parts))
        if prepare is not None:
            prepare(cluster)
        database = stack.enter_context(EmbeddedPostgres(folder / "database"))
        engine = make_engine(database.url)
        stack.callback(engine.dispose)
        migrate.upgrade(engine)
        store = Store(engine)
        product = Product(cluster, store, database.url, folder)
        yield World(cluster, database, product, store, sync_write(folder), _round_trip(cluster))


def _round_trip(cluster: ControlPlane) -> float:
    """Milliseconds of a GET of a small object over an open connection, the median of 50."""
    samples = []
    for _ in range(50):
        started = time.perf_counter()
        cluster.client.get(NAMESPACE, "default")
        samples.append(time.perf_counter() - started)
    return 1000 * percentile(samples, 50)


def create_all(
    cluster: ControlPlane, objects: Iterable[dict[str, Any]], namespace: str | None = None
) -> list[dict[str, Any]]:
    """Creates objects over a few connections at a time; what the server stored, in the given order."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda obj: cluster.client.create(obj, namespace), objects))
