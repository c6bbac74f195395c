"""Undo log: changes of state are recorded so that they can be taken back exactly, without copies of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class UndoLog:
    """What to call, newest first, to take changes back. `mark` and `revert` nest like brackets."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def mark(self) -> int:
        """A point to revert to."""
        return len(self._entries)

    def revert(self, mark: int) -> None:
        """Takes back everything since `mark`."""
        entries = self._entries
        while len(entries) > mark:
            undo, arguments = entries.pop()
            undo(*arguments)

    def forget(self) -> None:
        """Makes everything up to now final."""
        self._entries.clear()

    def call(self, undo: Callable[..., object], *arguments: Any) -> None:
        """Records that `undo(*arguments)` takes back what the caller just did."""
        self._entries.append((undo, arguments))

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """`mapping[key] = value`, revocable."""
        if key in mapping:
            self._entries.append((mapping.__setitem__, (key, mapping[key])))
        else:
            self._entries.append((mapping.pop, (key,)))
        mapping[key] = value

    def drop(self, mapping: dict[K, V], key: K) -> None:
        """`del mapping[key]` if it is there, revocable."""
        if key in mapping:
            self._entries.append((mapping.__setitem__, (key, mapping.pop(key))))

    def assign(self, target: object, name: str, value: object) -> None:
        """`target.name = value`, revocable."""
        self._entries.append((setattr, (target, name, getattr(target, name))))
        setattr(target, name, value)
