"""What one search has to place: equal pods, and where it has put them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_manager.engine.alone import Alone
from queue_manager.engine.ask import PodSetAsk
from queue_manager.engine.fleet import Forest, Ints, Mask, PodFilter
from queue_manager.engine.workload import NO_RULES, Apart, PodRules


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Equal pods to place: `count` of them, `requests` each (`pods` included), on the nodes of a forest that `pods`
    lets them use. `flavor` is the one with the topology.

    For `replica_size`, `distinct`, `exclusive`, `pod_priority` and `rules` see `PodSet`; domains that are `spared` are
    the replica's own, though taken. `balanced` is the level whose domains take equal parts, "" for none. `beside` are
    the pods of the same pod set that run already, by node, where these grow.
    """

    index: int
    name: str
    count: int
    requests: Mapping[str, int]
    stages: tuple[int, int]
    forest: Forest
    pods: PodFilter
    mask: Mask
    flavor: str = ""
    replica_size: int = 0
    distinct: Apart | None = None
    exclusive: str = ""
    pod_priority: int = 0
    spared: frozenset[Alone] = frozenset()
    balanced: str = ""
    rules: PodRules = NO_RULES
    beside: tuple[tuple[str, int], ...] = ()

    @property
    def in_replica(self) -> int:
        """Pods of a replica."""
        return min(self.replica_size or self.count, self.count)

    @property
    def replicas(self) -> int:
        """How many replicas the pods are."""
        return -(-self.count // self.in_replica) if self.count else 0


def demand_of(pod_set: PodSetAsk, index: int, count: int, forest: Forest, pods: PodFilter, mask: Mask) -> Demand:
    """So many pods of a pod set to place in the domains of a forest."""
    spec = pod_set.pod_set
    return Demand(
        index,
        pod_set.name,
        count,
        pod_set.node_requests,
        pod_set.stages,
        forest,
        pods,
        mask,
        replica_size=spec.replica_size,
        distinct=spec.distinct,
        exclusive=spec.exclusive,
        pod_priority=spec.pod_priority,
        rules=pod_set.rules,
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods of a demand on members of its forest; a member is named once."""

    demand: Demand
    members: Ints
    counts: Ints
