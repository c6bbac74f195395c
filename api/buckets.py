"""How much a caller may ask for: a bucket that fills by the second."""

from __future__ import annotations

from collections import OrderedDict

BUCKETS = 10_000
"""Callers that are told apart; of more those that were quiet longest begin anew."""


class Bucket:
    """A token bucket: `rate` a second, `burst` after a pause."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, now: float) -> None:
        self.left, self.at = left, now

    def take(self, rate: float, burst: float, now: float) -> float:
        """0 when there was one to take, else the seconds until there will be."""
        self.left = min(burst, self.left + (now - self.at) * rate)
        self.at = now
        if self.left >= 1:
            self.left -= 1
            return 0.0
        return (1 - self.left) / rate

    def give_back(self, burst: float) -> None:
        """One that was taken and not used."""
        self.left = min(burst, self.left + 1)


class Buckets:
    """The buckets of all callers of a process."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, Bucket] = OrderedDict()

    def take(self, who: bytes, rate: float, burst: float, now: float) -> float:
        """Takes one of a caller's; the seconds until there is one to take, 0 when there was."""
        bucket = self._found.get(who)
        if bucket is None:
            bucket = self._found[who] = Bucket(burst, now)
            if len(self._found) > BUCKETS:
                self._found.popitem(last=False)
        self._found.move_to_end(who)
        return bucket.take(rate, burst, now)

    def give_back(self, who: bytes, burst: float) -> None:
        """One that was taken and not used."""
        if who in self._found:
            self._found[who].give_back(burst)
