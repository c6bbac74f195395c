"""Configuration objects as YAML: stable order and layout, so that two exports can be compared line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from queue_manager.config.models import KINDS, ConfigObject

_ORDER = {kind: place for place, kind in enumerate(KINDS)}


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Items are indented below their key, as most hand-written files have it.
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # `on`, `1e3` or `12:30` are no plain words for every YAML reader; and quantities like "8" stay text.
    style = "|" if "\n" in text else None
    if style is None and text.lower() in ("on", "off", "yes", "no", "y", "n"):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def sort_key(item: ConfigObject) -> tuple[int, str, str]:
    """Kinds that others refer to first, then by namespace and name."""
    kind, namespace, name = item.key
    return _ORDER[kind], namespace, name


def export(objects: Iterable[ConfigObject]) -> str:
    """All objects as one YAML text; `parse` of it gives equal objects."""
    documents = [_plain_quantities(item.document()) for item in sorted(objects, key=sort_key)]
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for document in documents
    )


def _plain_quantities(value: Any) -> Any:
    # Whole-number quotas read better as 64 than as '64', and mean the same.
    if isinstance(value, dict):
        return {
            key: int(item)
            if key in _QUANTITIES and isinstance(item, str) and _is_plain(item)
            else _plain_quantities(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain_quantities(item) for item in value]
    return value


_QUANTITIES = frozenset({"nominalQuota", "borrowingLimit", "lendingLimit", "weight"})


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text
