"""Whose is a pod? Follows controller owners from Pod to Job to JobSet to TrainJob, in whatever order they are seen."""

from __future__ import annotations

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.port import Object


class Owners:
    """Remembers the owner of each Job and JobSet by uid, also after it is deleted, until nobody asks any more."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._children: dict[str, set[str]] = {}

    def learn(self, obj: Object) -> bool:
        """Notes who controls the object; True when that is news."""
        uid, owner = obj["metadata"].get("uid", ""), controller_of(obj)
        parent = owner["uid"] if owner else ""
        if not parent or self._parent.get(uid) == parent:
            return False
        self.drop(uid)
        self._parent[uid] = parent
        self._children.setdefault(parent, set()).add(uid)
        return True

    def root(self, uid: str) -> str:
        """The topmost owner known from `uid` upwards; `uid` itself when nobody owns it."""
        seen = {uid}
        while (parent := self._parent.get(uid, "")) and parent not in seen:
            seen.add(parent)
            uid = parent
        return uid

    def below(self, uid: str) -> set[str]:
        """All that is known to be owned by `uid`, at any depth."""
        found: set[str] = set()
        todo = [uid]
        while todo:
            news = self._children.get(todo.pop(), set()) - found
            found |= news
            todo += news
        return found

    def drop(self, uid: str) -> None:
        """Forgets who owns `uid`."""
        parent = self._parent.pop(uid, "")
        siblings = self._children.get(parent)
        if siblings is not None:
            siblings.discard(uid)
            if not siblings:
                del self._children[parent]

    def forget(self, root: str) -> None:
        """Drops every chain that ends in `root`."""
        for uid in self.below(root):
            self.drop(uid)
