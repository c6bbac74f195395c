"""Between the store's datetimes and the engine's microseconds. Both are UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(moment: datetime) -> int:
    """Exact microseconds since the Unix epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_microseconds(moment: int) -> datetime:
    """The inverse of `to_microseconds`."""
    return EPOCH + timedelta(microseconds=moment)
