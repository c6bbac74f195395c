"""One object for all that say the same: a hundred thousand rows ask for a few dozen shapes of pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from queue_manager.engine.workload import PodGroup
from queue_manager.store import codec

_encode = msgspec.json.Encoder().encode
_GROUP = ("index", "name", "policy", "minimum", "topology", "disruption")
_SET = (
    "group_index",
    "name",
    "count",
    "reclaimed",
    "min_count",
    "first_stage",
    "last_stage",
    "requests",
    "placement",
)


class Shared:
    """What was read before, for one reading of rows. What it gives is never changed by anybody."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._groups: dict[bytes, tuple[PodGroup, ...]] = {}

    def text(self, text: str) -> str:
        """The same text, kept once."""
        return self._texts.setdefault(text, text)

    def pod_groups(self, rows: Iterable[Mapping[Any, Any]], sets: list[Mapping[Any, Any]]) -> tuple[PodGroup, ...]:
        """The pod groups of one workload, from its rows of the two tables in order."""
        said = [[row[name] for name in _GROUP] for row in rows], [[row[name] for name in _SET] for row in sets]
        key = _encode(said)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = tuple(_group(row, sets) for row in rows)
        return found


def _group(row: Mapping[Any, Any], sets: list[Mapping[Any, Any]]) -> PodGroup:
    own = tuple(codec.pod_set_from_row(each) for each in sets if each["group_index"] == row["index"])
    return codec.pod_group_from_row(row, own)
