"""Pages of usage over time. A cursor has the span of the first page, so that all pages are of one span, and the last
item's place in the order."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from queue_manager.store.usage_over_time import Key

from ..paging import bad_cursor
from .schemas import UsageEntry

Order = tuple[int, int, Key]
"""What is sorted by, then bucket and group."""


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a cursor says."""

    sort: str
    since: datetime
    until: datetime
    by: str
    """What it is sorted by; sums of bytes are longer than readers of JSON take numbers."""
    bucket: int
    key: tuple[str, ...]

    @property
    def order(self) -> Order:
        """Behind which the page begins."""
        return int(self.by), self.bucket, self.key


_NUMBER = re.compile(r"-?[0-9]{1,40}", re.ASCII)
_read = msgspec.json.Decoder(Place).decode


def read_cursor(cursor: str, sort: str) -> Place:
    """The place of the last item; 400 where it is none of this list, or of one in another order."""
    try:
        place = _read(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise bad_cursor() from None
    zoned = place.since.tzinfo is not None and place.until.tzinfo is not None
    if place.sort != sort or not zoned or place.since >= place.until or not _NUMBER.fullmatch(place.by):
        raise bad_cursor()
    try:
        since, until = place.since.astimezone(UTC), place.until.astimezone(UTC)
    except OverflowError:  # the first or last hours that there are, of another zone
        raise bad_cursor() from None
    return msgspec.structs.replace(place, since=since, until=until)


def page(
    items: Iterable[tuple[int, Key, UsageEntry]],
    buckets: Sequence[datetime],
    sort: str,
    after: Place | None,
    limit: int,
) -> tuple[list[UsageEntry], str | None]:
    """Items after a place in their order, and the cursor of the next page. Of what is equal the earlier bucket comes
    first, then the group."""
    sign = -1 if sort.startswith("-") else 1
    by_use = sort.removeprefix("-") == "used"
    placed = (((sign * (entry.used_seconds if by_use else bucket), bucket, key), entry) for bucket, key, entry in items)
    later = sorted((each for each in placed if after is None or each[0] > after.order), key=lambda each: each[0])
    shown = later[:limit]
    following = None
    if later[limit:]:
        (by, bucket, key), _ = shown[-1]
        place = Place(sort, buckets[0], buckets[-1], str(by), bucket, key)
        following = base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")
    return [entry for _, entry in shown], following
