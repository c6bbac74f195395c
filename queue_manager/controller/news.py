"""Watch events that say nothing new: heartbeats of nodes, and the echoes of our own messages on job objects."""

from __future__ import annotations

from queue_manager.cluster.port import Object
from queue_manager.kinds.kind import PREFIX

_BOOKKEEPING = frozenset({"resourceVersion", "generation", "managedFields", "annotations"})
_MESSAGES = frozenset({PREFIX + "state", PREFIX + "message"})
"""Annotations that are for people alone: nothing is decided by them."""


def differs(new: Object, old: Object) -> bool:
    """Whether anything has changed by which somebody here decides. For nodes and job objects."""
    if new.get("spec") != old.get("spec") or new.get("status") != old.get("status"):
        return True
    after, before = new["metadata"], old["metadata"]
    names = (after.keys() | before.keys()) - _BOOKKEEPING
    return any(after.get(name) != before.get(name) for name in names) or said(new) != said(old)


def said(obj: Object) -> dict[str, str]:
    """The annotations by which something is decided."""
    return {key: text for key, text in (obj["metadata"].get("annotations") or {}).items() if key not in _MESSAGES}
