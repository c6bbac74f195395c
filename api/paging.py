"""Lists: `{"items": [...], "next": cursor or null}`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from .problems import ProblemError

Item = TypeVar("Item")
Thing = TypeVar("Thing")
Place = tuple[str, ...]

Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of items in the answer")]
SORTED = Query(description="With `-` the greatest first")
Cursor = Annotated[str, Query(max_length=1000, description="`next` of the page before; empty for the first page")]


class Page(BaseModel, Generic[Item]):
    """One page; `next` goes into `cursor` to read on, and is null on the last page."""

    items: list[Item]
    next: str | None = None


def bad_cursor() -> ProblemError:
    """400 for a cursor that is none of the list's."""
    return ProblemError(400, "Bad cursor", "use `next` of the page before, as it was given")


def number_of(cursor: str) -> int | None:
    """The number that a cursor of a list by numbers is, None on the first page."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise bad_cursor()
    return int(cursor) if cursor else None


def page_by(
    things: Iterable[Thing], places: Mapping[str, Callable[[Thing], Place]], sort: str, cursor: str, limit: int
) -> tuple[list[Thing], str | None]:
    """The page after a cursor of a list that is in memory, and the cursor of the next page: the sort and the last one's
    place. `places` are those by which it is sorted, by the word of `sort`; with `-` the greatest comes first."""
    place, falling = places[sort.removeprefix("-")], sort.startswith("-")
    of, *found = cursor.split("\n")
    if cursor and (of != sort or not found):
        raise bad_cursor()
    after = tuple(found)

    def is_later(here: Place) -> bool:
        return here < after if falling else here > after

    later = [thing for thing in things if not cursor or is_later(place(thing))]
    later.sort(key=place, reverse=falling)
    page = later[:limit]
    return page, "\n".join([sort, *place(page[-1])]) if later[limit:] else None
