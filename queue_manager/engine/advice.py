"""Advice on fragments: where a gang that no domain holds comes nearest, and what runs there (design, section 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from queue_manager.engine.clearing import held
from queue_manager.engine.demand import Demand
from queue_manager.engine.scopes import Misfit
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE


@dataclass(frozen=True, slots=True)
class Advice:
    """`together` pods fit on all nodes at once; `room` of them in the nearest domain, `most` there if it were empty.

    `occupants` are those whose pods keep others out there: uid and for how many pods there were room without it, the
    largest first.
    """

    together: int
    values: tuple[str, ...]
    room: int
    most: int
    occupants: tuple[tuple[str, int], ...]


def exclusive_holders(state: State, demand: Demand) -> list[tuple[tuple[str, ...], str]]:
    """Domains in which an exclusive demand finds another exclusive replica, and whose that is; in order of domain."""
    found: set[tuple[tuple[str, ...], str]] = set()
    for record in state.records.values() if demand.exclusive else ():
        for standing in record.standing:
            for domain in standing.alone - demand.spared if standing is not None else ():
                if domain.priority == demand.pod_priority and state.fleet.members(demand.forest, domain):
                    found.add((domain.values, record.uid))
    return sorted(found)


def advise(state: State, misfit: Misfit) -> Advice | None:
    """The nearest domain of the level that a pod set did not fit in; None where there is none, or where the pod set
    fits alone and only not beside the others of its workload, or not in whole slices."""
    demand, fleet = misfit.demand, state.fleet
    forest = demand.forest
    depth = forest.level_of(misfit.level)
    if depth is None or not len(forest.names):
        return None
    level = forest.levels[depth]
    counts = fleet.counts(forest, demand.pods, demand.requests, FUTURE)
    room = np.add.reduceat(counts, level.starts)
    empty = fleet.counts(forest, demand.pods, demand.requests, EMPTY)
    most = np.add.reduceat(empty, level.starts)
    if int(room.max()) >= misfit.wanted:
        return None
    able = most >= misfit.wanted
    nearest = int(np.argmax(np.where(able, room, -1) if able.any() else most))
    found = []
    for record in state.records.values():
        pods = held(record, demand, depth, empty).get(nearest, 0)
        if pods:
            found.append((record.uid, pods))
    found.sort(key=lambda one: (-one[1], one[0]))
    return Advice(int(counts.sum()), level.values[nearest], int(room[nearest]), int(most[nearest]), tuple(found))
