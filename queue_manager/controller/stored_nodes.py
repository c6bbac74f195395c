"""Nodes and foreign use in the store, for plans and explanations made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.cluster.clock import Clock
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.picture import Picture
from queue_manager.store.store import Store


class StoredNodes:
    """Gathers the names of nodes that have changed, and saves them when asked."""

    def __init__(self, store: Store, in_thread: InThread, epoch: int, picture: Picture, clock: Clock) -> None:
        self._store = store
        self._in_thread = in_thread
        self._epoch = epoch
        self._picture = picture
        self._clock = clock
        self._changed: set[str] = set()

    async def load(self) -> None:
        """Nodes that went while nobody led are still in the store: each is looked at."""
        self.changed(node.name for node in await self._in_thread(self._store.load_nodes))

    def changed(self, names: Iterable[str]) -> None:
        """These nodes, or what foreign pods take of them, are not any more what the store says."""
        self._changed.update(names)

    async def save(self) -> None:
        """Writes what has changed since the last time."""
        names, self._changed = self._changed, set()
        try:
            rows = {name: self._picture.node_row(name) for name in sorted(names)}
            there = [row for row in rows.values() if row is not None]
            gone = [name for name, row in rows.items() if row is None]
            if rows:
                await self._in_thread(self._store.save_nodes, self._epoch, there, gone, self._clock.now())
        except BaseException:
            self._changed |= names
            raise
