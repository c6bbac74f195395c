"""Decayed usage of every node of the tree, and how it corrects the order.

What a queue has charged of a resource is averaged over the past with weights that halve every half-life:
`average = average * d + charged * (1 - d)` with `d = 1/2 ** (elapsed / half-life)`. A cohort's average is the sum over
its queues. A workload that starts is charged at once as if it had run for `History.at_once` already, so that the burst
of one tenant does not pass as a whole before its averages move.

The averages over what the siblings could have at most, times the weights of the resources, divided by the node's
weight, are its **past share**. It is added to the share when those who would borrow are put in order (without fair
sharing it stands between priority and age), and it keeps them from evicting others for their share. It never counts
where a queue asks for its own quota, and never causes an eviction (Slurm's multifactor and Kueue's admission fair
sharing, kueue.md 2.9, correct the order alike; peers.md 2.7).

Integers throughout: averages are kept in 2**-20 of the base unit and rounded down, factors in 2**-64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isqrt

from queue_manager.engine.configuration import History
from queue_manager.engine.limits import by_resource
from queue_manager.engine.shares import MILLI, Share, lendable
from queue_manager.engine.tree import NOW, Charge, QuotaTree, TreeNode
from queue_manager.engine.undo import UndoLog

FRACTION_BITS = 64
ONE = 1 << FRACTION_BITS
UNIT_BITS = 20
"""Averages are in base units times 2**-UNIT_BITS: of a few GPUs minutes would count for nothing otherwise."""

Averages = Mapping[str, Mapping[str, int]]
"""Queue -> resource -> average, in units of `UNIT_BITS`."""


def _roots() -> tuple[int, ...]:
    """1/2 to the power 1/2, 1/4, 1/8, ..., as fractions of ONE, rounded down."""
    found = []
    value = ONE >> 1
    for _ in range(32):
        value = isqrt(value << FRACTION_BITS)
        found.append(value)
    return tuple(found)


_ROOTS = _roots()


def decay(elapsed: int, half_life: int) -> int:
    """1/2 to the power elapsed / half-life, as a fraction of ONE, rounded down."""
    whole, rest = divmod(max(0, elapsed), half_life)
    if whole >= FRACTION_BITS:
        return 0
    factor = ONE >> whole
    for root in _ROOTS:
        rest *= 2
        if rest >= half_life:
            rest -= half_life
            factor = factor * root >> FRACTION_BITS
    return factor


class UsageHistory:
    """The averages of all queues of one tree, as of `at` (microseconds); 0 for never."""

    def __init__(self, tree: QuotaTree, rules: History, log: UndoLog) -> None:
        self._tree = tree
        self._rules = rules
        self._log = log
        self._averages: dict[str, dict[str, int]] = {}
        self._charged: dict[str, dict[str, int]] | None = None
        self._sums: dict[TreeNode, dict[str, int]] = {}
        # With what `lendable` was then: quota may have changed since.
        self._shares: dict[TreeNode, tuple[Mapping[str, int], tuple[bool, Fraction]]] = {}
        self.at = 0

    def continue_from(self, before: UsageHistory) -> None:
        """Takes over what was known under another configuration; queues that are gone are left out."""
        self.at = before.at
        self._averages = {name: row for name, row in before._averages.items() if name in self._tree.queues}
        if before._charged is not None:
            self._charged = {name: row for name, row in before._charged.items() if name in self._tree.queues}

    # ---- time

    def advance(self, now: int) -> None:
        """Brings the averages to `now`; what was charged when `observe` was called last has been charged since, or
        else what is charged now."""
        if self._charged is None:
            self.observe()
        if now > self.at and self.at and self._charged is not None:
            factor = decay(now - self.at, self._rules.half_life)
            averages: dict[str, dict[str, int]] = {}
            for name in self._averages.keys() | self._charged.keys():
                old, charged = self._averages.get(name, {}), self._charged.get(name, {})
                row = {
                    resource: (old.get(resource, 0) * factor + (charged.get(resource, 0) << UNIT_BITS) * (ONE - factor))
                    >> FRACTION_BITS
                    for resource in old.keys() | charged.keys()
                }
                averages[name] = {resource: average for resource, average in row.items() if average}
            self._changed()
            self._log.assign(self, "_averages", averages)
        if now > self.at:
            self._log.assign(self, "at", now)

    def observe(self) -> None:
        """Notes what is charged from now on."""
        charged = {}
        for name, node in self._tree.queues.items():
            row = {resource: amount for resource, amount in by_resource(node.usage[NOW]).items() if amount}
            if row:
                charged[name] = row
        if charged != self._charged:
            self._log.assign(self, "_charged", charged)

    def start(self, queue: str, charge: Charge, sign: int = 1) -> None:
        """A workload starts: it is charged at once for the time that `History.at_once` says (-1: it did not after
        all)."""
        factor = ONE - decay(self._rules.at_once, self._rules.half_life)
        row = dict(self._averages.get(queue, {}))
        more = [
            (cell.resource, sign * ((amount << UNIT_BITS) * factor >> FRACTION_BITS)) for cell, amount in charge.items()
        ]
        _add(row, more)
        self._log.put(self._averages, queue, row)
        self._log.call(self._forget)
        node = self._tree.queues[queue]
        for place in (node, *node.ancestors()):
            self._shares.pop(place, None)
            if self._sums:
                _add(self._sums.setdefault(place, {}), more)

    # ---- outside

    def restore(self, averages: Averages, now: int) -> None:
        """Sets what was read elsewhere, as of `now`."""
        self._averages = {
            name: {resource: average for resource, average in row.items() if average > 0}
            for name, row in averages.items()
            if name in self._tree.queues
        }
        self.at = now
        self._changed()

    def averages(self) -> Averages:
        """The averages of all queues."""
        return {name: dict(sorted(row.items())) for name, row in sorted(self._averages.items())}

    # ---- shares

    def past_share(self, node: TreeNode) -> tuple[bool, Fraction]:
        """The past share of a node; (True, ...) is infinite: past usage with weight 0. 0 for a root."""
        if node.parent is None:
            return False, Fraction(0)
        most = lendable(node.parent)
        known = self._shares.get(node)
        if known is None or known[0] is not most:
            known = self._shares[node] = most, self._past_share(node, most)
        return known[1]

    def _past_share(self, node: TreeNode, most: Mapping[str, int]) -> tuple[bool, Fraction]:
        total = Fraction(0)
        for resource, average in self._sum(node).items():
            whole = most.get(resource, 0)
            if whole > 0:
                total += Fraction(self._rules.weights.get(resource, MILLI) * average, whole << UNIT_BITS)
        if node.weight == 0:
            return total > 0, total
        return False, total / node.weight

    def corrected(self, node: TreeNode, share: Share) -> tuple[bool, Fraction]:
        """A share with the past share of its node added."""
        infinite, past = self.past_share(node)
        present = Fraction(share.borrowed * MILLI, share.lendable * (share.weight or MILLI))
        return infinite or share.infinite, present + past

    def _sum(self, node: TreeNode) -> Mapping[str, int]:
        if not self._sums:
            for name, row in self._averages.items():
                queue = self._tree.queues.get(name)
                for place in () if queue is None else (queue, *queue.ancestors()):
                    _add(self._sums.setdefault(place, {}), row.items())
        return self._sums.get(node, {})

    def _changed(self) -> None:
        self._forget()
        self._log.call(self._forget)

    def _forget(self) -> None:
        self._sums.clear()
        self._shares.clear()


def _add(sums: dict[str, int], amounts: Iterable[tuple[str, int]]) -> None:
    for resource, amount in amounts:
        sums[resource] = sums.get(resource, 0) + amount
