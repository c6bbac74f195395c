"""Brackets around what has to lie together, and what a search for places answers."""

from __future__ import annotations

from dataclasses import dataclass

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Forest
from queue_manager.engine.workload import TopologyRequest


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A bracket around what must (or should) lie in one domain."""

    request: TopologyRequest | None
    parts: tuple[Scope | Demand, ...]

    def demands(self) -> list[Demand]:
        """All demands inside, in order."""
        found: list[Demand] = []
        for part in self.parts:
            found.extend([part] if isinstance(part, Demand) else part.demands())
        return found

    def wanted(self) -> Scope | None:
        """The same without pod sets that have no pods (all have finished, or none were asked for); None if no pod set
        has any."""
        if all(demand.count for demand in self.demands()):
            return self if self.parts else None
        kept = (part if isinstance(part, Demand) else part.wanted() for part in self.parts)
        parts = tuple(part for part in kept if part is not None and not (isinstance(part, Demand) and not part.count))
        return Scope(self.request, parts) if parts else None


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain, by the values of its level and the wider ones."""

    level_keys: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why pods could not be placed: at most `best` of `wanted` fit, in domain `values` of `level` ("" is anywhere)."""

    demand: Demand
    level: str
    values: tuple[str, ...]
    best: int
    wanted: int
    note: str = ""


Places = dict[int, dict[str, int]]
"""Index of pod set -> node -> number of pods."""


def run_of(forest: Forest, within: Domain | None) -> tuple[int, int]:
    """The members of a forest that lie in a domain, as a range."""
    if within is None or not within.values:
        return forest.run(())
    return forest.run(within.values) if within.level_keys == forest.level_keys else (0, 0)


def no_level(demand: Demand, level: str) -> Misfit:
    """The request names a level that the topology does not have."""
    return Misfit(demand, level, (), 0, demand.count, f"the topology has no level {level}")
