"""Building JSON Patches and pod template fields; comparing what is there with what is wished."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from queue_manager.cluster.port import Object, Resource
from queue_manager.engine.workload import Toleration
from queue_manager.kinds.fields import MALFORMED, View
from queue_manager.kinds.kind import PodPlacement, Unresolvable, Write

Operation = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """Malformed objects raise Unresolvable whatever is wrong with them: the last net below `View`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise Unresolvable(MALFORMED, "", f"the object can't be read: {error!r}") from error

    return call


def pointer(*path: str | int) -> str:
    """A JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def test(value: Any, *path: str | int) -> Operation:
    """The patch holds only while this value is there."""
    return {"op": "test", "path": pointer(*path), "value": value}


def put(value: Any, *path: str | int) -> Operation:
    """Sets a field of an object, or inserts an element of a list."""
    return {"op": "add", "path": pointer(*path), "value": value}


def remove(*path: str | int) -> Operation:
    """Takes a field or element away."""
    return {"op": "remove", "path": pointer(*path)}


def unchanged(obj: Object) -> list[Operation]:
    """The patch holds only for this version of the object."""
    version = obj["metadata"].get("resourceVersion")
    return [test(version, "metadata", "resourceVersion")] if version else []


def put_annotations(obj: Object, values: Mapping[str, str]) -> list[Operation]:
    """Sets our annotations, those that stand there already left out; an empty value takes one away."""
    present = obj["metadata"].get("annotations") or {}
    changed = {key: value for key, value in values.items() if present.get(key, "") != value}
    if not present:
        return [put(changed, "metadata", "annotations")] if changed else []
    return [
        put(value, "metadata", "annotations", key) if value else remove("metadata", "annotations", key)
        for key, value in changed.items()
    ]


def annotation(obj: Object, key: str) -> str:
    """One of our annotations, "" without it."""
    value = (obj["metadata"].get("annotations") or {}).get(key, "")
    return value if isinstance(value, str) else ""


def write(obj: Object, resource: Resource, operations: list[Operation], says: str, **more: Any) -> Write:
    """The patch of one object."""
    metadata = obj["metadata"]
    return Write("patch", resource, metadata.get("namespace", ""), metadata["name"], says, operations, **more)


def digest(content: Any) -> str:
    """A short name for some content, equal for equal content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def toleration_fields(toleration: Toleration) -> dict[str, str]:
    """A toleration as the API has it; what is not given is left out."""
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: value for name, value in fields.items() if value}


def merged_tolerations(template: View, ours: Iterable[Toleration]) -> list[Any]:
    """The template's tolerations as they are (with their tolerationSeconds), then those of ours that it lacks."""
    present = list(template.items())
    known = {_toleration_identity(entry) for entry in present}
    added = [toleration_fields(toleration) for toleration in dict.fromkeys(ours) if tuple(toleration) not in known]
    return [*(entry.value for entry in present), *added]


def _toleration_identity(entry: View) -> tuple[str, str, str, str]:
    return (
        entry["key"].text(),
        entry["operator"].text() or "Equal",
        entry["value"].text(),
        entry["effect"].text(),
    )


def pod_patch(template: View, placement: PodPlacement, *, with_metadata: bool = True) -> dict[str, Any]:
    """What a pod template (metadata, spec) gets for this placement, {} for nothing. Raises Unresolvable."""
    patch: dict[str, Any] = {}
    metadata = {
        kind: checked(template.at("metadata", kind), wanted)
        for kind, wanted in (("labels", placement.labels), ("annotations", placement.annotations))
        if wanted
    }
    if metadata and with_metadata:
        patch["metadata"] = metadata
    spec: dict[str, Any] = {}
    if placement.node_selector:
        spec["nodeSelector"] = checked(template.at("spec", "nodeSelector"), placement.node_selector)
    if placement.tolerations:
        spec["tolerations"] = merged_tolerations(template.at("spec", "tolerations"), placement.tolerations)
    if placement.gates:
        # Merged with the template's by name.
        spec["schedulingGates"] = [{"name": name} for name in placement.gates]
    if spec:
        patch["spec"] = spec
    return patch


def checked(field: View, wanted: Mapping[str, str]) -> dict[str, str]:
    """`wanted`, unless the user's template says otherwise of one of its keys: that is a conflict, never overwritten."""
    present = field.mapping()
    for key, value in wanted.items():
        if key in present and present[key] != value:
            path = f"{field.path}.{key}"
            raise Unresolvable("PlacementConflict", path, f"{path} is {present[key]!r}, the placement needs {value!r}")
    return dict(sorted(wanted.items()))
