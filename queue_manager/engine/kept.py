"""Nodes that waiting workloads need: what they alone can use is left alone by whoever has another place (issue 4,
policy `fragmentation_aware`)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from queue_manager.engine.ask import Ask, PodSetAsk
from queue_manager.engine.demand import Demand, Placed, demand_of
from queue_manager.engine.fleet import Forest, Ints
from queue_manager.engine.pending import Group
from queue_manager.engine.prepared import asked_around, pod_filter
from queue_manager.engine.quantities import PODS
from queue_manager.engine.replicas import own_levels
from queue_manager.engine.room import Room
from queue_manager.engine.slices import Layer, Layers, capacity
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE
from queue_manager.engine.workload import TopologyMode

MOST_SHAPES = 16
"""How many kinds of workloads are looked at, of those that stand in front of a queue."""


def kept_nodes(state: State, demand: Demand, places: Mapping[str, int]) -> frozenset[str]:
    """Nodes of the last domains that somebody who waits could use, if pods in these places would leave him too few."""
    kept: set[str] = set()
    members = np.array([demand.forest.member_of[name] for name in places], dtype=np.int64)
    theirs = replace(demand, distinct=None)  # replicas of another workload are no matter to it
    taken = Placed(theirs, members, np.array(list(places.values()), dtype=np.int64))
    for group in _waiting(state):
        ask = group.prepared.ask
        index = max(range(len(ask.pod_sets)), key=lambda i: (ask.pod_sets[i].count, ask.pod_sets[i].name), default=None)
        if index is None or not _is_larger(ask.pod_sets[index], demand) or not _takes(group, demand.flavor):
            continue
        pod_set = ask.pod_sets[index]
        pods = pod_filter(pod_set, [state.configuration.flavors[demand.flavor]])
        other = demand_of(pod_set, index, pod_set.count, demand.forest, pods, state.fleet.mask(pods))
        other = replace(other, stages=demand.stages)
        depth = _required_depth(ask, index, demand.forest)
        room = Room(state.fleet, (FUTURE,), [demand.stages[0]])
        able = _able(other, room.counts(other), depth)
        room.placed.append(taken)
        left = _able(other, room.counts(other), depth)
        if left.times < min(able.times, len(group.members)):
            kept.update(demand.forest.names[member] for member in able.members.tolist())
    return frozenset(kept)


class _Able(NamedTuple):
    """How many workloads of a kind there is room for, and the members where."""

    times: int
    members: Ints


def _able(demand: Demand, counts: Ints, depth: int | None) -> _Able:
    if not len(counts) or demand.count <= 0:
        return _Able(0, np.zeros(0, dtype=np.int64))
    forest = demand.forest
    if _replica_layers(demand):
        return _able_in_replicas(demand, counts, depth)
    if depth is None:
        return _Able(int(counts.sum()) // demand.count, np.flatnonzero(counts))
    level = forest.levels[depth]
    fits = np.add.reduceat(counts, level.starts) // demand.count
    return _Able(int(fits.sum()), np.flatnonzero(np.repeat(fits > 0, level.ends - level.starts)))


def _replica_layers(demand: Demand) -> Layers:
    """Replicas that need domains of their own as slices, in whose domain no other may be where they are exclusive."""
    depths = {key: depth for key in own_levels(demand) if (depth := demand.forest.level_of(key)) is not None}
    return tuple(
        Layer(depth, demand.in_replica, key == demand.exclusive)
        for key, depth in sorted(depths.items(), key=lambda item: item[1])
    )


def _able_in_replicas(demand: Demand, counts: Ints, depth: int | None) -> _Able:
    """No two replicas of a workload in one domain of the widest level that they need for themselves."""
    layers = _replica_layers(demand)
    level = demand.forest.levels[layers[0].depth]
    held = capacity(demand.forest, counts, layers) // demand.in_replica
    around = demand.forest.levels[depth].starts if depth is not None and depth < layers[0].depth else level.starts[:1]
    times = 0
    inside = np.zeros(len(held), dtype=np.bool_)
    bounds = [*np.searchsorted(level.starts, around).tolist(), len(held)]
    for first, last in pairwise(bounds):
        here = _times(held[first:last], demand.replicas)
        times += here
        inside[first:last] = here > 0
    return _Able(times, np.flatnonzero(np.repeat(inside & (held > 0), level.ends - level.starts)))


def _times(held: Ints, replicas: int) -> int:
    """How often so many replicas, each in another domain, find room in domains that hold so many each."""
    low, high = 0, int(held.sum()) // replicas
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(np.minimum(held, middle).sum()) >= middle * replicas else (low, middle - 1)
    return low


def _waiting(state: State) -> Iterator[Group]:
    """The first of each queue, the highest rank first, one of each shape."""
    records = state.records

    def group_of(uid: str) -> Group | None:
        return records[uid].group

    fronts = [front for queue in state.queues.values() if (front := queue.pending.front(group_of))]
    ordered = heapq.merge(*fronts, key=itemgetter(0))
    return (group for _, group in islice(ordered, MOST_SHAPES))


def _is_larger(pod_set: PodSetAsk, demand: Demand) -> bool:
    """Whether pods of a set take as much as those of a demand in all, and more each or in one domain."""
    theirs, ours = pod_set.node_requests, demand.requests
    named = [resource for resource in ours if resource != PODS]
    as_much = all(theirs.get(name, 0) * pod_set.count >= ours[name] * demand.count for name in named)
    return as_much and (pod_set.count > demand.count or any(theirs.get(name, 0) > ours[name] for name in named))


def _takes(group: Group, flavor: str) -> bool:
    return any(cells and cells[0].flavor == flavor for need in group.prepared.needs for cells in need.cells)


def _required_depth(ask: Ask, index: int, forest: Forest) -> int | None:
    """The widest level of which one domain has to hold the pods; None if any nodes will do."""
    depths = [
        depth
        for request in asked_around(ask, index)
        if request.mode is TopologyMode.REQUIRED and (depth := forest.level_of(request.level)) is not None
    ]
    return min(depths, default=None)
