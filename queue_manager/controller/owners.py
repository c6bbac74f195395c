"""Whose is a pod? Follows controller owners from Pod to Job to JobSet to TrainJob, in whatever order they are seen."""

from __future__ import annotations

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.port import Object


class Owners:
    """Remembers the owner of each Job and JobSet by uid, also after it is deleted, until nobody asks any more."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def learn(self, obj: Object) -> bool:
        """Notes who controls the object; True when that is news."""
        uid, owner = obj["metadata"].get("uid", ""), controller_of(obj)
        parent = owner["uid"] if owner else ""
        if not parent or self._parent.get(uid) == parent:
            return False
        self._parent[uid] = parent
        return True

    def root(self, uid: str) -> str:
        """The topmost owner known from `uid` upwards; `uid` itself when nobody owns it."""
        seen = {uid}
        while (parent := self._parent.get(uid, "")) and parent not in seen:
            seen.add(parent)
            uid = parent
        return uid

    def forget(self, root: str) -> None:
        """Drops every chain that ends in `root`."""
        for uid in [uid for uid in self._parent if self.root(uid) == root]:
            del self._parent[uid]
