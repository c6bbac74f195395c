"""Rules of the pod template where pods of a running gang get other nodes: one pod after another beside those that stay,
as kube-scheduler would look at them."""

from __future__ import annotations

import numpy as np

from queue_manager.engine.demand import Demand
from queue_manager.engine.fleet import Fleet, Ints, Mask
from queue_manager.engine.pod_rules import counted, domains_of
from queue_manager.engine.ranks import DomainValues


class Beside:
    """The pods of one pod set beside which others are to be placed, by node."""

    def __init__(self, demand: Demand, fleet: Fleet) -> None:
        self._demand = demand
        self._nodes = fleet.nodes
        self._counted = np.flatnonzero(counted(fleet, demand.forest, demand.pods, demand.rules))
        self._pods: Ints = np.zeros(len(demand.forest.names), dtype=np.int64)

    def shift(self, node: str, by: int) -> None:
        """Counts pods on a node; none on a node that is in no domain any more."""
        member = self._demand.forest.member_of.get(node)
        if member is not None:
            self._pods[member] += by

    def member(self, counts: Ints, old: DomainValues, within: DomainValues) -> int | None:
        """The member for one more pod inside a domain, so many having room on each; None if the rules allow none.
        Where fewest are comes first, then what is nearest to the old place, then the tightest."""
        allowed, crowd = self._allowed()
        first, last = self._demand.forest.run(within)
        members = first + np.flatnonzero(allowed[first:last] & (counts[first:last] > 0))
        if not len(members):
            return None
        near = np.zeros(len(counts), dtype=np.int64)
        for depth in range(1, len(old) + 1):
            near[slice(*self._demand.forest.run(old[:depth]))] = depth
        order = np.lexsort((members, counts[members], -near[members], crowd[members]))
        return int(members[order[0]])

    def _allowed(self) -> tuple[Mask, Ints]:
        """The members where the rules allow one more pod, and how many pods are in the domains of spread rules
        there."""
        rules = self._demand.rules
        allowed = np.ones(len(self._pods), dtype=np.bool_)
        crowd = np.zeros(len(self._pods), dtype=np.int64)
        for key in rules.apart:
            numbers, pods = self._domains(key)
            allowed &= (numbers < 0) | (pods[numbers] == 0)
        for key in rules.together:
            numbers, pods = self._domains(key)
            # Pods whose node has lost the label are in no domain. Where labels have torn the pods apart the domain with
            # the most of them is theirs.
            allowed &= (numbers == int(pods.argmax())) if pods.any() else (numbers >= 0)
        for rule in rules.spread:
            numbers, pods = self._domains(rule.key)
            domains = numbers[self._counted]
            domains = domains[domains >= 0]
            least = 0 if rule.min_domains > 1 or not len(domains) else int(pods[domains].min())
            allowed &= (numbers >= 0) & (pods[numbers] + 1 - least <= rule.max_skew)
            crowd += pods[numbers]
        return allowed, crowd

    def _domains(self, key: str) -> tuple[Ints, Ints]:
        """The domain of each member, and the pods in each domain."""
        numbers = domains_of(self._demand.forest, self._nodes, key)
        pods: Ints = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.int64)
        labelled = numbers >= 0
        np.add.at(pods, numbers[labelled], self._pods[labelled])
        return numbers, pods
