"""Objects of the store as models, each read once for as long as it says the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from queue_manager.config.compiled import Compiled, Stored, compile_parsed, from_stored
from queue_manager.config.models import ConfigObject, Source
from queue_manager.config.parse import ParseResult
from queue_manager.config.stops import KIND as STOP

Key = tuple[str, str, str]
"""(kind, namespace, name)."""
Said = tuple[Mapping[str, Any], Mapping[str, str]]
"""Spec and labels: with the key all that a model is made of."""


class KnownObjects:
    """Models by what they were made of. Not safe to use from several threads at once."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Said, ConfigObject]] = {}

    def learn(self, rows: Iterable[Stored], objects: Iterable[ConfigObject]) -> None:
        """That these rows are these objects, wherever they were read."""
        for row, item in zip(rows, objects, strict=True):
            self._known[_key(row)] = _said(row), item.model_copy().with_source(Source())

    def read(self, rows: Sequence[Stored]) -> ParseResult:
        """`from_stored`, reading only what is not known."""
        found = {key: known for row in rows if (known := self._known.get(key := _key(row))) and known[0] == _said(row)}
        new = from_stored(row for row in rows if row.kind != STOP and _key(row) not in found)
        read = {item.key: item for item in new.objects}
        found.update((key, (_said(row), read[key])) for row in rows if (key := _key(row)) in read)
        self._known = found
        return replace(new, objects=tuple(found[key][1] for row in rows if (key := _key(row)) in found))

    def compiled(self, rows: Sequence[Stored], revision: int) -> Compiled:
        """`compile_objects`, reading only what is not known."""
        return compile_parsed(self.read(rows), rows, revision)


def _key(row: Stored) -> Key:
    return row.kind, row.namespace, row.name


def _said(row: Stored) -> Said:
    return row.spec, row.labels
