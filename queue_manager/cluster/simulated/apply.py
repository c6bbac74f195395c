"""Server-side apply: who owns which field, conflicts, and removal of what an applier no longer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queue_manager.cluster.port import ApiError, Object
from queue_manager.cluster.simulated.documents import copied, list_key

Step = str | tuple[str, Any]
Path = tuple[Step, ...]
"""Field names, and (key, value) for an item of a keyed list."""

Owners = Mapping[str, frozenset[Path]]
"""Field manager -> the fields it owns."""

_MISSING = object()
_IDENTITY = {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}


def fields_of(obj: Object) -> frozenset[Path]:
    """The ownable fields of an object: leaves, atomic lists and the items of keyed lists."""
    found: set[Path] = set()
    for name, value in obj.items():
        if name == "metadata":
            for inner, content in value.items():
                if inner not in _IDENTITY:
                    _collect(content, (name, inner), found)
        elif name not in ("apiVersion", "kind", "status"):
            _collect(value, (name,), found)
    return frozenset(found)


def _collect(value: Any, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            _collect(item, (*path, name), found)
    elif isinstance(value, list) and value and (key := list_key(path[-1], value)):
        for item in value:
            inside = (*path, (key, item[key]))
            found.add(inside)
            for name, content in item.items():
                _collect(content, (*inside, name), found)
    else:
        found.add(path)


def applied(live: Object, wish: Object, manager: str, owners: Owners, *, force: bool) -> tuple[Object, Owners]:
    """The object and the owners after `manager` applied `wish`; ApiError 409 on a conflict without `force`."""
    wanted = fields_of(wish)
    taken = {path for path in wanted if _differs(_value(live, path), _value(wish, path))}
    if not force and (conflicts := _conflicts(taken, manager, owners)):
        raise ApiError(409, "Conflict", f"Apply failed with {len(conflicts)} conflict(s): {'; '.join(conflicts)}")
    result = _merged(live, wish, "")
    others = {name: paths - taken for name, paths in owners.items() if name != manager}
    for path in sorted(owners.get(manager, frozenset()) - wanted, key=len, reverse=True):
        if not any(kept[: len(path)] == path for paths in (*others.values(), wanted) for kept in paths):
            _drop(result, path)
    return result, {**{name: paths for name, paths in others.items() if paths}, manager: wanted}


def updated(old: Object | None, new: Object, manager: str, owners: Owners) -> Owners:
    """The owners after an ordinary write: who changes a field owns it.

    As on the real server this is another owner than the same manager's apply: only an apply gives fields up again.
    """
    manager = f"{manager} (update)"
    now = fields_of(new)
    before = fields_of(old) if old is not None else frozenset()
    changed = {path for path in now if path not in before or _differs(_value(old, path), _value(new, path))}
    kept = {name: (paths & now) - (changed if name != manager else set()) for name, paths in owners.items()}
    kept[manager] = frozenset(kept.get(manager, frozenset()) | changed)
    return {name: frozenset(paths) for name, paths in kept.items() if paths}


def _conflicts(taken: set[Path], manager: str, owners: Owners) -> list[str]:
    found = [
        f'conflict with "{name}": {_spelled(path)}'
        for name, paths in owners.items()
        if name != manager
        for path in paths & taken
    ]
    return sorted(found)


def _spelled(path: Path) -> str:
    return "".join(f".{step}" if isinstance(step, str) else f'[{step[0]}="{step[1]}"]' for step in path)


def _differs(one: Any, other: Any) -> bool:
    # For an item of a keyed list only its being there matters; its fields are paths of their own.
    if isinstance(one, dict) and isinstance(other, dict) and one and other:
        return False
    return one is not other and one != other


def _value(document: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, tuple):
            items = document if isinstance(document, list) else []
            document = next((item for item in items if isinstance(item, dict) and item.get(step[0]) == step[1]), None)
            if document is None:
                return _MISSING
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return _MISSING
    return document


def _merged(live: Any, wish: Any, name: object) -> Any:
    if isinstance(wish, dict) and isinstance(live, dict):
        result = {field: copied(value) for field, value in live.items() if field not in wish}
        merged = {field: _merged(live.get(field), value, field) for field, value in wish.items()}
        return {field: merged.get(field, result.get(field)) for field in [*live, *(f for f in wish if f not in live)]}
    if isinstance(wish, list) and isinstance(live, list) and (key := list_key(name, wish, live)):
        items = {item[key]: item for item in live}
        for item in wish:
            items[item[key]] = _merged(items.get(item[key]), item, "")
        return [copied(item) for item in items.values()]
    return copied(wish)


def _drop(document: Any, path: Path) -> bool:
    """Removes the field, and what becomes empty by that; answers whether `document` is empty now."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        for position, item in enumerate(document if isinstance(document, list) else []):
            if isinstance(item, dict) and item.get(step[0]) == step[1]:
                if not rest or _drop(item, rest):
                    del document[position]
                break
    elif isinstance(document, dict) and step in document and (not rest or _drop(document[step], rest)):
        del document[step]
    return not document
