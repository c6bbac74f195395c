"""Which objects are managed at their top, and which are children that their owner answers for."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.port import Object
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.fields import written_as
from queue_manager.kinds.kind import QUEUE_LABEL, Kind, Lookup
from queue_manager.webhook.review import Request, User
from queue_manager.webhook.rules import DEFAULT_QUEUE

Kinds = Mapping[tuple[str, str], Kind]
"""(API group, kind name) -> job kind."""

GENERATIONS = 8
"""Owners that are followed upwards; an invented chain may be a ring."""


def labels_of(obj: Object) -> Mapping[str, str]:
    """The labels of an object, {} when it has none."""
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Object) -> Mapping[str, str]:
    """The annotations of an object, {} when it has none."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def named_by(obj: Object, lookup: Lookup, label: str) -> tuple[str, str] | None:
    """Key and value of the label by which a job says what `label` is for, None when it says nothing of it."""
    labels = kueue_keys.labels_of(obj, lookup)
    return (written_as(labels, label), str(labels[label])) if label in labels else None


def queue_of(obj: Object, lookup: Lookup, managed_namespace: bool) -> str | None:
    """The queue name that a job stands under, None when it is not managed."""
    found = named_by(obj, lookup, QUEUE_LABEL)
    if found is not None:
        return found[1]
    return DEFAULT_QUEUE if managed_namespace else None


def is_child(request: Request, obj: Object, kinds: Kinds, lookup: Lookup) -> bool:
    """Whether a managed job stands above the object: then that one waits and starts, and the child is left alone (D10).

    An owner reference is only a claim. It is believed when the owner is there with this UID. An owner that is not there
    is believed from a component of the cluster (what is known here may lag behind its controller, which has created
    parent and child at once) but not from a person, who could start a job unadmitted with an invented owner.
    """
    current = obj
    for _ in range(GENERATIONS):
        owner = controller_of(current)
        if owner is None:
            return False
        kind = kinds.get((str(owner.get("apiVersion", "")).rpartition("/")[0], owner.get("kind", "")))
        if kind is None:
            return False
        found = lookup.get(kind.resource, request.namespace, owner.get("name", ""))
        if found is None:
            return is_component(request.user_info)
        if found["metadata"].get("uid") != owner.get("uid"):
            return False
        if queue_of(found, lookup, request.managed_namespace) is not None:
            return True
        current = found
    return False


def is_component(user: User) -> bool:
    """Whether the user is a part of the cluster (a service account, a control plane process) and no person."""
    return user.username.startswith("system:") or "system:masters" in user.groups
