"""When the API server takes no writes at all: all wait together, and one at a time tries whether it does again."""

from __future__ import annotations

from random import Random

import structlog

from queue_manager.cluster.clock import Backoff, Clock
from queue_manager.cluster.port import ApiError

log = structlog.get_logger(__name__)

NOT_LEADING = "NotLeading"
SHARED = frozenset({NOT_LEADING, "Unreachable", "Timeout", "Credentials", "Undecodable", "Closed"})
"""Reasons, of errors without an answer, that are not about the object of the write."""
FIRST, GREATEST = 0.5, 10.0
"""Seconds between two tries: nobody is to wait long for a server that is back."""
MOMENT = 0.005
"""Seconds by which a sleep may end too early."""
LEASE_PAUSE = 1.0
"""Seconds until the lease is looked at again, which asks nothing of anybody."""


def not_leading() -> ApiError:
    """What stands in for an answer where we may not write."""
    return ApiError(0, NOT_LEADING, "the lease is not certain at present")


def concerns_all(error: ApiError) -> bool:
    """Whether the same would have happened to any other write. A webhook that fails is asked about some objects."""
    if error.status == 0:
        return error.reason in SHARED
    return error.status in (429, 500, 502, 503, 504) and "webhook" not in error.message


class Outage:
    """Whether writes pause, and until when. Whoever writes asks `number` first: what had been sent before the pause
    began says nothing new when it fails."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._backoff = Backoff(random, first=FIRST, greatest=GREATEST)
        self._since = 0.0
        self._until = 0.0
        self._suspect = ""
        self.number = 0
        self.active = False

    @property
    def pause(self) -> float:
        """Seconds until somebody may try again; 0 while there is no outage."""
        left = self._until - self._clock.monotonic()
        return left if self.active and left > MOMENT else 0.0

    @property
    def age(self) -> float:
        """Seconds since writes pause; 0 while they are made."""
        return self._clock.monotonic() - self._since if self.active else 0.0

    def concerns_all(self, error: ApiError, uid: str) -> bool:
        """As the function, for a write of this workload. An internal error may be about its objects alone: it takes
        those of two workloads, with no answer in between, or nobody could start while one of them fails for ever."""
        if not concerns_all(error):
            return False
        if error.status != 500 or self.active or self._suspect not in ("", uid):
            return True
        self._suspect = uid
        return False

    async def wait(self) -> None:
        """Returns when somebody may try again."""
        while (pause := self.pause) > 0:
            await self._clock.sleep(pause)

    def failed(self, error: ApiError, number: int) -> float:
        """An error that concerns all, of a try that began at `number`: seconds until the next one, 0 where a pause has
        begun since and this is no news."""
        if number != self.number:
            return 0.0
        pause = self._backoff.next(error.retry_after)
        if error.reason == NOT_LEADING:
            pause = min(pause, LEASE_PAUSE)
        now = self._clock.monotonic()
        if not self.active:
            self.active, self._since = True, now
            log.warning("writes pause", error=str(error))
        elif error.reason != NOT_LEADING:
            log.info("writes still pause", error=str(error), seconds=round(self.age), pause=round(pause, 1))
        self.number += 1
        self._until = now + pause
        return pause

    def over(self) -> None:
        """The API server has answered."""
        self._suspect = ""
        if self.active:
            log.info("writes go on", seconds=round(self.age, 1))
            self.active = False
            self._backoff.reset()
