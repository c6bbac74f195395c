"""What one shape of workload asks for, prepared once for all workloads of the shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from queue_manager.engine.configuration import Cell, Configuration
from queue_manager.engine.quantities import PODS, added, port_resource
from queue_manager.engine.workload import NO_RULES, Devices, PodRules, PodSet, Requests, Workload

Shape = tuple[object, ...]
"""Workloads of equal shape in one queue differ in nothing that decides whether they can be admitted, save their age."""


def _pod_set_shape(pod_set: PodSet) -> Shape:
    return (
        pod_set.name,
        pod_set.count,
        pod_set.reclaimed,
        tuple(sorted(pod_set.requests.items())),
        pod_set.stages,
        pod_set.min_count,
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.node_affinity,
        pod_set.tolerations,
        pod_set.topology,
        pod_set.podset_group,
        pod_set.group_topology,
        pod_set.host_ports,
        _devices_shape(pod_set.devices),
        pod_set.replica_size,
        pod_set.distinct,
        pod_set.exclusive,
        pod_set.pod_priority,
        pod_set.rules,
    )


def _devices_shape(devices: Devices) -> Shape:
    shared = tuple((claim.name, tuple(sorted(claim.devices.items()))) for claim in devices.shared)
    return (tuple(sorted(devices.each.items())), shared, tuple(sorted(devices.backed.items())))


def shape_of(workload: Workload) -> Shape:
    """The shape of a workload: all it asks for, and its rank."""
    groups = tuple(
        (g.name, g.policy, g.minimum, g.topology, tuple(_pod_set_shape(p) for p in g.pod_sets))
        for g in workload.pod_groups
    )
    return (workload.priority, workload.may_preempt, workload.topology, groups, workload.resizes)


@dataclass(frozen=True, slots=True)
class PodSetAsk:
    """One pod set as the engine counts it, `stages` as policy has it.

    `requests` is what quota counts of one pod, `node_requests` what a pod asks of its node. `shared` is counted once
    for all its pods, during `shared_stages`: claims that several pod sets share are with the first of them.
    `rules` are those of the pod template, none where policy does not heed them. `unmapped` are device classes that no
    rule counts.
    """

    pod_set: PodSet
    group: int
    count: int
    least: int
    requests: Requests
    node_requests: Requests
    stages: tuple[int, int]
    shared: Requests
    shared_stages: tuple[int, int]
    unmapped: tuple[str, ...]
    rules: PodRules

    @property
    def name(self) -> str:
        """The pod set's name."""
        return self.pod_set.name

    def needs(self, resource: str, count: int) -> list[tuple[tuple[int, int], int]]:
        """What `count` of its pods need of a resource, as stages and amounts. A pod counts at least 1 of `pods`."""
        each = self.requests.get(resource, 0)
        found = [(self.stages, (max(1, each) if resource == PODS else each) * count)]
        if count and resource in self.shared:
            found.append((self.shared_stages, self.shared[resource]))
        return found


