"""Admitted workloads counted anew: after a restart, when pods are bound, when pods are reclaimed or come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from queue_manager.engine.alone import Alone
from queue_manager.engine.ask import Ask, StageSums, ask_of
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.fleet import Forest, exclusion
from queue_manager.engine.placing import flavors_of, forest_of, forest_of_assigned, occupancy_of
from queue_manager.engine.prepared import pod_filter
from queue_manager.engine.quantities import PODS
from queue_manager.engine.ranks import totals, values_at
from queue_manager.engine.records import Phase, Record, Standing
from queue_manager.engine.resize import running_pods, shrunk
from queue_manager.engine.slots import node_of, places_of, to_hosts
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, NOW
from queue_manager.engine.workload import Workload


def stub(admission: Admission) -> Workload:
    """Stands for a workload that is not known yet: charged, and nobody's victim until it is told of."""
    return Workload(admission.uid, "", admission.uid, admission.queue, 0, (), preemptible=False)


def count_again(state: State, record: Record) -> None:
    """Sets charge and nodes of an admitted or draining workload from its admission, reclaimed pods and bound pods."""
    assert record.admission is not None
    ask = ask_of(record.workload, state.configuration)
    counts = _counts(ask, record.admission)
    state.unplaced.add(record.uid)
    standing = Standing(
        record.admission.queue,
        _charge(ask, record.admission, counts),
        _places(ask, record, counts),
        _alone(state, record, ask),
    )
    if record.standing[NOW] == standing and (record.phase is not Phase.ADMITTED or record.standing[FUTURE] == standing):
        return  # a pod bound where it was planned is no news to those who wait
    state.touch(record)
    state.stand(record, NOW, standing)
    if record.phase is Phase.ADMITTED:
        state.stand(record, FUTURE, standing)
    state.touch(record)


def count_domains_again(state: State, node: str) -> None:
    """A node has other labels: exclusive replicas with pods there have another domain for themselves now, too."""
    for uid in sorted(uid for uid, record in state.records.items() if _is_alone_on(record, node)):
        count_again(state, state.records[uid])


def _is_alone_on(record: Record, node: str) -> bool:
    standing = record.standing[NOW]
    if standing is None or not standing.alone or record.admission is None:
        return False
    return any(node in nodes for nodes in (*record.bound.values(), *record.leaving.values()))


def charge_with(state: State, admission: Admission, workload: Workload) -> Mapping[Cell, int]:
    """What an admission is charged when its workload looks like this (other counts). Changes nothing."""
    ask = ask_of(workload, state.configuration)
    return _charge(ask, admission, _counts(ask, admission))


def settle_places(state: State) -> None:
    """Finds nodes for admissions that name domains only, or whose domains had no node so far; whoever still lacks some
    is looked at again. Order: uid."""
    for uid in sorted(state.unplaced):
        record = state.records.get(uid)
        if record is None or record.admission is None:
            state.unplaced.discard(uid)
            continue
        assigned = record.admission.pod_sets
        planned = {p.name: nodes for p in assigned if (nodes := _planned(state, record, p)) is not None}
        if planned != record.planned:
            record.planned = planned
            count_again(state, record)
        if all(sum(planned.get(p.name, {}).values()) == _asked(p) for p in assigned):
            state.unplaced.discard(uid)


def _asked(assigned: PodSetAssignment) -> int:
    """Pods that domains are recorded for."""
    return sum(domain.count for domain in assigned.domains or ())


def shrunk_admission(state: State, record: Record, counts: Mapping[str, int]) -> Admission:
    """The admission of an elastic workload with fewer pods (pod set -> pods), charged accordingly. Changes nothing."""
    assert record.admission is not None
    bound: dict[str, dict[tuple[str, ...], int]] = {}
    for assigned in record.admission.pod_sets:
        domains = bound.setdefault(assigned.name, {})
        for name, count in record.bound.get(assigned.name, {}).items():
            labels = state.fleet.nodes[name].labels if name in state.fleet.nodes else {}
            values = values_at(labels, assigned.levels)
            domains[values] = domains.get(values, 0) + count
    smaller = shrunk(record.admission, counts, bound)
    ask = ask_of(record.workload, state.configuration)
    return replace(smaller, charge=_charge_of_pods(ask, smaller, {p.name: p.count for p in smaller.pod_sets}))


def _counts(ask: Ask, admission: Admission) -> dict[str, int]:
    """Pods that count now."""
    pod_sets = {pod_set.name: pod_set.pod_set for pod_set in ask.pod_sets}
    return {p.name: running_pods(pod_sets.get(p.name), p) for p in admission.pod_sets}


def _charge(ask: Ask, admission: Admission, counts: Mapping[str, int]) -> Mapping[Cell, int]:
    """The recorded charge while as many pods count as were admitted, else what the pods that count need."""
    assigned = {p.name: p for p in admission.pod_sets}
    if all(counts[name] == p.count for name, p in assigned.items()) or not ask.pod_sets:
        return admission.charge
    return _charge_of_pods(ask, admission, counts)


