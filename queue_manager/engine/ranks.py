"""Places in the order of ranks: runs of pods, the lowest ranks first, neighbours in rank being neighbours in topology.

Inside the engine places are node -> count. An admission names them by rank, since a pinned pod has to go to exactly the
place of its rank (issue 5). A domain may occur in several runs once pods were replaced or added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from queue_manager.engine.ask import Ask
from queue_manager.engine.decision import DomainCount
from queue_manager.engine.fleet import Forest
from queue_manager.engine.prepared import asked_around
from queue_manager.engine.workload import TopologyMode

DomainValues = tuple[str, ...]


def by_rank(forest: Forest, places: Mapping[str, int]) -> tuple[DomainCount, ...]:
    """Planned nodes as domains of the narrowest level, in the order of paths."""
    return tuple(DomainCount(path, count) for path, count in sorted(totals_of(forest, places).items()))


def totals(runs: Iterable[DomainCount]) -> dict[DomainValues, int]:
    """Pods by domain, in the order in which domains come first."""
    counts: dict[DomainValues, int] = {}
    for run in runs:
        counts[run.values] = counts.get(run.values, 0) + run.count
    return counts


def values_at(labels: Mapping[str, str], levels: Sequence[str]) -> DomainValues:
    """The domain of a node with these labels, "" for a level whose label it lacks."""
    return tuple(labels.get(key, "") for key in levels)


def totals_of(forest: Forest, places: Mapping[str, int]) -> dict[DomainValues, int]:
    """Pods by domain of the narrowest level."""
    counts: dict[DomainValues, int] = {}
    for node, count in places.items():
        path = forest.path_of[node]
        counts[path] = counts.get(path, 0) + count
    return counts


def joined(runs: Iterable[DomainCount]) -> tuple[DomainCount, ...]:
    """The same pods in the same order, neighbouring runs of one domain made one, empty ones left out."""
    found: list[DomainCount] = []
    for run in runs:
        if found and found[-1].values == run.values:
            found[-1] = DomainCount(run.values, found[-1].count + run.count)
        elif run.count:
            found.append(run)
    return tuple(found)


def kept(runs: Sequence[DomainCount], count: int, bound: Mapping[DomainValues, int]) -> tuple[DomainCount, ...]:
    """The runs of so many pods as stay: where pods are bound (domain -> pods) first, then the lowest ranks."""
    left = dict(bound)
    stay: list[int] = []
    for run in runs:
        here = min(count, run.count, left.get(run.values, 0))
        left[run.values] = left.get(run.values, 0) - here
        stay.append(here)
        count -= here
    for index, run in enumerate(runs):
        more = min(count, run.count - stay[index])
        stay[index] += more
        count -= more
    return joined(DomainCount(run.values, here) for run, here in zip(runs, stay, strict=True))


def shared_domain(ask: Ask, index: int, forest: Forest, domains: Sequence[DomainCount]) -> dict[str, str]:
    """Labels of the narrowest level asked for in whose one domain all pods of a pod set lie, and of the wider ones."""
    for depth in sorted(_depths(ask, index, forest), reverse=True):
        values = {domain.values[: depth + 1] for domain in domains}
        if len(values) == 1:
            return dict(zip(forest.level_keys, values.pop(), strict=False))
    return {}


def is_pinned(ask: Ask, index: int, forest: Forest, domains: Sequence[DomainCount]) -> bool:
    """Whether the places of a pod set can't be said by one selector, so that each pod has to go to the place of its
    rank. Pods that ask for nothing are free on the nodes of their flavor."""
    own, requests = ask.pod_sets[index], asked_around(ask, index)
    if any(request.slices or request.balanced for request in requests) or own.pod_set.distinct is not None:
        return True
    if own.rules.spread or own.rules.apart:
        return True
    if requests and requests[0].mode is TopologyMode.UNCONSTRAINED:
        return True
    return any(len({domain.values[: depth + 1] for domain in domains}) > 1 for depth in _depths(ask, index, forest))


def _depths(ask: Ask, index: int, forest: Forest) -> set[int]:
    """Levels of which one domain is asked for, by a request, for an exclusive replica or by pod affinity."""
    levels = [one.level for one in asked_around(ask, index) if one.mode is not TopologyMode.UNCONSTRAINED]
    own = ask.pod_sets[index]
    levels += [own.pod_set.exclusive, *own.rules.together]
    return {depth for level in levels if (depth := forest.level_of(level)) is not None}
