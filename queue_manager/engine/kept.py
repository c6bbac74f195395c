"""Nodes that waiting workloads need: what they alone can use is left alone by whoever has another place (issue 4,
policy `fragmentation_aware`)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from queue_manager.engine.ask import PodSetAsk
from queue_manager.engine.demand import Demand, Placed
from queue_manager.engine.fleet import Forest, Ints
from queue_manager.engine.pending import Group
from queue_manager.engine.prepared import brackets, pod_filter
from queue_manager.engine.quantities import PODS
from queue_manager.engine.room import Room
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE
from queue_manager.engine.workload import TopologyMode

MOST_SHAPES = 16
"""How many kinds of workloads are looked at, of those that stand in front of a queue."""


def kept_nodes(state: State, demand: Demand, places: Mapping[str, int]) -> frozenset[str]:
    """Nodes of the last domains that somebody who waits could use, if pods in these places would leave him too few."""
    kept: set[str] = set()
    members = np.array([demand.forest.member_of[name] for name in places], dtype=np.int64)
    taken = Placed(demand, members, np.array(list(places.values()), dtype=np.int64))
    for group in _waiting(state):
        ask = group.prepared.ask
        pod_set = max(ask.pod_sets, key=lambda one: (one.count, one.pod_set.name), default=None)
        if pod_set is None or not _is_larger(pod_set, demand) or not _takes(group, demand.flavor):
            continue
        pods = pod_filter(pod_set, [state.configuration.flavors[demand.flavor]])
        spec = pod_set.pod_set
        other = Demand(
            0,
            "",
            pod_set.count,
            pod_set.node_requests,
            demand.stages,
            demand.forest,
            pods,
            state.fleet.mask(pods),
            replica_size=spec.replica_size,
            exclusive=spec.exclusive,
            pod_priority=spec.pod_priority,
        )
        depth = _required_depth(group, pod_set, demand.forest)
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
    alone = demand.forest.level_of(demand.exclusive)
    if alone is not None:
        level = demand.forest.levels[alone]
        holds = np.add.reduceat(counts, level.starts) >= demand.in_replica
        return _Able(int(holds.sum()) // demand.replicas, np.flatnonzero(np.repeat(holds, level.ends - level.starts)))
    if depth is None:
        return _Able(int(counts.sum()) // demand.count, np.flatnonzero(counts))
    level = demand.forest.levels[depth]
    fits = np.add.reduceat(counts, level.starts) // demand.count
    return _Able(int(fits.sum()), np.flatnonzero(np.repeat(fits > 0, level.ends - level.starts)))


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


def _required_depth(group: Group, pod_set: PodSetAsk, forest: Forest) -> int | None:
    """The widest level of which one domain has to hold the pods; None if any nodes will do."""
    depths = [
        depth
        for request in brackets(group.prepared.ask, pod_set)
        if request.mode is TopologyMode.REQUIRED and (depth := forest.level_of(request.level)) is not None
    ]
    return min(depths, default=None)
