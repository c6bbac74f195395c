"""Reading times and conditions of native objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from queue_manager.kinds.fields import View

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def moment(view: View) -> int:
    """An RFC 3339 time in microseconds since 1970, 0 where none is given. Raises Unresolvable."""
    text = view.text()
    if not text:
        return 0
    try:
        return _microseconds(text)
    except ValueError:
        raise view.malformed("a time such as 2026-01-31T12:00:00Z") from None


@lru_cache(maxsize=65_536)
def _microseconds(text: str) -> int:
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def condition(view: View, kind: str, status: str = "True") -> View | None:
    """The condition of that type of an object's status, where it has this status."""
    for entry in view.at("status", "conditions").items():
        if entry["type"].text() == kind and entry["status"].text() == status:
            return entry
    return None
