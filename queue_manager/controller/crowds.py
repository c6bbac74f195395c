"""Workloads of many pods, whose pods change all the time while they start: how often each is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from queue_manager.cluster.clock import Clock

PER_POD = 0.0002
LONGEST = 0.4
"""Seconds between two looks at one workload, for each of its pods and at most. A look goes through all of its pods: one
for each of their events would cost their number squared. A few dozen pods never wait longer than events are gathered
anyway."""


class Crowds:
    """Lets events of pods through at once or, of the same workload again, after a rest that grows with its pods."""

    def __init__(self, clock: Clock, pods: Callable[[str], int]) -> None:
        self._clock = clock
        self._pods = pods
        self._waiting: set[str] = set()
        self._rests_until: dict[str, float] = {}

    def take(self, uids: Iterable[str]) -> set[str]:
        """Of these workloads and those that rested when they came, the ones to look at now."""
        now = self._clock.monotonic()
        self._rests_until = {uid: until for uid, until in self._rests_until.items() if until > now}
        self._waiting.update(uids)
        ready = self._waiting - self._rests_until.keys()
        self._waiting -= ready
        for uid in ready:
            self._rests_until[uid] = now + min(LONGEST, PER_POD * self._pods(uid))
        return ready

    def pause(self, longest: float) -> float:
        """Seconds until one of those that rest is to be looked at, at most `longest`."""
        if not self._waiting:
            return longest
        first = min(self._rests_until.get(uid, 0.0) for uid in self._waiting)
        return min(longest, max(0.0, first - self._clock.monotonic()))
