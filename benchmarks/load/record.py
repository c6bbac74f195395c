"""What a play notes of each Job, in the seconds of one clock."""

from __future__ import annotations

import msgspec


class Running(msgspec.Struct):
    """From the watch event that shows the Job unsuspended to the one that shows it suspended or finished."""

    since: float
    until: float = 0.0


class JobRecord(msgspec.Struct):
    """One Job: its class, the number of its queue, its milli-CPUs; sent, first seen, finished, and when it ran."""

    each: str
    queue: int
    milli: int
    sent: float
    seen: float = 0.0
    finished: float = 0.0
    runs: list[Running] = msgspec.field(default_factory=list)


class Play(msgspec.Struct):
    """A whole play: `writes` are the player's own, creations among them."""

    load: str
    jobs: list[JobRecord] = msgspec.field(default_factory=list)
    writes: int = 0
    throttled: int = 0
