"""Whether a Kueue is installed beside us: its labels and annotations are left to it then (`Settings.kueueLabels`)."""

from __future__ import annotations

import asyncio
from random import Random

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import CRDS, MUTATING_WEBHOOKS, Cluster, Object, Query, Resource
from queue_manager.cluster.reflector import Handler, Reflector

log = structlog.get_logger(__name__)

SIGNS: tuple[tuple[Resource, Query], ...] = (
    (CRDS, Query(field_selector="metadata.name=clusterqueues.kueue.x-k8s.io")),
    (MUTATING_WEBHOOKS, Query(field_selector="metadata.name=kueue-mutating-webhook-configuration")),
)
"""One of them is enough: a Helm release of another name calls its webhooks otherwise, and where only the webhooks are
left it still is the one that suspends jobs."""


class KueueSigns:
    """Watches for the signs. What we have no rights to see counts as absent."""

    def __init__(self, cluster: Cluster, clock: Clock, random: Random, on_event: Handler) -> None:
        self.reflectors = tuple(
            Reflector(
                cluster,
                resource,
                clock=clock,
                random=random,
                query=query,
                project=_name_only,
                on_event=on_event,
                optional=True,
            )
            for resource, query in SIGNS
        )

    @property
    def installed(self) -> bool:
        """Whether one of the signs is there."""
        return any(len(reflector.cache) for reflector in self.reflectors)

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Returns once all that can be seen has been seen."""
        for reflector, (resource, query) in zip(self.reflectors, SIGNS, strict=True):
            await reflector.synced.wait()
            if not reflector.available:
                log.warning(
                    "no right to see whether Kueue is installed: taken as absent (kueueLabels: auto)",
                    resource=f"{resource.plural}.{resource.group}",
                    name=query.field_selector.removeprefix("metadata.name="),
                )


def _name_only(obj: Object) -> Object:
    """The schemas of a CRD are long, and nothing of them is needed."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
