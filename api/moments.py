"""Times and spans of time in queries; what is wrong with one is told with the name of its field."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from queue_manager.config.moments import WORDS, parse_moment

from .problems import ProblemError

_SAYS = f"a time (RFC 3339), date, month (2026-11), how long ago (7d), or one of {', '.join(WORDS)}; UTC"

From = Annotated[str, Query(alias="from", max_length=100, description=f"Not before: {_SAYS}", examples=["7d"])]
To = Annotated[str, Query(alias="to", max_length=100, description=f"Before: {_SAYS}", examples=["2026-12-01"])]


def bad_query(field: str, message: str) -> ProblemError:
    """422 for a parameter of the query."""
    return ProblemError(
        422, "Request is not valid", f"{field} {message}", errors=[{"field": f"query.{field}", "message": message}]
    )


def moment(field: str, text: str, now: datetime) -> datetime | None:
    """The time that a parameter means, None for an empty one."""
    if not text:
        return None
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise bad_query(field, f"is not understood: {error}") from None


def span(since: str, until: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    """`from` and `to`; 422 where the one is not before the other."""
    begin, end = moment("from", since, now), moment("to", until, now)
    if begin is not None and end is not None and begin >= end:
        raise bad_query("from", f"must be before `to`: {begin.isoformat()} is not before {end.isoformat()}")
    return begin, end