def _charge_of_pods(ask: Ask, admission: Admission, counts: Mapping[str, int]) -> Mapping[Cell, int]:
    """What so many pods need in the flavors that they have."""
    assigned = {p.name: p for p in admission.pod_sets}
    sums = StageSums(pod_set.stages for pod_set in ask.pod_sets)
    for pod_set in ask.pod_sets:
        found = assigned.get(pod_set.name)
        for resource, flavor in found.flavors.items() if found is not None else ():
            for stages, amount in pod_set.needs(resource, counts[pod_set.name]):
                sums.add(Cell(flavor, resource), stages, amount)
    return sums.charge()


def _places(ask: Ask, record: Record, counts: Mapping[str, int]) -> Mapping[str, Mapping[str, int]]:
    """What the workload takes on nodes."""
    assert record.admission is not None
    assigned = {p.name: p for p in record.admission.pod_sets}
    return occupancy_of(
        ask,
        {
            index: places_of(record, assigned[pod_set.name], counts[pod_set.name])
            for index, pod_set in enumerate(ask.pod_sets)
            if pod_set.name in assigned
        },
    )


def _alone(state: State, record: Record, ask: Ask) -> frozenset[Alone]:
    """The domains that exclusive replicas have for themselves: those admitted, and those where pods still are."""
    assert record.admission is not None
    assigned = {p.name: p for p in record.admission.pod_sets}
    found: set[Alone] = set()
    for pod_set in ask.pod_sets:
        spec, known = pod_set.pod_set, assigned.get(pod_set.name)
        if known is None or not spec.exclusive:
            continue
        nodes = (*record.bound.get(pod_set.name, ()), *record.leaving.get(pod_set.name, ()))
        forest = _forest_now(state, known) if nodes else None
        there = {forest.path_of[node] for node in nodes if node in forest.path_of} if forest is not None else set()
        places = [(known.levels, {domain.values for domain in known.domains or ()})]
        places += [(forest.level_keys, there)] if forest is not None else []
        for levels, paths in places:
            if spec.exclusive in levels:
                depth = levels.index(spec.exclusive) + 1
                found.update(Alone(spec.pod_priority, levels[:depth], path[:depth]) for path in paths)
    return frozenset(found)


def _forest_now(state: State, assigned: PodSetAssignment) -> Forest | None:
    """The domains of the flavors of a pod set as they are now, of whatever topology; None if they have none in
    common."""
    try:
        return forest_of(state.configuration, state.fleet, flavors_of(state.configuration, assigned.flavors))
    except ValueError:
        return None


def _planned(state: State, record: Record, assigned: PodSetAssignment) -> Mapping[str, int] | None:
    """Planned nodes of a pod set. Nodes planned before stay; domains without them are filled with what room their
    nodes have."""
    if assigned.domains is None:
        return None
    known = record.planned.get(assigned.name)
    if known is not None and sum(known.values()) == _asked(assigned):
        return known
    forest = forest_of_assigned(state, assigned)
    if forest is None and not to_hosts(assigned):
        return known
    planned: dict[str, int] = {}
    for values, pods in totals(assigned.domains).items():
        if to_hosts(assigned):
            found = [(node_of(state.fleet, forest, values), pods)]
        else:
            assert forest is not None
            there = [(n, c) for n, c in (known or {}).items() if forest.path_of.get(n) == values]
            settled = sum(count for _, count in there) == pods
            found = there if settled else _fill(state, record, assigned, forest, values, pods)
        for node, count in found:
            planned[node] = planned.get(node, 0) + count
    return planned


def _fill(
    state: State, record: Record, assigned: PodSetAssignment, forest: Forest, values: tuple[str, ...], count: int
) -> list[tuple[str, int]]:
    """Spreads pods over the usable nodes of a domain by room, the emptiest first; what exceeds the room goes to the
    first node."""
    names = forest.names[slice(*forest.run(values))]
    if len(names) < 2:
        return [(name, count) for name in names]
    room = _room(state, record, assigned, names)
    found: list[tuple[str, int]] = []
    for name in sorted(names, key=lambda n: (-room[n], n)):
        here = min(count, room[name])
        if here:
            found.append((name, here))
            count -= here
    return [*found, (min(names), count)] if count else found


def _room(state: State, record: Record, assigned: PodSetAssignment, names: Sequence[str]) -> dict[str, int]:
    """How many pods of a pod set each node has room for, none where they may not go now."""
    fleet, ask = state.fleet, ask_of(record.workload, state.configuration)
    pod_set = next((p for p in ask.pod_sets if p.name == assigned.name), None)
    if pod_set is None:
        return {name: fleet.room(name, {PODS: 1}, NOW) for name in names}
    pods = pod_filter(pod_set, flavors_of(state.configuration, assigned.flavors))
    return {
        name: 0 if exclusion(fleet.nodes[name], pods) else fleet.room(name, pod_set.node_requests, NOW)
        for name in names
    }
