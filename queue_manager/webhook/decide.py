"""Admission decisions as pure functions: asked by the HTTPS server, and by the simulated cluster as callbacks."""

from __future__ import annotations

from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import Object
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.kind import Kind, Lookup, Unresolvable
from queue_manager.webhook.mutation import mutate_job
from queue_manager.webhook.owners import OfRequest
from queue_manager.webhook.review import Request, Verdict
from queue_manager.webhook.rules import Rules
from queue_manager.webhook.scope import Kinds, is_child, queue_of
from queue_manager.webhook.validation import AnnotationCheck, validate_job

ALLOWED = Verdict()


class Decider:
    """Decides on requests about jobs of the given kinds; everything else is allowed unseen."""

    def __init__(
        self, kinds: Kinds, lookup: Lookup, rules: Rules, check: AnnotationCheck = kueue_keys.validate
    ) -> None:
        self._kinds = kinds
        self._lookup = lookup
        self._rules = rules
        self._check = check

    def mutate(self, request: Request) -> Verdict:
        """On CREATE of a managed top-level job: suspended, our entry, and the user who asks."""
        obj, kind = self._subject(request)
        if obj is None or kind is None or request.operation != "CREATE":
            return ALLOWED
        lookup = self._lookup_for(request)
        if self._skipped(request, obj, lookup):
            return ALLOWED
        try:
            return mutate_job(request, obj, kind, self._rules, lookup)
        except Unresolvable as error:
            # It can't be told how this job is held back, so it must not be there.
            return Verdict(refused=error.message)

    def validate(self, request: Request) -> Verdict:
        """On CREATE and UPDATE of a job that is managed, or was before the request; our own writes always pass."""
        obj, kind = self._subject(request)
        if obj is None or kind is None or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        if request.user_info.username in self._rules.identities or is_leaving(obj):
            return ALLOWED
        old = _with_namespace(request.old_object, request.namespace) if request.operation == "UPDATE" else None
        # Judged by its old self on an update: an owner reference added now takes nothing out of our sight.
        lookup = self._lookup_for(request)
        if self._skipped(request, old or obj, lookup) and (old is None or self._skipped(request, obj, lookup)):
            return ALLOWED
        return validate_job(request, obj, old, kind, self._rules, lookup, self._check)

    def _subject(self, request: Request) -> tuple[Object | None, Kind | None]:
        obj = _with_namespace(request.object, request.namespace)
        return obj, self._kinds.get((request.kind.group, request.kind.kind))

    def _lookup_for(self, request: Request) -> Lookup:
        return OfRequest(self._lookup, request.read, names_kueue=request.names_kueue)

    def _skipped(self, request: Request, obj: Object, lookup: Lookup) -> bool:
        """Whether the object is not managed, or its owner is."""
        if queue_of(obj, lookup, request.managed_namespace) is None:
            return True
        return is_child(request, obj, self._kinds, lookup)


def _with_namespace(obj: Object | None, namespace: str) -> Object | None:
    """A shallow copy that names its namespace, which a body in a create request need not do."""
    if obj is None:
        return None
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "namespace": namespace}}
