"""Which domain to clear for a workload that needs nodes: the one that costs least, not the first (policy
`location_aware_victims`; kueue.md 2.11 says what Kueue does instead)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet
from queue_manager.engine.nomination import Victim
from queue_manager.engine.records import Record
from queue_manager.engine.replicas import closed, own_levels, standing_ranges
from queue_manager.engine.scopes import Scope
from queue_manager.engine.tree import EMPTY, FUTURE
from queue_manager.engine.workload import TopologyMode

MOST_DOMAINS = 8
"""Domains for which victims are really searched: those that seem cheapest."""

Cost = tuple[int, int]
"""Highest rank among the victims, and their number; what is only kept for somebody costs nothing. Of equal ones those
stay that the order of eviction names first: the ones that started last."""


NO_RANK = -(1 << 40)
"""Below every priority: of whoever runs no pods."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A workload that may go, and how many pods of the demand its own pods keep out of one domain."""

    priority: int
    pods: int


def cost_of(victims: Iterable[Victim]) -> Cost:
    """What evicting them all costs; less is better."""
    running = [victim.record for victim in victims if victim.record.hold is None]
    return (max((record.workload.priority for record in running), default=NO_RANK), len(running))


def cheapest(
    fleet: Fleet,
    scope: Scope,
    candidates: Iterable[Record],
    first: list[Victim],
    find: Callable[[frozenset[str]], list[Victim]],
) -> list[Victim]:
    """The cheapest victims: `first`, or those that `find` names when only workloads on these nodes may go."""
    best, least = first, cost_of(first)
    for nodes in promising(fleet, scope, candidates):
        victims = find(nodes)
        if victims and (cost := cost_of(victims)) < least:
            best, least = victims, cost
    return best


def promising(fleet: Fleet, scope: Scope, candidates: Iterable[Record]) -> list[frozenset[str]]:
    """Nodes of the domains that seem cheapest to clear for the largest pod set, the cheapest first."""
    demand = max(scope.demands(), key=lambda one: (one.count, -one.index))
    forest, depth = demand.forest, _depth(scope, demand)
    if not forest.level_keys or not len(forest.names) or (own_levels(demand) and demand.replicas > 1):
        return []
    level = forest.levels[depth]
    free = fleet.counts(forest, demand.pods, demand.requests, FUTURE)
    room = np.add.reduceat(closed(free, standing_ranges(fleet, (FUTURE,), demand)), level.starts)
    most = np.add.reduceat(fleet.counts(forest, demand.pods, demand.requests, EMPTY), level.starts)
    able = most >= demand.count
    occupants: dict[int, list[Occupant]] = {}
    for record in candidates:
        pods_in = held(record, demand, depth)
        pods_in.update(dict.fromkeys(_taken_by(fleet, record, demand, depth), demand.count))
        for domain, pods in pods_in.items():
            if able[domain]:
                rank = NO_RANK if record.hold is not None else record.workload.priority
                occupants.setdefault(domain, []).append(Occupant(rank, pods))
    ranked: list[tuple[int, int, int]] = []
    for domain, found in occupants.items():
        guess = _guess(found, demand.count - int(room[domain]))
        if guess is not None:
            ranked.append((*guess, domain))
    return [
        frozenset(forest.names[int(level.starts[domain]) : int(level.ends[domain])])
        for _, _, domain in sorted(ranked)[:MOST_DOMAINS]
    ]


def _depth(scope: Scope | Demand, demand: Demand) -> int:
    """Index of the level of which a replica needs a domain for itself, or of the widest one of which one domain is
    required around a demand, else the lowest level."""
    own = [depth for key in own_levels(demand) if (depth := demand.forest.level_of(key)) is not None]
    lowest = len(demand.forest.level_keys) - 1
    if own or isinstance(scope, Demand):
        return max(own, default=lowest)
    request = scope.request
    if request is not None and request.mode is TopologyMode.REQUIRED:
        depth = demand.forest.level_of(request.level)
        return lowest if depth is None else depth
    inner = [part for part in scope.parts if part is demand or (isinstance(part, Scope) and demand in part.demands())]
    return _depth(inner[0], demand) if inner else lowest


def _taken_by(fleet: Fleet, record: Record, demand: Demand, depth: int) -> set[int]:
    """Domains of a level that an exclusive demand can't have because of a workload's exclusive replicas."""
    standing, level = record.standing[FUTURE], demand.forest.levels[depth]
    found: set[int] = set()
    for domain in standing.alone if standing is not None and demand.exclusive else ():
        if domain.priority == demand.pod_priority and domain not in demand.spared:
            for first, last in fleet.members(demand.forest, domain):
                low, high = np.searchsorted(level.starts, (first, last - 1), side="right")
                found.update(range(int(low) - 1, int(high)))
    return found


def held(record: Record, demand: Demand, depth: int) -> dict[int, int]:
    """Domain of a level -> pods of the demand for which there is room where the workload's pods are."""
    standing, level = record.standing[FUTURE], demand.forest.levels[depth]
    found: dict[int, int] = {}
    for node, amounts in (standing.places if standing is not None else {}).items():
        path = demand.forest.path_of.get(node)
        if path is not None:
            pods = max((-(-amounts.get(r, 0) // amount) for r, amount in demand.requests.items()), default=0)
            domain = level.index[path[: depth + 1]]
            found[domain] = found.get(domain, 0) + pods
    return found


def _guess(occupants: list[Occupant], missing: int) -> tuple[int, int] | None:
    """Highest rank and number of those who would have to go, roughly; None if all of them are not enough."""
    number = 0
    highest = NO_RANK
    for occupant in sorted(occupants, key=lambda one: (one.priority, -one.pods)):
        if missing <= 0:
            break
        missing -= occupant.pods
        number, highest = number + 1, max(highest, occupant.priority)
    return None if missing > 0 else (highest, number)
