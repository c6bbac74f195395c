"""What the decisions know beyond the request: who we are, whom we trust, and what the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.config.compiled import Compiled
from queue_manager.kinds.kind import PREFIX

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
    submitters: frozenset[str] = frozenset()
    """User names that may create jobs for somebody else (`Settings.trustedSubmitters`)."""
    pod_priority_class: str = ""
    """The class of Kubernetes that pods of new Jobs and JobSets get, "" where they keep theirs
    (`Settings.podPriority`)."""


def catalogue_of(compiled: Compiled) -> Catalogue:
    """What a compiled configuration knows."""
    topologies = compiled.configuration.topologies.values()
    return Catalogue(
        local_queues=frozenset(map(_parts, compiled.configuration.local_queues)),
        queues=frozenset(compiled.configuration.queues),
        topology_levels=frozenset(level for topology in topologies for level in topology.levels),
        priority_classes=frozenset(compiled.priority_classes),
        submitters=compiled.settings.trusted_submitters,
        pod_priority_class=compiled.settings.pod_priority_class,
    )


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def no_catalogue() -> Catalogue | None:
    """The provider for a webhook without a configuration: nothing is called unknown."""
    return None


@dataclass(frozen=True, slots=True)
class Rules:
    """What the installation says.

    `identities` are our own user names: their writes are never questioned. `catalogue` answers None while the
    configuration was never read.
    """

    identities: frozenset[str] = frozenset()
    catalogue: Callable[[], Catalogue | None] = no_catalogue

    def may_name_users(self, user: str) -> bool:
        """Whether the user may create jobs for somebody else."""
        catalogue = self.catalogue()
        return catalogue is not None and user in catalogue.submitters


def service_account(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"
