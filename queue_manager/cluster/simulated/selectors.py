"""Label and field selectors, in the API's own syntax."""

from __future__ import annotations

import re
from collections.abc import Callable

from queue_manager.cluster.port import PODS, ApiError, Object, Query, Resource

Matcher = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=,()]+)$")

_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}
_POD_FIELDS = {"spec.nodeName": ("spec", "nodeName"), "status.phase": ("status", "phase")}


def matcher(resource: Resource, query: Query) -> Matcher:
    """Whether an object is selected by the query; ApiError 400 for a selector that can't be read."""
    tests: list[Matcher] = []
    if resource.namespaced and query.namespace:
        namespace = query.namespace
        tests.append(lambda obj: obj["metadata"].get("namespace") == namespace)
    tests += [_label_test(part) for part in _parts(query.label_selector)]
    tests += [_field_test(resource, part) for part in _parts(query.field_selector)]
    return lambda obj: all(test(obj) for test in tests)


def _parts(selector: str) -> list[str]:
    """The requirements, split at commas outside of parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _label_test(text: str) -> Matcher:
    if found := _SET.match(text):
        key, inside = found["key"], found["operator"] == "in"
        values = {value.strip() for value in found["values"].split(",")}
        if inside:
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    if found := _EQUAL.match(text):
        key, value, equal = found["key"], found["value"], found["operator"] != "!="
        return lambda obj: (_labels(obj).get(key) == value) is equal
    if found := _EXISTS.match(text):
        key, wanted = found["key"], not found["not"]
        return lambda obj: (key in _labels(obj)) is wanted
    raise ApiError(400, "BadRequest", f"unable to parse requirement: {text!r}")


def _labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _field_test(resource: Resource, text: str) -> Matcher:
    found = _EQUAL.match(text)
    paths = {**_FIELDS, **(_POD_FIELDS if resource == PODS else {})}
    if found is None or found["key"] not in paths:
        raise ApiError(400, "BadRequest", f"field label not supported: {text!r}")
    (outer, inner), value, equal = paths[found["key"]], found["value"], found["operator"] != "!="
    return lambda obj: (((obj.get(outer) or {}).get(inner) or "") == value) is equal
