"""Which requests are sent again, and after how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

BUSY = 429
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Retry:
    """How patient a client is: at most `attempts` in all, with pauses of at most `longest` seconds between them.

    A pause is what the server asks for by Retry-After; where it asks for nothing `first` seconds, twice as many each
    time. With `connect` an address where nothing answers is tried again, too.
    """

    attempts: int = 5
    first: float = 0.25
    longest: float = 30.0
    connect: bool = True

    def pause(self, failures: int, asked: float | None, jitter: float) -> float | None:
        """Seconds to wait after this many failures; None: give up. `jitter` from 0 to 1 spreads clients that fail
        together. Who is asked to wait longer than `longest` gives up at once: it would only fail again."""
        if failures >= self.attempts or (asked is not None and asked > self.longest):
            return None
        if asked is not None:
            return asked + jitter * min(1.0, self.first)
        return float(min(self.longest, self.first * 2.0 ** (failures - 1)) * (0.5 + jitter / 2))


NEVER = Retry(attempts=1)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the server asks to wait: a number, or until a date (RFC 9110, 10.2.3); None where it says nothing
    that can be read."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isdecimal() and value.isascii():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (until - now).total_seconds()) if until.tzinfo is not None else None
