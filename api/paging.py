"""Lists: `{"items": [...], "next": cursor or null}`."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of items in the answer")]
Cursor = Annotated[str, Query(max_length=1000, description="`next` of the page before; empty for the first page")]


class Page(BaseModel, Generic[Item]):
    """One page; `next` goes into `cursor` to read on, and is null on the last page."""

    items: list[Item]
    next: str | None = None
