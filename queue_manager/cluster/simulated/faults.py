"""What may go wrong between a client and the API server, by plan or by seeded chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from queue_manager.cluster.port import ApiError, Resource


class Fault(StrEnum):
    """Before: the server does nothing. After: it does it, but the client doesn't learn so."""

    CONFLICT = "conflict"
    ERROR_BEFORE = "error-before"
    ERROR_AFTER = "error-after"
    TIMEOUT_BEFORE = "timeout-before"
    TIMEOUT_AFTER = "timeout-after"
    THROTTLED = "throttled"

    @property
    def after(self) -> bool:
        """Whether the request takes effect all the same."""
        return self in (Fault.ERROR_AFTER, Fault.TIMEOUT_AFTER)

    def error(self) -> ApiError:
        """What the client sees."""
        if self is Fault.CONFLICT:
            return ApiError(409, "Conflict", "the object has been modified (injected)")
        if self is Fault.THROTTLED:
            return ApiError(429, "TooManyRequests", "too many requests (injected)", retry_after=1.0)
        if self in (Fault.ERROR_BEFORE, Fault.ERROR_AFTER):
            return ApiError(500, "InternalError", "etcdserver: leader changed (injected)")
        return ApiError(0, "Timeout", "no answer (injected)")


class Faults(Protocol):
    """Asked about every request of a client (not of the simulated controllers)."""

    def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
        """What goes wrong with this request, if anything."""
        ...

    def drop_watch(self, resource: Resource) -> bool:
        """Whether the connection of a watch breaks before its next event."""
        ...


@dataclass(slots=True)
class SeededFaults:
    """Each request fails with probability `requests`, each watch event breaks its connection with `watches`."""

    random: Random
    requests: float = 0.05
    watches: float = 0.02
    active: bool = True

    def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
        """A random fault; conflicts only for patches."""
        if not self.active or self.random.random() >= self.requests:
            return None
        kinds = [kind for kind in Fault if kind is not Fault.CONFLICT or verb == "patch"]
        return self.random.choice(kinds)

    def drop_watch(self, resource: Resource) -> bool:
        """By chance."""
        return self.active and self.random.random() < self.watches


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault for the next request that matches; "" matches everything."""

    fault: Fault
    verb: str = ""
    plural: str = ""
    name: str = ""


class PlannedFaults:
    """Faults in a given order, each used once."""

    def __init__(self, plan: Sequence[Planned] = ()) -> None:
        self.plan = list(plan)
        self._drops: list[str] = []

    def request(self, verb: str, resource: Resource, namespace: str, name: str) -> Fault | None:
        """The first planned fault that matches."""
        for position, planned in enumerate(self.plan):
            wanted = (planned.verb, planned.plural, planned.name)
            if all(not wish or wish == is_ for wish, is_ in zip(wanted, (verb, resource.plural, name), strict=True)):
                del self.plan[position]
                return planned.fault
        return None

    def break_watch(self, resource: Resource) -> None:
        """Breaks one watch of the collection at its next event."""
        self._drops.append(resource.plural)

    def drop_watch(self, resource: Resource) -> bool:
        """Once per `break_watch`."""
        if resource.plural in self._drops:
            self._drops.remove(resource.plural)
            return True
        return False
