"""What differs between two versions of a configuration object, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from queue_manager.config.parse import path_text

MISSING: Any = object()
Path = tuple[str | int, ...]


class FieldChange(NamedTuple):
    """One field that is not the same any more. None stands for a field that is not there."""

    field: str
    before: Any
    after: Any


def field_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[FieldChange]:
    """Every leaf that differs, in the order of the fields' names. Entries of lists that have names are compared by
    name, wherever they stand, others by place where there are equally many; else a list differs as a whole."""
    return [
        FieldChange(_text(path), None if old is MISSING else old, None if new is MISSING else new)
        for path, old, new in _differences((), before if before is not None else {}, after if after is not None else {})
    ]


def _differences(path: Path, before: Any, after: Any) -> Iterator[tuple[Path, Any, Any]]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _differences((*path, key), before.get(key, MISSING), after.get(key, MISSING))
        return
    old, new = _by_name(before), _by_name(after)
    if old is None or new is None:
        if _are_alike(before, after):
            for index, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from _differences((*path, index), one, other)
        else:
            yield path, before, after
        return
    if old == new:  # the same entries in another order
        yield path, before, after
        return
    for name in sorted({*old, *new}):
        yield from _differences((*path, f"[{name}]"), old.get(name, MISSING), new.get(name, MISSING))


def _by_name(value: Any) -> dict[str, Any] | None:
    """Entries of a list by what tells them apart; None where nothing does."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    found: dict[str, Any] = {}
    for entry in value:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = entry
    return found


def _are_alike(before: Any, after: Any) -> bool:
    """Whether both are lists of equally many mappings, which are then taken for the same ones."""
    lists = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    return lists and all(isinstance(entry, Mapping) for entry in (*before, *after))


def _text(path: Path) -> str:
    text = ""
    for step in path:
        named = isinstance(step, str) and step.startswith("[")
        text += str(step) if named else (path_text((step,)) if not text else _after(step))
    return text


def _after(step: str | int) -> str:
    plain = path_text((step,))
    return plain if plain.startswith("[") else f".{plain}"
