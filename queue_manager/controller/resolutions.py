"""What Jobs of one template ask for, worked out once: hundreds of Jobs a second are often made by one program."""

from __future__ import annotations

import msgspec

from queue_manager.cluster.port import JOBS, Object
from queue_manager.controller.news import said
from queue_manager.kinds.kind import Kind, Lookup, Resolved
from queue_manager.kinds.pod_rules import CONTROLLER_UIDS, JOB_NAMES

MOST = 1000
"""Templates that are kept in mind; beyond that it begins anew."""
GENERATED = frozenset({*CONTROLLER_UIDS, *JOB_NAMES})
"""Labels of a pod template that the API server makes, other ones for each Job."""
BY_NAME = ("affinity", "topologySpreadConstraints")
"""Fields of a pod by which the labels of its Job, and so its name, may count."""


class Resolutions:
    """Resolved objects by all of them that counts. What depends on other objects is told by `forget`."""

    def __init__(self) -> None:
        self._known: dict[bytes, Resolved] = {}

    def forget(self) -> None:
        """Something else that resolving depends on has changed: LimitRanges, namespaces, claims ..."""
        self._known.clear()

    def resolve(self, obj: Object, kind: Kind, lookup: Lookup) -> Resolved:
        """As `Kind.resolve`."""
        key = _key(obj, lookup) if kind.resource == JOBS else None
        if key is None:
            return kind.resolve(obj, lookup)
        found = self._known.get(key)
        if found is None:
            found = kind.resolve(obj, lookup)
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = found
        return found


def _key(obj: Object, lookup: Lookup) -> bytes | None:
    """What counts of a Job that has not run yet; None where that can't be told by a look, or it is malformed."""
    try:
        metadata, spec = obj["metadata"], obj["spec"]
        template = spec["template"]
        pods, about = template["spec"], template.get("metadata") or {}
        if not _is_new(obj) or any(pods.get(name) for name in BY_NAME):
            return None
        labels = {name: text for name, text in (about.get("labels") or {}).items() if name not in GENERATED}
        counts = {name: value for name, value in spec.items() if name not in ("selector", "template")}
        of_job = metadata.get("namespace"), metadata.get("labels"), said(obj)
        return msgspec.json.encode((lookup.kueue_keys, of_job, counts, labels, about.get("annotations"), pods))
    except (AttributeError, KeyError, TypeError):
        return None


def _is_new(obj: Object) -> bool:
    """Whether none of its pods are counted."""
    return not any(value for name, value in (obj.get("status") or {}).items() if name != "conditions")
