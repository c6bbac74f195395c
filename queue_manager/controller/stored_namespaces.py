"""Labels of namespaces in the store: plans made elsewhere need them to know who may use which queue."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import NAMESPACES
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.view import ClusterView
from queue_manager.store.store import Store


class StoredNamespaces:
    """Saves what the cache has when asked, and when it is not what the store has."""

    def __init__(self, store: Store, in_thread: InThread, epoch: int, view: ClusterView, clock: Clock) -> None:
        self._store = store
        self._in_thread = in_thread
        self._epoch = epoch
        self._view = view
        self._clock = clock
        self._saved: Mapping[str, Mapping[str, str]] | None = None

    async def load(self) -> None:
        """What a leader before this one has saved."""
        self._saved = await self._in_thread(self._store.load_namespaces)

    async def save(self) -> None:
        """Writes all of them if one has changed since the last time."""
        metadata = (namespace["metadata"] for namespace in self._view.all(NAMESPACES))
        labels = {each["name"]: dict(each.get("labels") or {}) for each in metadata}
        if labels != self._saved:
            await self._in_thread(self._store.save_namespaces, self._epoch, labels, self._clock.now())
            self._saved = labels
