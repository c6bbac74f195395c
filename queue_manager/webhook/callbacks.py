"""The decisions as admission callbacks of the simulated cluster, as if the webhook were registered there."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.cluster.port import Object
from queue_manager.cluster.simulated.admission import AdmissionRequest, denied
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.registration import NAME
from queue_manager.webhook.review import GroupKind, Request, User


class Callbacks:
    """`mutator` and `validator` go into the simulated API server's lists; `managed` tells whether a namespace is."""

    def __init__(self, decider: Decider, managed: Callable[[str], bool]) -> None:
        self._decider = decider
        self._managed = managed

    def mutator(self, asked: AdmissionRequest) -> list[Object]:
        """JSON Patch operations. Raises ApiError 403."""
        verdict = self._decider.mutate(self._request(asked))
        if verdict.refused:
            raise denied(NAME, verdict.refused)
        return verdict.patch

    def validator(self, asked: AdmissionRequest) -> None:
        """Raises ApiError 403 when the request is refused."""
        verdict = self._decider.validate(self._request(asked))
        if verdict.refused:
            raise denied(NAME, verdict.refused)

    def _request(self, asked: AdmissionRequest) -> Request:
        resource = asked.resource
        return Request(
            uid="",
            kind=GroupKind(resource.kind, resource.version, resource.group),
            # Registered for whole objects only, not for their status.
            operation=asked.operation if not asked.subresource else "",
            name=asked.name,
            namespace=asked.namespace,
            user_info=User(asked.user, asked.groups),
            object=asked.object,
            old_object=asked.old_object,
            managed_namespace=self._managed(asked.namespace),
        )
