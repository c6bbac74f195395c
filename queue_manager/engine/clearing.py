"""Which domain to clear for a workload that needs nodes: the one that costs least, not the first (policy
`location_aware_victims`; kueue.md 2.11 says what Kueue does instead)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet, Ints
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
        if victims and (not best or cost_of(victims) < least):
            best, least = victims, cost_of(victims)
    return best


def promising(fleet: Fleet, scope: Scope, candidates: Iterable[Record]) -> list[frozenset[str]]:
    """Nodes of the domains that seem cheapest to clear for the largest pod set, the cheapest first; of several domains
    together where its replicas or slices need several."""
    demand = max(scope.demands(), key=lambda one: (one.count, -one.index))
    forest, around = demand.forest, _required(scope, demand)
    if not forest.level_keys or not len(forest.names):
        return []
    records = list(candidates)
    found: list[frozenset[str]] = []
    part, depth = _part(scope, demand), len(forest.level_keys) - 1 if around is None else around
    if part is not None and part.size < demand.count:
        found += _several(_Prices.of(fleet, demand, records, part.depth), part, around)
        if part.single:
            return found
    elif part is not None:
        depth = part.depth
    prices = _Prices.of(fleet, demand, records, depth)
    ranked = [(*price, i) for i in prices.occupants if (price := prices.of_pods(i, demand.count)) is not None]
    found += [prices.nodes([i]) for *_, i in sorted(ranked)[:MOST_DOMAINS]]
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Pods that need a domain of a level together: a replica, of which a domain holds one at most (`single`), or a
    slice."""

    depth: int
    size: int
    single: bool


@dataclass(frozen=True, slots=True)
class _Prices:
    """Of each domain of a level the pods of a demand that fit now and at most, and who is in their way there."""

    demand: Demand
    depth: int
    room: Ints
    most: Ints
    occupants: dict[int, list[Occupant]]

    @classmethod
    def of(cls, fleet: Fleet, demand: Demand, records: list[Record], depth: int) -> _Prices:
        """Looks at the domains of a level."""
        forest, level = demand.forest, demand.forest.levels[depth]
        free = fleet.counts(forest, demand.pods, demand.requests, FUTURE)
        room = np.add.reduceat(closed(free, standing_ranges(fleet, (FUTURE,), demand)), level.starts)
        empty = fleet.counts(forest, demand.pods, demand.requests, EMPTY)
        most = np.add.reduceat(empty, level.starts)
        occupants: dict[int, list[Occupant]] = {}
        for record in records:
            pods_in = held(record, demand, depth, empty)
            pods_in.update(dict.fromkeys(_taken_by(fleet, record, demand, depth), demand.count))
            rank = NO_RANK if record.hold is not None else record.workload.priority
            for domain, pods in pods_in.items():
                occupants.setdefault(domain, []).append(Occupant(rank, pods))
        return cls(demand, depth, room, most, occupants)

    def of_pods(self, domain: int, pods: int) -> Cost | None:
        """What room for so many pods in a domain costs, roughly; None if there can't be any."""
        if self.most[domain] < pods:
            return None
        return _guess(self.occupants.get(domain, []), pods - int(self.room[domain]))

    def nodes(self, domains: Iterable[int]) -> frozenset[str]:
        """The nodes of some domains."""
        names, level = self.demand.forest.names, self.demand.forest.levels[self.depth]
        return frozenset(n for i in domains for n in names[int(level.starts[i]) : int(level.ends[i])])


def _several(prices: _Prices, part: _Part, around: int | None) -> list[frozenset[str]]:
    """The domains that are cheapest together, inside one domain of the level that is required around them."""
    forest = prices.demand.forest
    outer: dict[tuple[str, ...], list[int]] = {}
    for domain, values in enumerate(forest.levels[part.depth].values):
        outer.setdefault(() if around is None else values[: around + 1], []).append(domain)
    ranked: list[tuple[int, int, tuple[int, ...]]] = []
    for domains in outer.values():
        chosen = _cheapest_parts(prices, part, domains)
        if chosen is not None:
            ranked.append(chosen)
    return [prices.nodes(domains) for *_, domains in sorted(ranked)[:MOST_DOMAINS] if domains]


def _cheapest_parts(prices: _Prices, part: _Part, domains: list[int]) -> tuple[int, int, tuple[int, ...]] | None:
    """Highest rank, number of victims and domains with victims where all parts get room, taken one by one."""
    heap: list[tuple[int, int, int, int, Cost]] = []

    def offer(domain: int, parts: int, before: Cost) -> None:
        price = prices.of_pods(domain, parts * part.size)
        if price is not None:
            heapq.heappush(heap, (price[0], price[1] - before[1], domain, parts, price))

    for domain in domains:
        offer(domain, 1, (NO_RANK, 0))
    highest, number, cleared = NO_RANK, 0, set[int]()
    for _ in range(-(-prices.demand.count // part.size)):
        if not heap:
            return None
        rank, more, domain, parts, price = heapq.heappop(heap)
        highest, number = max(highest, rank), number + more
        if price[1]:
            cleared.add(domain)
        if not part.single:
            offer(domain, parts + 1, price)
    return highest, number, tuple(sorted(cleared))


def _part(scope: Scope, demand: Demand) -> _Part | None:
    """The replicas or the outermost slices of a demand; None if it has neither, or the topology no such level."""
    own = [depth for key in own_levels(demand) if (depth := demand.forest.level_of(key)) is not None]
    if own:
        return _Part(max(own), demand.in_replica, single=True)
    request = _inner(scope, demand).request
    depth = demand.forest.level_of(request.slices[0].level) if request is not None and request.slices else None
    return None if request is None or depth is None else _Part(depth, request.slices[0].size, single=False)


def _inner(scope: Scope, demand: Demand) -> Scope:
    """The narrowest bracket around a demand."""
    inner = next((one for one in scope.parts if isinstance(one, Scope) and demand in one.demands()), None)
    return scope if inner is None else _inner(inner, demand)


def _required(scope: Scope, demand: Demand) -> int | None:
    """Index of the widest level of which one domain is required around a demand, None without one."""
    request = scope.request
    if request is not None and request.mode is TopologyMode.REQUIRED:
        return demand.forest.level_of(request.level)
    inner = next((one for one in scope.parts if isinstance(one, Scope) and demand in one.demands()), None)
    return None if inner is None else _required(inner, demand)


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


def held(record: Record, demand: Demand, depth: int, most: Ints) -> dict[int, int]:
    """Domain of a level -> pods of the demand for which there is room where the workload's pods are; `most` is how many
    fit on each member of its forest when that is empty."""
    standing, level = record.standing[FUTURE], demand.forest.levels[depth]
    found: dict[int, int] = {}
    for node, amounts in (standing.places if standing is not None else {}).items():
        path = demand.forest.path_of.get(node)
        if path is not None:
            pods = max((-(-amounts.get(r, 0) // amount) for r, amount in demand.requests.items()), default=0)
            domain = level.index[path[: depth + 1]]
            found[domain] = found.get(domain, 0) + min(pods, int(most[demand.forest.member_of[node]]))
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
