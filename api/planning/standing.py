"""Who runs beyond the quota of its queue, and who may be preempted, by the rules of one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from queue_manager.config.compiled import Compiled
from queue_manager.engine.configuration import Cell, PreemptionPolicy, Queue
from queue_manager.store.records import CHARGED, State, WorkloadRow

Charge = Mapping[Cell, int]


def over_quota(rows: Iterable[WorkloadRow], compiled: Compiled, charge_of: Callable[[str], Charge]) -> set[str]:
    """Uids of running workloads that stand on more than the nominal quota of their queue: what is left over when it
    is given to those of highest priority first, then to those admitted first. What is draining counts, and is not
    told."""
    by_queue: dict[str, list[WorkloadRow]] = {}
    for row in rows:
        if row.state in CHARGED and row.admission is not None:
            by_queue.setdefault(row.admission.admission.queue, []).append(row)
    over: set[str] = set()
    for name, charged in by_queue.items():
        left = dict(nominal(compiled.configuration.queues.get(name)))
        for row in sorted(charged, key=_strength):
            charge = charge_of(row.uid)
            if row.state is not State.DRAINING and any(n > left.get(cell, 0) for cell, n in charge.items()):
                over.add(row.uid)
                continue
            for cell, amount in charge.items():
                left[cell] = left.get(cell, 0) - amount
    return over


def _strength(row: WorkloadRow) -> tuple[bool, int, int, str]:
    admitted = row.admission.admission.admitted if row.admission is not None else 0
    return row.state is not State.DRAINING, -row.priority, admitted, row.uid


def nominal(queue: Queue | None) -> dict[Cell, int]:
    """The nominal quota of a queue by cell; nothing for a queue that is not there."""
    groups = queue.resource_groups if queue is not None else ()
    return {
        Cell(quotas.flavor, resource): quota.nominal
        for group in groups
        for quotas in group.flavors
        for resource, quota in quotas.quotas.items()
    }


def preemptible(rows: Sequence[WorkloadRow], compiled: Compiled, over: set[str]) -> set[str]:
    """Uids of running workloads that somebody could preempt: by the policy of their own queue, or, where they stand
    on borrowed quota (`over`), by that of another queue in their tree that owns some of it."""
    highest = _highest(rows, compiled)
    reclaimers = _Reclaimers(compiled)
    found = set()
    for row in rows:
        if row.state not in CHARGED or row.state is State.DRAINING or row.admission is None or not row.preemptible:
            continue
        admission = row.admission.admission
        queue = compiled.configuration.queues.get(admission.queue)
        if queue is None:
            continue
        within = _reaches(queue.preemption.within_queue, row.priority, highest)
        if within or (row.uid in over and reclaimers.may_take(queue, admission.charge, row.priority, highest)):
            found.add(row.uid)
    return found


def _highest(rows: Iterable[WorkloadRow], compiled: Compiled) -> int:
    classes = (each.value for each in compiled.priority_classes.values() if each.may_preempt)
    waiting = (row.priority for row in rows if row.state is State.WAITING and row.may_preempt)
    return max((0, *classes, *waiting))


def _reaches(policy: PreemptionPolicy, priority: int, highest: int) -> bool:
    if policy is PreemptionPolicy.ANY:
        return True
    if policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
        return priority <= highest
    return policy is PreemptionPolicy.LOWER_PRIORITY and priority < highest


class _Reclaimers:
    """Queues by the root of their tree, with the cells that they own."""

    def __init__(self, compiled: Compiled) -> None:
        self._parents = {name: node.parent for name, node in compiled.tree.cohorts.items()}
        self._by_root: dict[str, list[tuple[Queue, frozenset[Cell]]]] = {}
        for queue in compiled.configuration.queues.values():
            owned = frozenset(cell for cell, amount in nominal(queue).items() if amount > 0)
            if queue.cohort and owned:
                self._by_root.setdefault(self._root(queue.cohort), []).append((queue, owned))

    def _root(self, cohort: str) -> str:
        seen: set[str] = set()
        while (parent := self._parents.get(cohort)) and cohort not in seen:
            seen.add(cohort)
            cohort = parent
        return cohort

    def may_take(self, queue: Queue, charge: Charge, priority: int, highest: int) -> bool:
        """Whether another queue may take back what a workload with this charge borrows."""
        if not queue.cohort:
            return False
        return any(
            other.name != queue.name
            and not owned.isdisjoint(charge)
            and _reaches(other.preemption.reclaim_within_cohort, priority, highest)
            for other, owned in self._by_root.get(self._root(queue.cohort), ())
        )
