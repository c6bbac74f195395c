"""Where each pod of an admitted workload is: in the order of ranks if it is pinned, by what is bound if it is not.

Domains name places by label values. A node that has gone, or that carries other labels now, is still found by the value
of its host name: what runs there stays counted there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from queue_manager.engine.ask import Ask
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.fleet import Fleet, Forest
from queue_manager.engine.ranks import DomainValues, values_at
from queue_manager.engine.records import Record
from queue_manager.engine.state import State

Where = tuple[DomainValues, str, bool]
"""Domain, node, and whether the pod is lost."""


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one pod of the pod set `index`; `node` is "" where the topology does not go down to nodes. Pods
    that are not pinned have ranks in no meaningful order."""

    index: int
    rank: int
    values: DomainValues
    node: str
    lost: bool


def node_of(fleet: Fleet, forest: Forest | None, values: DomainValues) -> str:
    """The node of a domain of hosts, whatever became of it; the host name itself where no node has it any more."""
    if forest is not None:
        first, last = forest.run(values)
        if first < last:
            return forest.names[first]
    return fleet.host(values[-1]) or values[-1]


def to_hosts(assigned: PodSetAssignment) -> bool:
    """Whether the domains of a pod set are single nodes."""
    return bool(assigned.levels) and assigned.levels[-1] == HOSTNAME


def places_of(record: Record, assigned: PodSetAssignment, count: int) -> dict[str, int]:
    """Where `count` pods of a pod set are: those that are bound where they are, the others where they are planned.

    What is bound beside the plan takes the place of a planned pod unless the pods are pinned: there it is a pod that
    has to go, as one that is `leaving` always is. A leaving pod keeps the place planned for it while it is there.
    """
    bound, leaving = record.bound.get(assigned.name, {}), record.leaving.get(assigned.name, {})
    planned = record.planned.get(assigned.name, {})
    nodes = dict(bound)
    for node, pods in leaving.items():
        nodes[node] = nodes.get(node, 0) + pods
    if assigned.pinned and planned:
        taken = sum(min(pods, planned.get(node, 0)) for node, pods in nodes.items())
    else:
        taken = sum(bound.values())
        taken += sum(min(pods, max(0, planned.get(node, 0) - bound.get(node, 0))) for node, pods in leaving.items())
    still_open = max(0, count - taken)
    for node, pods in sorted(planned.items()):
        here = min(still_open, max(0, pods - nodes.get(node, 0)))
        if here:
            nodes[node] = nodes.get(node, 0) + here
            still_open -= here
    return {node: pods for node, pods in nodes.items() if pods > 0}


def slots_of(
    state: State,
    record: Record,
    index: int,
    assigned: PodSetAssignment,
    count: int,
    forest: Forest | None,
    lost: Collection[str],
) -> list[Slot]:
    """A slot for each pod of a pod set that has domains; `count` pods of it still count: if all of these are elsewhere,
    those that were on lost nodes have finished, and nothing is lost."""
    assert assigned.domains is not None
    alive = _alive(record, assigned, count, lost)
    if assigned.pinned and to_hosts(assigned):
        planned = record.planned.get(assigned.name, {})
        alive = {node: min(pods, planned.get(node, 0)) for node, pods in alive.items()}
        runs = [(run.values, node_of(state.fleet, forest, run.values), run.count) for run in assigned.domains]
        found = [(values, node, node in lost) for values, node, pods in runs for _ in range(pods)]
    elif to_hosts(assigned):
        found = _loose(state, assigned, alive, forest, lost)
    else:
        found = _by_domain(assigned, alive, forest)
    missing = count > sum(alive.values())
    return [Slot(index, rank, values, node, missing and gone) for rank, (values, node, gone) in enumerate(found)]


def _alive(record: Record, assigned: PodSetAssignment, count: int, lost: Collection[str]) -> dict[str, int]:
    """Pods of a pod set by node, without those on lost nodes and those that leave."""
    bound, leaving = record.bound.get(assigned.name, {}), record.leaving.get(assigned.name, {})
    planned = record.planned.get(assigned.name, {})
    alive: dict[str, int] = {}
    for node, pods in places_of(record, assigned, count).items():
        kept = max(0, planned.get(node, 0) - bound.get(node, 0))  # for those that take the place of leaving pods
        pods -= max(0, leaving.get(node, 0) - kept)
        if node not in lost and pods > 0:
            alive[node] = pods
    return alive


def _loose(
    state: State,
    assigned: PodSetAssignment,
    alive: Mapping[str, int],
    forest: Forest | None,
    lost: Collection[str],
) -> list[Where]:
    """Pods that kube-scheduler places: those alive where they are, the others where they were planned."""
    assert assigned.domains is not None
    recorded = {node_of(state.fleet, forest, run.values): run.values for run in assigned.domains}
    found: list[Where] = []
    for node, pods in sorted(alive.items()):
        values = _values(state, assigned, forest, recorded, node)
        found += [(values, node, False)] * pods
    total = sum(run.count for run in assigned.domains)
    gone_runs = [run for run in assigned.domains if node_of(state.fleet, forest, run.values) in lost]
    gone = [run.values for run in gone_runs or assigned.domains for _ in range(run.count)]
    missing = max(0, total - len(found))
    found = found[:total]
    found += [(values, node_of(state.fleet, forest, values), True) for values in (gone * missing)[:missing]]
    return found


def _values(
    state: State,
    assigned: PodSetAssignment,
    forest: Forest | None,
    recorded: Mapping[str, DomainValues],
    node: str,
) -> DomainValues:
    """The domain of a node: as recorded, else as its labels say now."""
    if node in recorded:
        return recorded[node]
    known = state.fleet.nodes.get(node)
    labels = {} if known is None else known.labels
    return values_at(labels, assigned.levels)


def _by_domain(assigned: PodSetAssignment, alive: Mapping[str, int], forest: Forest | None) -> list[Where]:
    """Pods where the narrowest level has several nodes: what is not alive in a domain is lost there."""
    assert assigned.domains is not None
    there: dict[DomainValues, int] = {}
    for node, pods in alive.items():
        values = forest.path_of.get(node) if forest is not None else None
        if values is not None:
            there[values] = there.get(values, 0) + pods
    found: list[Where] = []
    for run in assigned.domains:
        here = min(run.count, there.get(run.values, 0))
        there[run.values] = there.get(run.values, 0) - here
        found += [(run.values, "", False)] * here + [(run.values, "", True)] * (run.count - here)
    return found


def asked_pod_sets(ask: Ask, assigned: tuple[PodSetAssignment, ...]) -> list[tuple[int, PodSetAssignment]]:
    """The pod sets of an ask that an admission has places for, with their index."""
    by_name = {one.name: one for one in assigned}
    return [
        (index, found)
        for index, pod_set in enumerate(ask.pod_sets)
        if (found := by_name.get(pod_set.name)) is not None and found.domains is not None
    ]
