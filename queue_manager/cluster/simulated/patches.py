"""JSON Patch, JSON Merge Patch and as much of strategic merge as pods and job templates need."""

from __future__ import annotations

from typing import Any

from queue_manager.cluster.port import PATCH_NOT_APPLICABLE, ApiError, Object
from queue_manager.cluster.simulated.documents import copied, list_key


def _not_applicable() -> ApiError:
    # As the API server does: the message doesn't say what was wrong.
    return ApiError(422, "Invalid", PATCH_NOT_APPLICABLE)


def json_patched(document: Object, operations: Any) -> Object:
    """The document after the operations; all or none of them."""
    if not isinstance(operations, list):
        raise ApiError(400, "BadRequest", "a JSON patch is a list of operations")
    result: Any = copied(document)
    for operation in operations:
        result = _operate(result, operation)
    changed: Object = result
    return changed


def _operate(document: Any, operation: Object) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path", ""))
    if kind == "test":
        if _at(document, path) != operation.get("value"):
            raise _not_applicable()
    elif kind == "add":
        _add(document, path, copied(operation["value"]))
    elif kind == "replace":
        _at(document, path)
        _remove(document, path)
        _add(document, path, copied(operation["value"]))
    elif kind == "remove":
        _remove(document, path)
    elif kind in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copied(_at(document, source))
        if kind == "move":
            _remove(document, source)
        _add(document, path, value)
    else:
        raise ApiError(400, "BadRequest", f"unknown operation {kind!r} in a JSON patch")
    return document


def _pointer(text: str) -> list[str]:
    if not text.startswith("/"):
        raise _not_applicable()
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(items: list[Any], step: str, *, end: bool = False) -> int:
    if end and step == "-":
        return len(items)
    if not step.isdigit() or int(step) >= len(items) + (1 if end else 0):
        raise _not_applicable()
    return int(step)


def _at(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, list):
            document = document[_index(document, step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            raise _not_applicable()
    return document


def _add(document: Any, path: list[str], value: Any) -> None:
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(_index(parent, last, end=True), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _not_applicable()


def _remove(document: Any, path: list[str]) -> None:
    _at(document, path)
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(parent, last)]
    else:
        del parent[last]


def merge_patched(document: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patched(result.get(name), value)
    return result


def strategic_merged(document: Any, patch: Any, name: object = "") -> Any:
    """Like a merge patch, but keyed lists merge item by item (`$patch: delete` removes one); order stays."""
    if isinstance(patch, dict):
        base = document if isinstance(document, dict) else {}
        result = dict(base)
        for field, value in patch.items():
            if value is None:
                result.pop(field, None)
            else:
                result[field] = strategic_merged(base.get(field), value, field)
        return result
    if isinstance(patch, list) and (key := list_key(name, patch, document if isinstance(document, list) else [])):
        items = {item[key]: item for item in document or ()}
        for item in patch:
            if item.get("$patch") == "delete":
                items.pop(item[key], None)
            else:
                items[item[key]] = strategic_merged(items.get(item[key]), item)
        return list(items.values())
    return copied(patch)
