"""Small pieces that all simulated controllers need: conditions, owner references, status writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_manager.cluster.port import Object, Resource
from queue_manager.cluster.simulated.api_server import ApiState


def owner_reference(owner: Object) -> Object:
    """A controller reference to `owner`."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def children(api: ApiState, owner: Object, resource: Resource) -> list[Object]:
    """The objects of the collection that refer to the owner's uid."""
    return [obj for kind, obj in api.storage.dependents(owner["metadata"]["uid"]) if kind == resource]


def is_true(obj: Object, *types: str) -> bool:
    """Whether one of the conditions is True."""
    conditions: Iterable[Object] = (obj.get("status") or {}).get("conditions") or ()
    return any(condition["type"] in types and condition["status"] == "True" for condition in conditions)


def has_condition(obj: Object, kind: str) -> bool:
    """Whether the condition is there, True or not."""
    return any(condition["type"] == kind for condition in (obj.get("status") or {}).get("conditions") or ())


def with_condition(
    conditions: Sequence[Object], kind: str, value: bool, reason: str, message: str, now: str
) -> list[Object]:
    """The conditions with one set; its transition time moves only when its status does. New ones come last."""
    status = "True" if value else "False"
    wish = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
    result, found = [], False
    for condition in conditions:
        if condition["type"] == kind:
            found = True
            if condition["status"] == status:
                wish["lastTransitionTime"] = condition.get("lastTransitionTime", now)
            result.append({**condition, **wish})
        else:
            result.append(condition)
    return result if found else [*result, wish]


def write_status(api: ApiState, resource: Resource, obj: Object, status: Object, manager: str) -> Object:
    """Writes the status if it differs."""
    if (obj.get("status") or {}) == status:
        return obj
    return api.update(resource, obj, unversioned({**obj, "status": status}), manager=manager, subresource="status")


def unversioned(obj: Object) -> Object:
    """The object without a resourceVersion precondition."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def without_finalizer(obj: Object, finalizer: str) -> Object:
    """The object without one finalizer and without a precondition, for `update`."""
    metadata = dict(unversioned(obj)["metadata"])
    metadata["finalizers"] = [name for name in metadata.get("finalizers") or () if name != finalizer]
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    return {**obj, "metadata": metadata}
