"""Durations as Go and Kubernetes write them: `90m`, `36h`, `1h30m`, and days as `7d`."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_PART = re.compile(r"([0-9]{1,18})(\.[0-9]{1,9})?(d|h|ms|us|m|s)")
_LONGEST = 100 * 365 * _UNITS["d"]


def parse_duration(text: str) -> int:
    """Microseconds of a duration; raises ValueError with a message for the author."""
    position, total = 0, 0
    for part in _PART.finditer(text):
        if part.start() != position:
            break
        unit = _UNITS[part[3]]
        total += int(part[1]) * unit
        if part[2]:
            total += int(part[2][1:]) * unit // 10 ** (len(part[2]) - 1)
        position = part.end()
    if text == "0":
        return 0
    if not text or position != len(text):
        raise ValueError(f"{text!r} is not a duration; write it like 90m, 36h or 1h30m")
    if total > _LONGEST:
        raise ValueError(f"{text!r} is longer than 100 years")
    return total
