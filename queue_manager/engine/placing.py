"""Between workloads and topology: demands and scopes of an assignment, occupancy of nodes, planned domains,
selectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from queue_manager.engine.alone import Alone
from queue_manager.engine.ask import Ask, PodSetAsk, starts_of, together
from queue_manager.engine.configuration import Configuration, Flavor, labels_of
from queue_manager.engine.decision import DomainCount, PodSetAssignment
from queue_manager.engine.demand import Demand, demand_of
from queue_manager.engine.flavors import Assignment
from queue_manager.engine.fleet import Amounts, Fleet, Forest
from queue_manager.engine.kept import kept_nodes
from queue_manager.engine.kueue_search import KueueSearch
from queue_manager.engine.prepared import (
    asked_around,
    brackets,
    pod_filter,
    request_of,
    shared_request,
)
from queue_manager.engine.ranks import by_rank, is_pinned, shared_domain
from queue_manager.engine.replicas import alone_in, own_levels
from queue_manager.engine.resize import running_pods
from queue_manager.engine.scopes import Misfit, Places, Scope
from queue_manager.engine.slots import places_of
from queue_manager.engine.state import State
from queue_manager.engine.topology import Placement
from queue_manager.engine.tree import EMPTY, NOW
from queue_manager.engine.workload import NO_RULES, TopologyMode, TopologyRequest

NO_TOPOLOGY = "no flavor with a topology is assigned"


def flavors_of(configuration: Configuration, names: Mapping[str, str]) -> list[Flavor]:
    """The distinct flavors that a pod set takes, by name."""
    return [configuration.flavors[name] for name in sorted(set(names.values())) if name in configuration.flavors]


def forest_of(configuration: Configuration, fleet: Fleet, flavors: Sequence[Flavor]) -> Forest | None:
    """The domains in which pods with these flavors are placed; None if none of the flavors has a topology.

    Raises ValueError if the flavors have different topologies.
    """
    names = sorted({flavor.topology for flavor in flavors if flavor.topology in configuration.topologies})
    if not names:
        return None
    if len(names) > 1:
        raise ValueError(f"flavors of one pod set have different topologies: {', '.join(names)}")
    return fleet.forest(configuration.topologies[names[0]].levels, labels_of(flavors))


def forest_of_assigned(state: State, assigned: PodSetAssignment) -> Forest | None:
    """The domains of an admitted pod set, None where its flavors have none or those of another topology by now."""
    try:
        forest = forest_of(state.configuration, state.fleet, flavors_of(state.configuration, assigned.flavors))
    except ValueError:
        return None
    return forest if forest is not None and forest.level_keys == assigned.levels else None


def build_scope(state: State, assignment: Assignment) -> Scope | Misfit | None:
    """What has to be placed on nodes: None if nothing has."""
    ask = assignment.prepared.ask
    known = state.configuration.flavors
    taken = {name for flavors in assignment.flavors for name in flavors.values()}
    if not ask.wants_topology and not any(known[name].topology for name in taken if name in known):
        return None
    groups: dict[int, list[Scope]] = {}
    for unit in ask.units:
        demands: list[Demand] = []
        for index in unit:
            demand = _demand(state, assignment, index)
            if isinstance(demand, Misfit):
                return demand
            if demand is not None:
                demands.append(demand)
        if demands:
            group = ask.pod_sets[unit[0]].group
            groups.setdefault(group, []).append(_unit_scope(ask, unit, demands))
    if not groups:
        return None
    inner = tuple(
        Scope(ask.workload.pod_groups[group].topology, tuple(scopes)) for group, scopes in sorted(groups.items())
    )
    return Scope(ask.workload.topology, inner)


def _unit_scope(ask: Ask, unit: tuple[int, ...], demands: Sequence[Demand]) -> Scope:
    """Pod sets that share a domain: each with its own request inside what they share, or all with one."""
    shared = shared_request(ask, unit)
    if shared is None:
        return Scope(request_of(ask, unit), tuple(demands))
    return Scope(shared, tuple(Scope(request_of(ask, (demand.index,)), (demand,)) for demand in demands))


def _demand(state: State, assignment: Assignment, index: int) -> Demand | Misfit | None:
    ask = assignment.prepared.ask
    pod_set = ask.pod_sets[index]
    flavors = flavors_of(state.configuration, assignment.flavors[index])
    try:
        forest = forest_of(state.configuration, state.fleet, flavors)
    except ValueError as error:
        return _misfit(state, assignment, index, str(error))
    spec, requests = pod_set.pod_set, brackets(ask, pod_set)
    if forest is None:
        if (
            spec.topology is not None
            or any(request.mode is TopologyMode.REQUIRED for request in requests)
            or own_levels(spec)
        ):
            return _misfit(state, assignment, index, NO_TOPOLOGY)
        return None
    pods = pod_filter(pod_set, flavors)
    return replace(
        demand_of(pod_set, index, assignment.counts[index], forest, pods, state.fleet.mask(pods)),
        flavor=next(flavor.name for flavor in flavors if flavor.topology in state.configuration.topologies),
        spared=_spared(state, ask),
        beside=_beside(state, ask, pod_set),
        balanced=_balanced(forest, asked_around(ask, index)),
    )


def _spared(state: State, ask: Ask) -> frozenset[Alone]:
    """What grows goes where the workload is that it belongs to."""
    owner = state.records.get(ask.workload.resizes)
    standing = None if owner is None else owner.standing[NOW]
    return frozenset() if standing is None else standing.alone


def _beside(state: State, ask: Ask, pod_set: PodSetAsk) -> tuple[tuple[str, int], ...]:
    """Where the pods are to which those of a growth are added: the rules of their template hold for all of them."""
    owner = state.records.get(ask.workload.resizes)
    if pod_set.rules == NO_RULES or owner is None or owner.admission is None:
        return ()
    specs = {one.name: one for one in owner.workload.pod_sets}
    assigned = next(one for one in owner.admission.pod_sets if one.name == pod_set.name)
    running = running_pods(specs.get(assigned.name), assigned)
    return tuple(sorted(places_of(owner, assigned, running).items()))


def _balanced(forest: Forest, requests: Sequence[TopologyRequest]) -> str:
    """The level whose domains take equal parts: of a preferred one its own, below a required one the next."""
    for request in requests:
        depth = forest.level_of(request.level)
        if request.balanced and depth is not None:
            below = min(depth + 1, len(forest.level_keys) - 1)
            return forest.level_keys[below if request.mode is TopologyMode.REQUIRED else depth]
    return ""


def alone_of(scope: Scope | None, places: Places) -> frozenset[Alone]:
    """The domains that exclusive replicas of a scope have for themselves in these places."""
    return frozenset() if scope is None else alone_in(scope.demands(), places)


def _misfit(state: State, assignment: Assignment, index: int, why: str) -> Misfit:
    """There are no domains that a pod set could be placed in."""
    pod_set, count = assignment.prepared.ask.pod_sets[index], assignment.counts[index]
    pods = pod_filter(pod_set, flavors_of(state.configuration, assignment.flavors[index]))
    nowhere, no_rows = Forest((), {}, {}, {}), state.fleet.no_rows()
    demand = Demand(index, pod_set.name, count, {}, pod_set.stages, nowhere, pods, no_rows)
    return Misfit(demand, "", (), 0, count, why)


def find_places(state: State, scope: Scope, *views: int) -> Places | Misfit:
    """Nodes for all pods of a scope in what is free in all views, by the rules of the configuration's policies.

    What only somebody who waits can use is left alone if the pods find another place that is as compact.
    """
    searcher = _searcher(state, scope, views)
    places = searcher.place(scope)
    if isinstance(searcher, KueueSearch) or isinstance(places, Misfit) or EMPTY in views:
        return places
    demands = scope.demands()
    most = max(demands, key=lambda one: (one.count, -one.index))
    kept = kept_nodes(state, most, places[most.index])
    if not any(node in kept for nodes in places.values() for node in nodes):
        return places
    others = Placement(state.fleet, views, demands, kept).place(scope)
    if isinstance(others, Misfit) or _spread(scope, others) > _spread(scope, places):
        return places
    return others


def _spread(scope: Scope | Demand, places: Places) -> int:
    """In how many domains of the levels that are preferred or required pods lie."""
    if isinstance(scope, Demand):
        return 0
    spread = sum(_spread(part, places) for part in scope.parts)
    request, demands = scope.request, scope.demands()
    depth = None if request is None or not demands else demands[0].forest.level_of(request.level)
    if depth is not None:
        paths = (one.forest.path_of[node] for one in demands for node in places[one.index])
        spread += len({path[: depth + 1] for path in paths})
    return spread


def still_holds(state: State, scope: Scope, places: Places, *views: int) -> bool:
    """Whether places found earlier are still free."""
    return _searcher(state, scope, views).holds(scope, places)


def _searcher(state: State, scope: Scope, views: tuple[int, ...]) -> Placement | KueueSearch:
    """Kueue knows no request around those of pod sets, and no replicas."""
    outer = scope.request is not None or any(isinstance(part, Scope) and part.request for part in scope.parts)
    ours = any(
        demand.exclusive or demand.distinct or demand.balanced or demand.rules != NO_RULES for demand in scope.demands()
    )
    if state.configuration.policies.fragmentation_aware or outer or ours:
        return Placement(state.fleet, views, scope.demands())
    return KueueSearch(state.fleet, views)


def occupancy_of(ask: Ask, places: Mapping[int, Mapping[str, int]]) -> dict[str, Amounts]:
    """What pods take on nodes: pod sets that can run together add up, over stages the greatest need counts."""
    if len(places) == 1:
        return _of_one(*next((ask.pod_sets[index], nodes) for index, nodes in places.items()))
    starts = starts_of(pod_set.stages for pod_set in ask.pod_sets)
    by_node: dict[str, dict[str, list[int]]] = {}
    for index, nodes in places.items():
        pod_set = ask.pod_sets[index]
        running = [i for i, start in enumerate(starts) if together(pod_set.stages, (start, start))]
        for node, count in nodes.items():
            amounts = by_node.setdefault(node, {})
            for resource, amount in pod_set.node_requests.items():
                sums = amounts.setdefault(resource, [0] * len(starts))
                for i in running:
                    sums[i] += amount * count
    return {
        node: {resource: most for resource, sums in amounts.items() if (most := max(sums)) > 0}
        for node, amounts in by_node.items()
    }


def _affine(state: State, together: Sequence[str], places: Mapping[str, int]) -> dict[str, str]:
    """Labels of the domains in which pod affinity keeps all pods: kube-scheduler, left alone, may choose others."""
    found: dict[str, str] = {}
    for key in together:
        values = {state.fleet.nodes[node].labels.get(key) for node in places}
        value = values.pop() if len(values) == 1 else None
        if value is not None:
            found[key] = value
    return found


def _of_one(pod_set: PodSetAsk, nodes: Mapping[str, int]) -> dict[str, Amounts]:
    """What pods of one pod set take; nodes with as many of them share their amounts."""
    amounts = {n: {r: each * n for r, each in pod_set.node_requests.items() if each > 0} for n in set(nodes.values())}
    return {node: amounts[count] for node, count in nodes.items() if count > 0}


def pod_set_assignment(
    state: State, assignment: Assignment, index: int, places: Mapping[str, int] | None
) -> PodSetAssignment:
    """The decision about one pod set, for the world outside."""
    ask = assignment.prepared.ask
    pod_set = ask.pod_sets[index]
    names = assignment.flavors[index]
    flavors = flavors_of(state.configuration, names)
    selector = labels_of(flavors)
    tolerations = tuple(dict.fromkeys(t for flavor in flavors for t in flavor.tolerations))
    forest = forest_of(state.configuration, state.fleet, flavors)
    levels: tuple[str, ...] = ()
    domains: tuple[DomainCount, ...] | None = None
    pinned = False
    if forest is not None and places is not None:
        levels, domains = forest.level_keys, by_rank(forest, places)
        selector.update(shared_domain(ask, index, forest, domains))
        pinned = is_pinned(ask, index, forest, domains) or _may_be_in_the_way(state, ask, index, places)
        selector.update(_affine(state, pod_set.rules.together, places))
    return PodSetAssignment(
        name=pod_set.name,
        count=assignment.counts[index],
        flavors=dict(names),
        selector=selector,
        levels=levels,
        domains=domains,
        tolerations=tolerations,
        reclaimed=pod_set.pod_set.reclaimed,
        pinned=pinned,
    )


def _may_be_in_the_way(state: State, ask: Ask, index: int, places: Mapping[str, int]) -> bool:
    """Whether pods that ask for a domain have to sit where they are planned although one selector names the domain:
    kube-scheduler, left alone inside it, spreads small pods over nodes that others need whole, and puts pods of one
    set where those of another were to go (design, section 5)."""
    if not ask.wants_topology:
        return False
    own = ask.pod_sets[index]
    if any(state.fleet.room(node, own.node_requests, EMPTY) > 1 for node in places):
        return True
    return any(
        other.count and other.node_requests != own.node_requests and together(other.stages, own.stages)
        for other in ask.pod_sets
    )
