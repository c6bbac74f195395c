"""JSON of workloads that was made for an answer, for the next ones."""

from __future__ import annotations

import threading
from collections import OrderedDict

from queue_manager.store.listing import Key

Place = tuple[str, int, int, int]
"""(uid, version, revision, second or 0)."""


class Kept:
    """JSON of workloads, the least recently used ones dropped first; about a kilobyte each."""

    def __init__(self, most: int = 30_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._found: OrderedDict[Place, bytes] = OrderedDict()

    def get(self, key: Key, revision: int, second: int) -> bytes | None:
        """The JSON of a workload, if it is kept."""
        with self._lock:
            for place in ((key.uid, key.version, revision, 0), (key.uid, key.version, revision, second)):
                if (found := self._found.get(place)) is not None:
                    self._found.move_to_end(place)
                    return found
        return None

    def put(self, place: Place, content: bytes) -> None:
        """Keeps it."""
        with self._lock:
            self._found[place] = content
            if len(self._found) > self._most:
                self._found.popitem(last=False)
