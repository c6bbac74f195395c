"""The reasons that a plan tells, worked out only when somebody reads them.

A pass decides whose kind of reason is news; the words and numbers cost more than the decisions. They describe the state
that the plan left: the engine has them worked out before that state changes, unless nobody holds the plan any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from queue_manager.engine.decision import Waiting


class Told(Sequence[Waiting]):
    """Like a tuple of reasons; equal to any sequence of equal reasons."""

    __slots__ = ("__weakref__", "_found", "_work_out")

    def __init__(self, work_out: Callable[[], tuple[Waiting, ...]]) -> None:
        self._work_out: Callable[[], tuple[Waiting, ...]] | None = work_out
        self._found: tuple[Waiting, ...] = ()

    def settle(self) -> tuple[Waiting, ...]:
        """The reasons, worked out now if they were not before."""
        if self._work_out is not None:
            self._found = self._work_out()
            self._work_out = None
        return self._found

    def __len__(self) -> int:
        return len(self.settle())

    @overload
    def __getitem__(self, index: int) -> Waiting: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Waiting, ...]: ...
    def __getitem__(self, index: int | slice) -> Waiting | tuple[Waiting, ...]:
        return self.settle()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.settle() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.settle())

    def __repr__(self) -> str:
        return repr(self.settle())
