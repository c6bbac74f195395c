"""An ask seen from one queue: which resources take which flavors, and which flavors are out of the question and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from queue_manager.engine.ask import Ask, PodSetAsk, StageSums
from queue_manager.engine.configuration import (
    Cell,
    Configuration,
    Flavor,
    Queue,
    ResourceGroup,
    StopPolicy,
    labels_of,
)
from queue_manager.engine.fleet import PodFilter, show_taint
from queue_manager.engine.outside import stopped_words
from queue_manager.engine.quantities import PODS
from queue_manager.engine.replicas import own_levels
from queue_manager.engine.selectors import flavor_matches, untolerated
from queue_manager.engine.workload import TopologyMode, TopologyRequest


@dataclass(frozen=True, slots=True)
class Option:
    """A flavor of a resource group; `refusal` says why the pods cannot use it at all."""

    flavor: str
    refusal: str


@dataclass(frozen=True, slots=True)
class Need:
    """Resources of one resource group that pod sets of one unit request; they take one flavor together.

    It takes at least `least` of each resource, whatever the others take: less than at full size if it `shrinks`.
    `cells` are those of each usable flavor.
    """

    unit: int
    pod_sets: tuple[int, ...]
    resources: tuple[str, ...]
    options: tuple[Option, ...]
    least: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]
    shrinks: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """All needs of an ask in a queue. `uncovered` are (unit, pod set, resource) that no resource group of the queue
    covers, `unmapped` (pod set, device class) that the settings count as no resource."""

    ask: Ask
    requests: tuple[Mapping[str, int], ...]
    needs: tuple[Need, ...]
    uncovered: tuple[tuple[int, str, str], ...]
    unmapped: tuple[tuple[str, str], ...] = ()

    @property
    def unusable(self) -> bool:
        """Whether its queue has nothing for some of it, whatever is free."""
        return bool(self.uncovered or self.unmapped) or any(not need.cells for need in self.needs)


Layout = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""Resources and flavors of each resource group: all of a queue that decides how an ask is prepared."""


def layout_of(queue: Queue) -> Layout:
    """The layout of a queue."""
    return tuple((group.resources, tuple(q.flavor for q in group.flavors)) for group in queue.resource_groups)


def prepare(ask: Ask, queue: Queue, configuration: Configuration) -> Prepared:
    """Matches an ask with the resource groups of a queue."""
    group_of = {resource: group for group in queue.resource_groups for resource in group.resources}
    requests = tuple(_with_pods(pod_set, PODS in group_of) for pod_set in ask.pod_sets)
    needs: list[Need] = []
    uncovered: list[tuple[int, str, str]] = []
    for unit, members in enumerate(ask.units):
        for index in members:
            uncovered += [
                (unit, ask.pod_sets[index].name, resource)
                for resource in requests[index]
                if resource not in group_of
                and not configuration.resources.ignore_undeclared
                and any(amount > 0 for _, amount in ask.pod_sets[index].needs(resource, 1))
            ]
        for group in queue.resource_groups:
            resources = tuple(r for r in group.resources if any(r in requests[index] for index in members))
            if resources:
                pod_sets = [ask.pod_sets[index] for index in members]
                options = tuple(
                    Option(q.flavor, _refusal(q.flavor, pod_sets, ask, queue, configuration)) for q in group.flavors
                )
                usable = tuple(option.flavor for option in options if not option.refusal)
                cells = tuple(cells_of(flavor, resources) for flavor in usable)
                least = _least(ask, members, resources, requests)
                needs.append(Need(unit, members, resources, options, least, cells, ask.shrinkable > 0))
    unmapped = tuple((pod_set.name, name) for pod_set in ask.pod_sets for name in pod_set.unmapped)
    return Prepared(ask, requests, tuple(needs), tuple(uncovered), unmapped)


@cache
def cells_of(flavor: str, resources: tuple[str, ...]) -> tuple[Cell, ...]:
    """The cells of a flavor, in the order of the resources. The same objects each time: there are few of them."""
    return tuple(Cell(flavor, resource) for resource in resources)


def _least(
    ask: Ask, members: tuple[int, ...], resources: tuple[str, ...], requests: tuple[Mapping[str, int], ...]
) -> tuple[int, ...]:
    """What pod sets take of each resource when they are as small as they may be."""
    counts = ask.shrunk(ask.shrinkable) if ask.shrinkable else ask.counts
    sums = StageSums(pod_set.stages for pod_set in ask.pod_sets)
    return tuple(
        sums.with_more(
            Cell("", resource),
            [
                part
                for member in members
                if resource in requests[member]
                for part in ask.pod_sets[member].needs(resource, counts[member])
            ],
        )
        for resource in resources
    )


def _with_pods(pod_set: PodSetAsk, covered: bool) -> Mapping[str, int]:
    """Requests of one pod; a pod counts 1 of `pods` where the queue has a quota for them."""
    if not covered:
        return pod_set.requests
    return {**pod_set.requests, PODS: max(1, pod_set.requests.get(PODS, 0))}


