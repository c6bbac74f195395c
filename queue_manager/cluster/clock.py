"""Time and waiting, injected wherever they are needed, so that everything can run on a virtual clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from random import Random
from typing import Protocol


class Clock(Protocol):
    """What tells the time and waits."""

    def now(self) -> datetime:
        """The time of day, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring spans."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits; a negative or zero span only lets others run."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time of day, aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits on the running event loop."""
        await asyncio.sleep(max(0.0, seconds))


def jittered(seconds: float, random: Random, spread: float = 0.5) -> float:
    """`seconds`, made longer or shorter by at most `spread` of it, so that many clients don't come back at once."""
    return seconds * (1 + spread * (2 * random.random() - 1))


class Backoff:
    """Exponential pauses with jitter: `next()` is the pause before the next try, `reset()` after a success."""

    def __init__(self, random: Random, first: float = 0.5, greatest: float = 30.0, factor: float = 2.0) -> None:
        self._random = random
        self._first = first
        self._greatest = greatest
        self._factor = factor
        self._failures = 0

    @property
    def failures(self) -> int:
        """How often in a row it went wrong."""
        return self._failures

    def next(self, at_least: float | None = None) -> float:
        """The pause in seconds; at least what the server asked for."""
        # The exponent is bounded, or a long outage would overflow the float.
        pause = min(self._greatest, self._first * self._factor ** min(self._failures, 32))
        self._failures += 1
        return max(jittered(pause, self._random), at_least or 0.0)

    def reset(self) -> None:
        """Forgets the failures."""
        self._failures = 0


def rfc3339(moment: datetime) -> str:
    """A time as the Kubernetes API writes it (whole seconds)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """A time as the API's MicroTime fields want it (Lease, events.k8s.io)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> datetime:
    """The time of an API field; raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"no time zone in {text!r}")
    return moment.astimezone(UTC)
