"""Whose a namespace is: who may make local queues there (docs/decisions/0011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from queue_manager.config.models import ConfigObject, LocalQueue, Settings

from .access import Access, keys_of
from .roles import Role

if TYPE_CHECKING:
    from ..context import Context


def not_theirs(context: Context, access: Access, objects: Iterable[ConfigObject], namespace: str) -> str:
    """Why the admin of a subtree may not make a local queue in a namespace, "" where they may: whoever names a queue
    there would be led into theirs. `objects` are those before the change."""
    policy, there = "Unclaimed", False
    for item in objects:
        if isinstance(item, Settings):
            policy = item.spec.access.namespaces
        elif isinstance(item, LocalQueue) and item.metadata.namespace == namespace:
            there = True
            keys = keys_of(item, access.tree)
            if not keys or not access.may(Role.QUEUE_ADMIN, keys[0]):
                return _taken(namespace)
    if any(not access.may(Role.QUEUE_ADMIN, ("Queue", queue)) for queue in _queues_of_jobs(context, namespace)):
        return _taken(namespace)
    if policy == "Platform" and not there:
        return f"the namespace {namespace!r} is new to the subtree: a platform admin makes its first local queue"
    return ""


def _taken(namespace: str) -> str:
    return (
        f"the namespace {namespace!r} has local queues or jobs of queues outside of where you have the role "
        f"{Role.QUEUE_ADMIN.word}: only somebody who has it at all of them makes one there"
    )


def _queues_of_jobs(context: Context, namespace: str) -> frozenset[str]:
    """Queues of its jobs that have not ended; a job that names no queue that is there is of nobody."""
    return context.store.access.queues_of_namespace(namespace) - {""}
