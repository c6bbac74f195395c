"""Seats: how many of one thing somebody has open at once, in all processes of a server."""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol


class Locks(Protocol):
    """Locks between processes, told apart by a name and a number; they end with the process that has them."""

    def lock(self, name: bytes, number: int) -> bool:
        """Takes one that no other process has; whether there was such a one."""
        ...

    def unlock(self, name: bytes, number: int) -> None:
        """Gives it back."""
        ...


class Seats:
    """Those of one process, for one thread; with `locks` none that another process has taken is taken."""

    def __init__(self, locks: Locks | None = None) -> None:
        self._locks = locks
        self._here: defaultdict[str, set[int]] = defaultdict(set)

    def take(self, who: str, most: int) -> int | None:
        """The number of a free seat of somebody's `most`; None where all are taken."""
        here, name = self._here[who], who.encode()
        for number in range(most):
            if number not in here and (self._locks is None or self._locks.lock(name, number)):
                here.add(number)
                return number
        return None

    def give_back(self, who: str, number: int) -> None:
        """Frees a seat."""
        self._here[who].remove(number)
        if not self._here[who]:
            del self._here[who]
        if self._locks is not None:
            self._locks.unlock(who.encode(), number)
