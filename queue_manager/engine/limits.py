"""Limits of a queue apart from its quota: what one user, one group of users and the whole queue may have at once.

What counts as running is whatever is charged: admitted and draining workloads, and those for which room is kept. A
limit evicts nobody and refuses nobody: a workload over it waits, and holds up no workload of another user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from queue_manager.engine.configuration import Cell, Limits, PartyLimits
from queue_manager.engine.workload import Workload

RUNNING, WAITING, MAX_JOBS = "running", "waiting", "maxJobs"
COUNTED = (RUNNING, WAITING, MAX_JOBS)
IGNORED_GROUPS = "system:"
"""Kubernetes puts everybody into groups of this prefix; they say nothing about whose work it is."""

Key = TypeVar("Key")
Party = tuple[str, str]
"""Whom a limit is about: ("user", name), ("group", name), or WHOLE for the queue itself."""
WHOLE: Party = ("queue", "")


def parties_of(workload: Workload) -> tuple[Party, ...]:
    """Everybody whose limits a workload counts against: the queue, its user, the user's groups."""
    groups = sorted({group for group in workload.groups if not group.startswith(IGNORED_GROUPS)})
    return (WHOLE, ("user", workload.user), *(("group", group) for group in groups))


def limits_of(limits: Limits, party: Party) -> PartyLimits:
    """The limits of a party."""
    if party is WHOLE:
        return PartyLimits(running=limits.max_jobs)
    return limits.per_user if party[0] == "user" else limits.per_group


def by_resource(charge: Mapping[Cell, int]) -> dict[str, int]:
    """A charge by resource, all flavors together."""
    sums: dict[str, int] = {}
    for cell, amount in charge.items():
        sums[cell.resource] = sums.get(cell.resource, 0) + amount
    return sums


@dataclass(frozen=True, slots=True)
class LimitHit:
    """A limit that stands in the way: of `what` (a resource, or one of COUNTED) the party may have `limit`, has `used`
    and would need `requested` more."""

    party: Party
    what: str
    limit: int
    used: int
    requested: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What one workload counts for in a queue. `jobs` is 0 for pods that are added to a running workload."""

    queue: str
    parties: tuple[Party, ...]
    amounts: Mapping[str, int]
    jobs: int = 1


@dataclass(eq=False, slots=True)
class Tally:
    """Who has how much in one queue. Changed only together with what is charged, and taken back with it."""

    running: dict[Party, int] = field(default_factory=dict)
    amounts: dict[tuple[Party, str], int] = field(default_factory=dict)

    def shift(self, counted: Counted, sign: int) -> None:
        """Counts a workload in (1) or out (-1)."""
        for party in counted.parties:
            _shift(self.running, party, sign * counted.jobs)
            for resource, amount in counted.amounts.items():
                _shift(self.amounts, (party, resource), sign * amount)

    def hit(self, limits: Limits, workload: Workload, charge: Mapping[Cell, int]) -> LimitHit | None:
        """The first limit that a workload would exceed if it were charged this, too."""
        amounts = by_resource(charge)
        for party in parties_of(workload):
            allowed = limits_of(limits, party)
            for hit in self._of_party(party, allowed, amounts):
                if workload.resizes and hit.what in COUNTED:
                    continue
                if hit.used + hit.requested > hit.limit:
                    return hit
        return None

    def _of_party(self, party: Party, allowed: PartyLimits, amounts: Mapping[str, int]) -> Iterator[LimitHit]:
        if allowed.running is not None:
            what = MAX_JOBS if party is WHOLE else RUNNING
            yield LimitHit(party, what, allowed.running, self.running.get(party, 0), 1)
        for resource, limit in sorted(allowed.resources.items()):
            if amounts.get(resource, 0):
                yield LimitHit(party, resource, limit, self.amounts.get((party, resource), 0), amounts[resource])


def _shift(sums: dict[Key, int], key: Key, by: int) -> None:
    left = sums.get(key, 0) + by
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)
