"""Room for the pods of a running gang that need other nodes, beside what the gang itself has on the nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from queue_manager.engine.ask import Ask, together
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet, Forest, Ints
from queue_manager.engine.ranks import DomainValues
from queue_manager.engine.tree import FUTURE, NOW


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One pod set: what it was given, and what its pods ask of their new places. `most` is how many of its pods the
    largest node holds when it is empty."""

    assigned: PodSetAssignment
    demand: Demand
    most: int

    @property
    def index(self) -> int:
        return self.demand.index

    @property
    def forest(self) -> Forest:
        return self.demand.forest


@dataclass(slots=True)
class ReplacingRoom:
    """Pods that fit on each member of each part's forest. Pod sets that never run at the same time may use the same
    room: what is taken counts by stage. Lost nodes have none."""

    fleet: Fleet
    ask: Ask
    lost: frozenset[str]
    counts: dict[int, Ints] = field(default_factory=dict)
    _parts: list[Part] = field(default_factory=list)
    _used: dict[str, list[dict[str, int]]] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Measures a part."""
        demand = part.demand
        now, future = (self.fleet.counts(part.forest, demand.pods, demand.requests, view) for view in (NOW, FUTURE))
        counts = np.minimum(now, future)
        for name in self.lost:
            if name in part.forest.member_of:
                counts[part.forest.member_of[name]] = 0
        self.counts[part.index] = counts
        self._parts.append(part)
        for name in self._used:
            self._measure(part, name)

    def put(self, index: int, name: str, pods: int) -> None:
        """Puts pods of a pod set on a node; takes them away where `pods` is negative."""
        used = self._used.setdefault(name, [{} for _ in self.ask.pod_sets])
        for stage in self._stages(index):
            for resource, amount in self.ask.pod_sets[index].node_requests.items():
                used[stage][resource] = used[stage].get(resource, 0) + amount * pods
        for part in self._parts:
            self._measure(part, name)

    def inside(self, part: Part, values: DomainValues) -> int:
        """How many pods of a part fit in a domain."""
        first, last = part.forest.run(values)
        return int(self.counts[part.index][first:last].sum())

    def _stages(self, index: int) -> list[int]:
        """The starts of stages, by pod set that starts there, at which the pods of a pod set run."""
        own = self.ask.pod_sets[index].stages
        starts = (other.stages[0] for other in self.ask.pod_sets)
        return [i for i, start in enumerate(starts) if together(own, (start, start))]

    def _measure(self, part: Part, name: str) -> None:
        member = part.forest.member_of.get(name)
        if member is None or name in self.lost or not self.fleet.mask(part.demand.pods)[part.forest.rows[member]]:
            return
        fits: list[int] = []
        for view in (NOW, FUTURE):
            free = self.fleet.free_on(self.fleet.nodes[name], view)
            for resource, amount in part.demand.requests.items():
                most = max(self._used[name][stage].get(resource, 0) for stage in self._stages(part.index))
                fits.append((free(resource) - most) // amount)
        self.counts[part.index][member] = max(0, min(fits))
