"""Replicas that need domains of their own: on distinct ones within their workload, or with nobody else's exclusive
replica beside them (issue 5).

In the search a replica is a slice of which a domain holds one at most; what is taken already has no room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from queue_manager.engine.alone import Alone
from queue_manager.engine.ask import together
from queue_manager.engine.demand import Demand, Placed
from queue_manager.engine.fleet import Fleet, Forest, Ints
from queue_manager.engine.slices import Layer, Layers, layers_of
from queue_manager.engine.workload import Apart, SliceLayer

Range = tuple[int, int]
"""Members of a forest, from and up to."""


class Replicas(Protocol):
    """What equal pods ask for as replicas: a `PodSet` or a `Demand`, see the first."""

    @property
    def distinct(self) -> Apart | None: ...
    @property
    def exclusive(self) -> str: ...
    @property
    def pod_priority(self) -> int: ...


def own_levels(pods: Replicas) -> list[str]:
    """Levels of which each replica needs one domain that no other replica of some kind has."""
    distinct = () if pods.distinct is None else (pods.distinct.level,)
    return [*distinct, *((pods.exclusive,) if pods.exclusive else ())]


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


def standing_ranges(fleet: Fleet, views: Sequence[int], demand: Demand) -> list[Range]:
    """Members of a demand's forest that its replicas can't use because of exclusive ones that stand in some of the
    views."""
    if not demand.exclusive:
        return []
    domains = {one for view in views for one in fleet.alone.taken(view, demand.pod_priority)} - demand.spared
    return list(ranges_around(fleet, demand.forest, demand.exclusive, domains))


def placed_ranges(fleet: Fleet, demand: Demand, placed: Sequence[Placed]) -> list[Range]:
    """The same because of replicas placed in this search."""
    found: list[Range] = []
    for other in placed if own_levels(demand) else ():
        if together(demand.stages, other.demand.stages):
            for level, theirs in in_the_way(demand, other.demand):
                found += ranges_around(fleet, demand.forest, level, domains_of(other, theirs))
    return found


def in_the_way(one: Replicas, other: Replicas) -> Iterator[tuple[str, str]]:
    """Levels of two pod sets of one workload whose domains may not lie in each other."""
    if one.exclusive and other.exclusive and one.pod_priority == other.pod_priority:
        yield one.exclusive, other.exclusive
    if one.distinct is not None and other.distinct is not None and one.distinct.group == other.distinct.group:
        yield one.distinct.level, other.distinct.level


def ranges_around(fleet: Fleet, forest: Forest, level: str, domains: Iterable[Alone]) -> Iterator[Range]:
    """The whole domains of a level of a forest that lie in or around some domains."""
    depth = forest.level_of(level)
    if depth is None:
        return
    starts, ends = forest.levels[depth].starts, forest.levels[depth].ends
    for domain in domains:
        for first, last in fleet.members(forest, domain):
            low, high = np.searchsorted(starts, (first, last - 1), side="right") - 1
            yield int(starts[low]), int(ends[high])


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


def closed(counts: Ints, ranges: Sequence[Range]) -> Ints:
    """The same counts with no room in these ranges; a new array if there are any."""
    if ranges:
        counts = counts.copy()
        for first, last in ranges:
            counts[first:last] = 0
    return counts
