"""Rules of the pod template where pods of a running gang get other nodes: one pod after another beside those that stay,
as kube-scheduler would look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from queue_manager.engine.configuration import Node
from queue_manager.engine.fleet import Ints, Mask
from queue_manager.engine.pod_rules import domains_of
from queue_manager.engine.ranks import DomainValues
from queue_manager.engine.replacing_room import Part
from queue_manager.engine.selectors import affine, selects


def next_member(
    part: Part, nodes: Mapping[str, Node], counts: Ints, beside: Sequence[str], old: DomainValues, within: DomainValues
) -> int | None:
    """The member for one more pod inside a domain beside those on the nodes `beside`; None if the rules allow none.
    Where fewest are comes first, then what is nearest to the old place, then the tightest."""
    there = [member for name in beside if (member := part.forest.member_of.get(name)) is not None]
    allowed, crowd = _allowed(part, nodes, there)
    allowed &= counts > 0
    inside = np.zeros(len(counts), dtype=np.bool_)
    inside[slice(*part.run(within))] = True
    members = np.flatnonzero(allowed & inside)
    if not len(members):
        return None
    near = np.zeros(len(counts), dtype=np.int64)
    for depth in range(1, len(old) + 1):
        near[slice(*part.run(old[:depth]))] = depth
    order = np.lexsort((members, counts[members], -near[members], crowd[members]))
    return int(members[order[0]])


def _allowed(part: Part, nodes: Mapping[str, Node], there: Sequence[int]) -> tuple[Mask, Ints]:
    """The members where the rules allow one more pod, and how many pods are in the domains of spread rules there."""
    rules, forest = part.rules, part.forest
    allowed = np.ones(len(forest.names), dtype=np.bool_)
    crowd = np.zeros(len(forest.names), dtype=np.int64)
    for key in rules.apart:
        numbers = domains_of(forest, nodes, key)
        allowed &= (numbers < 0) | ~np.isin(numbers, numbers[list(there)])
    for key in rules.together:
        numbers = domains_of(forest, nodes, key)
        allowed &= (numbers == numbers[there[0]]) if there else (numbers >= 0)
    for rule in rules.spread:
        numbers = domains_of(forest, nodes, rule.key)
        pods = np.bincount(numbers[list(there)][numbers[list(there)] >= 0], minlength=int(numbers.max(initial=0)) + 1)
        counted = [
            n for n, name in zip(numbers.tolist(), forest.names, strict=True) if n >= 0 and _admits(part, nodes, name)
        ]
        least = 0 if rule.min_domains > 1 or not counted else int(pods[counted].min())
        allowed &= (numbers >= 0) & (pods[numbers] + 1 - least <= rule.max_skew)
        crowd += pods[numbers]
    return allowed, crowd


def _admits(part: Part, nodes: Mapping[str, Node], name: str) -> bool:
    labels = nodes[name].labels
    return selects(dict(part.pods.selector), labels) and affine(part.pods.affinity, labels, name)
