"""Times as people say them: `2026-11-01T08:00:00Z`, `2026-11-01`, `2026-11`, `7d` (ago), `last-month`; and the buckets
of a span of time. All in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from queue_manager.config.durations import parse_duration

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2}))?")
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)
HINT = "write it like 2026-11-01T08:00:00Z, 2026-11-01, 2026-11, 7d (ago) or last-month"


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _month(now: datetime, later: int = 0) -> datetime:
    months = now.year * 12 + now.month - 1 + later
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def _monday(now: datetime) -> datetime:
    return _midnight(now) - timedelta(days=now.weekday())


WORDS: Mapping[str, Callable[[datetime], datetime]] = {
    "now": lambda now: now,
    "today": _midnight,
    "yesterday": lambda now: _midnight(now) - timedelta(days=1),
    "this-week": _monday,
    "last-week": lambda now: _monday(now) - timedelta(days=7),
    "this-month": _month,
    "last-month": lambda now: _month(now, -1),
    "this-year": lambda now: datetime(now.year, 1, 1, tzinfo=UTC),
    "last-year": lambda now: datetime(now.year - 1, 1, 1, tzinfo=UTC),
}
"""Words for the beginning of a span; weeks begin on Monday."""


def parse_moment(text: str, now: datetime) -> datetime:
    """The time that a text means; raises ValueError with a message for its author."""
    now = now.astimezone(UTC)
    if text in WORDS:
        return WORDS[text](now)
    try:
        if date := _DATE.fullmatch(text):
            return datetime(int(date[1]), int(date[2]), int(date[3] or 1), tzinfo=UTC)
        if text[4:5] != "-":
            return now - timedelta(microseconds=parse_duration(text))
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError(f"{text!r} has no time zone; write it like {text}Z")
        return found.astimezone(UTC)
    except ValueError as error:
        if "time zone" in str(error):
            raise
        raise ValueError(f"{text!r} is no time; {HINT}") from None
    except OverflowError:
        raise ValueError(f"{text!r} is too long ago, or too far ahead") from None


MONTH = "month"


def parse_step(text: str) -> timedelta | None:
    """The length of buckets, None for calendar months; raises ValueError with a message for its author."""
    if text == MONTH:
        return None
    try:
        step = timedelta(microseconds=parse_duration(text))
    except ValueError:
        raise ValueError(f"{text!r} is no step; write it like 1h, 1d, 7d or {MONTH}") from None
    if step < timedelta(seconds=1) or step.microseconds:
        raise ValueError(f"{text!r} is no step: whole seconds are needed, at least one")
    return step


def edges(begin: datetime, end: datetime, step: timedelta | None, most: int) -> list[datetime]:
    """Where the buckets of [begin, end) begin, and `end`. All but the first begin at whole steps: hours and days of
    UTC, weeks at Monday. Raises ValueError for more than `most` buckets."""
    found = [begin]
    place = _month(begin) if step is None else begin - (begin - _MONDAY) % step
    while True:
        try:
            place = _month(place, 1) if step is None else place + step
        except (OverflowError, ValueError):
            break
        if place >= end:
            break
        found.append(place)
        if len(found) > most:
            raise ValueError(f"more than {most} buckets from {begin.isoformat()} to {end.isoformat()}")
    return [*found, end]
