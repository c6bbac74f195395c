"""Copies of frozen records with other values in some fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import replace  # so that names and types of fields are checked
else:

    def replace(record: Any, /, **values: Any) -> Any:
        """As `dataclasses.replace`, in a third of its time: values are copied from slot to slot, and no record is made
        anew from words. For dataclasses with slots that do nothing when they are made."""
        read, writers, by_name = _slots(record.__class__)
        copy = object.__new__(record.__class__)
        for write, value in zip(writers, read(record), strict=True):
            write(copy, value)
        try:
            for name, value in values.items():
                by_name[name](copy, value)
        except KeyError as unknown:
            raise TypeError(f"{record.__class__.__name__} has no field {unknown}") from None
        return copy


@cache
def _slots(kind: type) -> tuple[Callable[[Any], Any], list[Callable[[Any, Any], None]], Any]:
    """How all fields are read at once, and each is written."""
    names = [field.name for field in fields(kind)]
    if len(names) < 2 or hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} has one field alone, or does something when it is made")
    writers = {name: getattr(kind, name).__set__ for name in names}
    return attrgetter(*names), list(writers.values()), writers


__all__ = ["replace"]
