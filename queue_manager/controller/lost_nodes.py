"""Pods whose end nobody will ever report: those on nodes that are deleted or not ready (design, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.port import Object
from queue_manager.controller.node_health import silent_since


def given_up(
    nodes: Iterable[str],
    find: Callable[[str], Object | None],
    draining_since: datetime,
    now: datetime,
    timeout: timedelta,
) -> tuple[str, ...]:
    """The lost nodes of a draining workload whose quota may be released, () while some pod may still be heard of.

    `nodes` are the nodes of its pods that have not ended, "" for a pod that is bound nowhere. Each must have been
    deleted or not ready for `timeout`; a deleted node's time counts from the beginning of draining, as nobody keeps it.
    """
    lost = set()
    for name in nodes:
        node = find(name) if name else None
        if not name or (node is not None and is_ready(node)):
            return ()
        since = max(draining_since, silent_since(node)) if node is not None else draining_since
        if now - since < timeout:
            return ()
        lost.add(name)
    return tuple(sorted(lost))
