"""Amounts, times and texts for people: short, rounded to three digits, never with a unit that has to be known first."""

from __future__ import annotations

from datetime import datetime, timedelta

from queue_manager.engine import quantities

THIN = "\u202f"
"""Space between thousands."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount(resource: str, value: int) -> str:
    """`12`, `1.5` (CPUs), `1.25Ti` (bytes); exact when that is short, rounded otherwise."""
    exact = quantities.show(resource, value)
    if len(exact) <= 6 or resource == quantities.CPU:
        return exact
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        size, unit = float(value), 0
        while abs(size) >= 1000 and unit < len(_BINARY) - 1:
            size, unit = size / 1024, unit + 1
        return f"{size:.3g}{_BINARY[unit]}"
    return f"{value:,}".replace(",", THIN)


def hours(resource: str, seconds: int) -> str:
    """Hours of an amount times seconds: `1 234.5` GPU-hours or CPU-hours, `1.25Ti` byte-hours."""
    if resource == quantities.CPU:
        seconds = seconds // 1000
    elif resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        return amount(resource, seconds // 3600)
    return f"{(seconds * 10 + 1800) // 3600 / 10:,}".replace(",", THIN)


def resource_name(resource: str) -> str:
    """`gpu` of `nvidia.com/gpu`: the vendor is told by the flavor."""
    return resource.rpartition("/")[2]


def duration(microseconds: int) -> str:
    """`1h30m`, `45s`, `1.5s`: exact to the millisecond, without what is zero."""
    left, parts = microseconds // 1000, []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m")):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    if left or not parts:
        parts.append(f"{left / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def moment(time: datetime) -> str:
    """A time in UTC, to the second: `2026-03-01T12:00:05Z`."""
    return f"{time.replace(microsecond=0).isoformat().removesuffix('+00:00')}Z"


def age(since: datetime, now: datetime) -> str:
    """`5s`, `12m`, `3h`, `4d`: the largest unit of which there are at least two, else the next."""
    seconds = max(0, int((now - since) / timedelta(seconds=1)))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def clean(value: object) -> str:
    """Text without control characters: a name must not be able to drive the terminal."""
    return "".join(c if c.isprintable() or c == THIN else " " if c in "\n\t" else "\ufffd" for c in str(value))