@dataclass(frozen=True, slots=True)
class Ask:
    """All pod sets of a workload; `units` are indexes of pod sets that must share flavors and a domain."""

    workload: Workload
    pod_sets: tuple[PodSetAsk, ...]
    units: tuple[tuple[int, ...], ...]
    wants_topology: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Full size: the count of each pod set without reclaimed pods."""
        return tuple(pod_set.count for pod_set in self.pod_sets)

    @property
    def shrinkable(self) -> int:
        """By how many pods the workload could be smaller."""
        return sum(pod_set.count - pod_set.least for pod_set in self.pod_sets)

    def shrunk(self, steps: int) -> tuple[int, ...]:
        """Counts after `steps` of `shrinkable` steps, all pod sets in proportion (kueue.md 2.5, partial admission)."""
        total = self.shrinkable
        return tuple(p.count - (p.count - p.least) * steps // total for p in self.pod_sets)


def ask_of(workload: Workload, configuration: Configuration) -> Ask:
    """Prepares a workload under a configuration."""
    pod_sets = [
        _pod_set_ask(pod_set, group, configuration)
        for group, pod_group in enumerate(workload.pod_groups)
        for pod_set in pod_group.pod_sets
    ]
    if any(pod_set.pod_set.devices.shared for pod_set in pod_sets):
        pod_sets = _with_shared_claims(pod_sets, configuration)
    units: dict[tuple[int, str], list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        shared = pod_set.pod_set.podset_group
        units.setdefault((pod_set.group, shared) if shared else (-1 - index, ""), []).append(index)
    wants_topology = any(
        level is not None
        for level in (
            workload.topology,
            *(group.topology for group in workload.pod_groups),
            *(level for pod_set in workload.pod_sets for level in (pod_set.topology, pod_set.group_topology)),
            *(level for pod_set in workload.pod_sets for level in (pod_set.distinct, pod_set.exclusive or None)),
        )
    )
    return Ask(workload, tuple(pod_sets), tuple(tuple(unit) for unit in units.values()), wants_topology)


def _pod_set_ask(pod_set: PodSet, group: int, configuration: Configuration) -> PodSetAsk:
    rules, backed = configuration.resources, pod_set.devices.backed
    counted = rules.counted(pod_set.requests)
    devices, unmapped = rules.counted_devices(pod_set.devices.each)
    for resource in backed:
        counted.pop(resource, None)
    # A backed resource without a mapping keeps its own name.
    served = [{rules.device_classes.get(c, r): pod_set.requests.get(r, 0)} for r, c in sorted(backed.items())]
    requests = added(counted, devices, *served)
    count = max(0, pod_set.count - pod_set.reclaimed)
    least = count if pod_set.min_count is None else min(count, max(0, pod_set.min_count - pod_set.reclaimed))
    stages = pod_set.stages if configuration.policies.stages else (0, 0)
    on_node = {r: amount for r, amount in pod_set.requests.items() if amount > 0 and r not in backed}
    on_node[PODS] = max(1, on_node.get(PODS, 0))
    if configuration.policies.host_ports:
        on_node.update({port_resource(port): 1 for port in pod_set.host_ports})
    template = pod_set.rules if configuration.policies.pod_rules else NO_RULES
    return PodSetAsk(pod_set, group, count, least, requests, on_node, stages, {}, stages, unmapped, template)


def _with_shared_claims(pod_sets: list[PodSetAsk], configuration: Configuration) -> list[PodSetAsk]:
    """Gives each shared claim to the first pod set with pods that names it, while any of those that do can run."""
    users: dict[str, list[int]] = {}
    claims = {claim.name: claim for pod_set in pod_sets for claim in pod_set.pod_set.devices.shared}
    for index, pod_set in enumerate(pod_sets):
        for claim in pod_set.pod_set.devices.shared:
            users.setdefault(claim.name, []).append(index)
    found = list(pod_sets)
    for name in sorted(claims):
        owner = next((index for index in users[name] if pod_sets[index].count), users[name][0])
        counted, unmapped = configuration.resources.counted_devices(claims[name].devices)
        stages = [pod_sets[index].stages for index in users[name]]
        old = found[owner]
        found[owner] = replace(
            old,
            requests={**dict.fromkeys(counted, 0), **old.requests},
            shared=added(old.shared, counted),
            shared_stages=(
                min(old.shared_stages[0], *(first for first, _ in stages)),
                max(old.shared_stages[1], *(last for _, last in stages)),
            ),
            unmapped=tuple(sorted({*old.unmapped, *unmapped})),
        )
    return found


def together(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether pods with these stages can run at the same time."""
    return one[0] <= other[1] and other[0] <= one[1]


def starts_of(stages: Iterable[tuple[int, int]]) -> list[int]:
    """The stages at which something starts, in order: the greatest sum of closed intervals is reached at one of them,
    so only these matter."""
    return sorted({first for first, _ in stages})


class StageSums:
    """Amounts by key and stage; pod sets that can run together are summed, the charge is the greatest need of a
    stage."""

    __slots__ = ("_starts", "_sums")

    def __init__(self, stages: Iterable[tuple[int, int]]) -> None:
        self._starts = starts_of(stages)
        self._sums: dict[Cell, list[int]] = {}

    def add(self, cell: Cell, stages: tuple[int, int], amount: int) -> None:
        """Adds what one pod set needs of a cell while it runs."""
        sums = self._sums.setdefault(cell, [0] * len(self._starts))
        for index, start in enumerate(self._starts):
            if stages[0] <= start <= stages[1]:
                sums[index] += amount

    @property
    def empty(self) -> bool:
        """Whether nothing was added."""
        return not self._sums

    def with_more(self, cell: Cell, more: Sequence[tuple[tuple[int, int], int]]) -> int:
        """The charge of a cell if pod sets with these stages and amounts were added."""
        sums = self._sums.get(cell)
        if len(self._starts) == 1:
            return (sums[0] if sums else 0) + sum(amount for _, amount in more)
        return max(
            (sums[index] if sums else 0) + sum(amount for (first, last), amount in more if first <= start <= last)
            for index, start in enumerate(self._starts)
        )

    def charge(self) -> dict[Cell, int]:
        """The charge of every cell; cells with nothing to charge are left out."""
        return {cell: greatest for cell, sums in self._sums.items() if (greatest := max(sums)) > 0}
