"""What the decisions know beyond the request: who we are, whom we trust, and what the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.kinds.kind import PREFIX, QUEUE_LABEL

USER_ANNOTATION = PREFIX + "user"
GROUPS_ANNOTATION = PREFIX + "user-groups"
DEFAULT_QUEUE = "default"
"""The local queue of jobs in managed namespaces that name none."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Names that the current configuration knows."""

    local_queues: frozenset[tuple[str, str]] = frozenset()
    """(namespace, name) of each local queue."""
    queues: frozenset[str] = frozenset()
    topology_levels: frozenset[str] = frozenset()
    """Node label keys of all topologies."""
    priority_classes: frozenset[str] = frozenset()


def no_catalogue() -> Catalogue | None:
    """The provider for a webhook without a configuration: nothing is called unknown."""
    return None


@dataclass(frozen=True, slots=True)
class Rules:
    """What the installation says.

    `identities` are our own user names: their writes are never questioned. `controllers` are user names that may create
    jobs for somebody else (`Settings`). `catalogue` answers None while the configuration can't be read. `queue_labels`
    are the labels that name a queue, ours first, Kueue's as well where they are read.
    """

    identities: frozenset[str] = frozenset()
    controllers: frozenset[str] = frozenset()
    queue_labels: tuple[str, ...] = (QUEUE_LABEL,)
    catalogue: Callable[[], Catalogue | None] = no_catalogue


def service_account(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"