def _refusal(name: str, pod_sets: list[PodSetAsk], ask: Ask, queue: Queue, configuration: Configuration) -> str:
    """Why the pods cannot use a flavor whatever its quota, "" if they can (kueue.md 2.5a)."""
    flavor = configuration.flavors.get(name)
    if flavor is None:
        return f"flavor {name} does not exist"
    if flavor.stop_policy is not StopPolicy.NONE:
        return stopped_words(f"flavor {name}", flavor.stop_policy, flavor.stopped)
    for pod_set in pod_sets:
        spec = pod_set.pod_set
        refusal = _topology_refusal(flavor, pod_set, ask, queue, configuration)
        if refusal:
            return refusal
        taint = untolerated(flavor.node_taints, spec.tolerations, flavor.tolerations)
        if taint is not None:
            return f"taint {show_taint(taint)} of flavor {name} is not tolerated"
        if not flavor_matches(flavor.node_labels, spec.node_selector, spec.node_affinity):
            return f"flavor {name} does not match the node selector or affinity"
    return ""


def brackets(ask: Ask, pod_set: PodSetAsk) -> tuple[TopologyRequest, ...]:
    """Topology requests that hold for a pod set, the innermost first."""
    group = ask.workload.pod_groups[pod_set.group]
    own = pod_set.pod_set
    return tuple(r for r in (own.topology, own.group_topology, group.topology, ask.workload.topology) if r is not None)


def shared_request(ask: Ask, unit: tuple[int, ...]) -> TopologyRequest | None:
    """What pod sets that share a domain ask for together, around what each asks for itself; that of the largest."""
    found = [ask.pod_sets[index] for index in unit if ask.pod_sets[index].pod_set.group_topology is not None]
    return max(found, key=lambda pod_set: pod_set.count).pod_set.group_topology if found else None


def request_of(ask: Ask, unit: tuple[int, ...]) -> TopologyRequest | None:
    """The request of a pod set, or of pod sets that share a domain: that of the largest one which has any. Slices asked
    for around it hold for each of its pod sets."""
    found = [ask.pod_sets[index] for index in unit if ask.pod_sets[index].pod_set.topology is not None]
    own = max(found, key=lambda pod_set: pod_set.count).pod_set.topology if found else None
    around = [request.slices for request in brackets(ask, ask.pod_sets[unit[0]]) if request.slices]
    if around and (own is None or not own.slices):
        return replace(own or TopologyRequest(TopologyMode.UNCONSTRAINED), slices=around[0])
    return own


def asked_around(ask: Ask, index: int) -> tuple[TopologyRequest, ...]:
    """Topology requests that hold for a pod set, the innermost first; that of the pod sets which share its domain
    stands for its own, unless they say around their own what they share."""
    group = ask.workload.pod_groups[ask.pod_sets[index].group]
    unit = next(unit for unit in ask.units if index in unit)
    shared = shared_request(ask, unit)
    own = request_of(ask, unit if shared is None else (index,))
    return tuple(r for r in (own, shared, group.topology, ask.workload.topology) if r is not None)


def _topology_refusal(flavor: Flavor, pod_set: PodSetAsk, ask: Ask, queue: Queue, configuration: Configuration) -> str:
    own = pod_set.pod_set.topology
    wanted = [r for r in brackets(ask, pod_set) if r is own or r.mode is TopologyMode.REQUIRED]
    levels = [request.level for request in wanted if request.mode is not TopologyMode.UNCONSTRAINED]
    levels += own_levels(pod_set.pod_set)
    if not flavor.topology:
        return f"flavor {flavor.name} has no topology" if wanted or levels else ""
    topology = configuration.topologies.get(flavor.topology)
    if topology is None:
        return f"topology {flavor.topology} of flavor {flavor.name} does not exist"
    for level in levels:
        if level not in topology.levels:
            return f"topology {topology.name} of flavor {flavor.name} has no level {level}"
    if (
        own is None
        and not wanted
        and not levels
        and not configuration.policies.implied_topology
        and _mixed(queue.resource_groups, configuration)
    ):
        return f"flavor {flavor.name} is for pods with a topology request only"
    return ""


def _mixed(groups: tuple[ResourceGroup, ...], configuration: Configuration) -> bool:
    """Whether some flavor of a queue has no topology."""
    names = [quotas.flavor for group in groups for quotas in group.flavors]
    return any(not flavor.topology for name in names if (flavor := configuration.flavors.get(name)) is not None)


def pod_filter(pod_set: PodSetAsk, flavors: list[Flavor]) -> PodFilter:
    """Which nodes the pods may go to when they have these flavors."""
    selector = {**pod_set.pod_set.node_selector, **labels_of(flavors)}
    tolerations = list(pod_set.pod_set.tolerations)
    for flavor in flavors:
        tolerations.extend(flavor.tolerations)
    return PodFilter(tuple(sorted(selector.items())), pod_set.pod_set.node_affinity, tuple(tolerations))
