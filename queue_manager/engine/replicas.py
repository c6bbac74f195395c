"""Replicas that need domains of their own: on distinct ones within their workload, or with nobody else's exclusive
replica beside them (issue 5).

In the search a replica is a slice of which a domain holds one at most; what is taken already has no room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from queue_manager.engine.alone import Alone
from queue_manager.engine.demand import Demand, Placed
from queue_manager.engine.fleet import Fleet, Forest, Ints
from queue_manager.engine.slices import Layer, Layers, layers_of
from queue_manager.engine.workload import SliceLayer

Ranges = Iterator[tuple[int, int]]
"""Members of a forest, from and up to."""


def own_levels(demand: Demand) -> list[str]:
    """Levels of which each replica of a demand needs one domain that no other replica of some kind has."""
    distinct = () if demand.distinct is None else (demand.distinct.level,)
    return [*distinct, *((demand.exclusive,) if demand.exclusive else ())]


def layers_for(demand: Demand, wanted: Sequence[SliceLayer], depth: int, one_domain: int, top: int) -> Layers | str:
    """Slices and replicas of a demand inside a domain whose children have level `top`, or what is wrong with them.

    The pods are asked for in one domain of level `depth`; they have to lie in one of `one_domain` (-1 for none).
    """
    keys = demand.forest.level_keys
    slices = layers_of(keys, wanted, depth)
    if isinstance(slices, str):
        return slices
    found = [layer for layer in slices if layer.depth >= top]
    for level in own_levels(demand):
        here = demand.forest.level_of(level)
        if here is None:
            return f"the topology has no level {level}"
        size = demand.in_replica
        if here > one_domain:
            found.append(Layer(here, size, single=True))
        elif size < demand.count:
            return (
                f"each of its {demand.replicas} replicas needs a {level} of its own, "
                f"and all of them have to lie in one {keys[one_domain]}"
            )
    found.sort(key=lambda layer: (layer.depth, -layer.size, not layer.single))
    for outer, inner in itertools.pairwise(found):
        if outer.size % inner.size:
            return (
                f"slices of {inner.size} pods do not divide replicas of {outer.size}"
                if outer.single
                else (f"replicas of {inner.size} pods do not divide slices of {outer.size}")
            )
    return tuple(found)


def taken_ranges(fleet: Fleet, views: Sequence[int], demand: Demand, placed: Sequence[Placed]) -> Ranges:
    """Members of a demand's forest that its replicas can't use because of other replicas: those that stand in some of
    the views, and those placed in this search."""
    forest = demand.forest
    if demand.exclusive:
        depth = forest.level_of(demand.exclusive)
        for view in views:
            for domain in fleet.alone.taken(view, demand.pod_priority):
                if domain not in demand.spared:
                    yield from _widened(forest, depth, fleet.members(forest, domain))
    for other in placed:
        if not _run_together(demand, other.demand):
            continue
        for level, theirs in _in_the_way(demand, other.demand):
            depth = forest.level_of(level)
            for domain in domains_of(other, theirs):
                yield from _widened(forest, depth, fleet.members(forest, domain))


def taken_domains(
    fleet: Fleet, views: Sequence[int], forest: Forest, level: str, priority: int
) -> set[tuple[str, ...]]:
    """Domains of a level of a forest that no exclusive replica of a pod priority can have."""
    depth = forest.level_of(level)
    found: set[tuple[str, ...]] = set()
    for view in views if depth is not None else ():
        for domain in fleet.alone.taken(view, priority):
            for first, last in _widened(forest, depth, fleet.members(forest, domain)):
                paths = (forest.path_of[forest.names[member]] for member in range(first, last))
                found.update(path[: depth + 1] for path in paths if depth is not None)
    return found


def _in_the_way(demand: Demand, other: Demand) -> Iterator[tuple[str, str]]:
    """Levels of two demands whose domains may not lie in each other."""
    if demand.exclusive and other.exclusive and demand.pod_priority == other.pod_priority:
        yield demand.exclusive, other.exclusive
    if demand.distinct is not None and other.distinct is not None and demand.distinct.group == other.distinct.group:
        yield demand.distinct.level, other.distinct.level


def _run_together(one: Demand, other: Demand) -> bool:
    return one.stages[0] <= other.stages[1] and other.stages[0] <= one.stages[1]


def _widened(forest: Forest, depth: int | None, ranges: Sequence[tuple[int, int]]) -> Ranges:
    """The whole domains of a level around ranges of members."""
    if depth is None:
        return
    level = forest.levels[depth]
    for first, last in ranges:
        low, high = np.searchsorted(level.starts, (first, last - 1), side="right") - 1
        yield int(level.starts[low]), int(level.ends[high])


def domains_of(placed: Placed, level: str) -> list[Alone]:
    """The domains of a level in which placed pods lie, in order."""
    return _domains(placed.demand, level, (placed.demand.forest.names[i] for i in placed.members.tolist()))


def _domains(demand: Demand, level: str, nodes: Iterator[str] | Sequence[str]) -> list[Alone]:
    forest = demand.forest
    depth = forest.level_of(level)
    if depth is None:
        return []
    keys = forest.level_keys[: depth + 1]
    paths = {forest.path_of[node][: depth + 1] for node in nodes if node in forest.path_of}
    return [Alone(demand.pod_priority, keys, path) for path in sorted(paths)]


def alone_in(demands: Sequence[Demand], places: Mapping[int, Mapping[str, int]]) -> frozenset[Alone]:
    """The domains that exclusive replicas have for themselves on these nodes."""
    return frozenset(
        domain
        for demand in demands
        if demand.exclusive
        for domain in _domains(demand, demand.exclusive, list(places.get(demand.index, ())))
    )


def closed(counts: Ints, ranges: Ranges) -> Ints:
    """The same counts with no room in these ranges; a new array if there are any."""
    found = list(ranges)
    if found:
        counts = counts.copy()
        for first, last in found:
            counts[first:last] = 0
    return counts
