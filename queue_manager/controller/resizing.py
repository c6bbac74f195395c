"""Elastic jobs that run: what their rows become when they ask for another size, and as their pods go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from queue_manager.cluster.port import PODS, Object
from queue_manager.controller.intake import with_reclaimed
from queue_manager.controller.picture import Picture
from queue_manager.controller.transitions import charged, describe_pods, entries, event, loans
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, Waiting
from queue_manager.engine.resize import Size, sizes
from queue_manager.engine.workload import PodGroup, PodSet, by_name
from queue_manager.kinds.gates import let_through
from queue_manager.kinds.kind import Kind, Unresolvable
from queue_manager.store.deadlines import STARTED
from queue_manager.store.records import Change, LedgerEntry, LedgerState, OutboxEntry, WorkloadRow
from queue_manager.store.times import to_microseconds

RESIZED = "Resized"


class Resizing:
    """`passed` answers the pods of a workload that are let through, whatever the caches say."""

    def __init__(self, picture: Picture, passed: Callable[[str], frozenset[str]]) -> None:
        self._picture = picture
        self._passed = passed

    def change_of(self, row: WorkloadRow, obj: Object, kind: Kind, now: datetime) -> Change | None:
        """What the object asks for now: a larger size is asked of the queue, a smaller one is charged as pods go."""
        assert row.admission is not None
        try:
            resolved = kind.resolve(obj, self._picture.view)
        except Unresolvable:
            return None
        groups = _resized(row, by_name(resolved.pod_groups))
        groups = with_reclaimed(groups, kind.reclaimable(obj, self._picture.view))
        before = row.admission.admission
        admission = self._fitted(row, before, _elastic_sizes(groups, before))
        lacking = any(size.lacking for size in _elastic_sizes(groups, admission).values())
        asked = (admission.resize_asked or to_microseconds(now)) if lacking else 0
        admission = replace(admission, resize_asked=asked)
        if groups == row.pod_groups and admission == before:
            return None
        fresh = replace(row, pod_groups=groups, admission=replace(row.admission, admission=admission))
        if row.reason and not lacking:
            fresh = replace(fresh, reason="", message="")
        outbox: tuple[OutboxEntry, ...] = ()
        if smaller := [name for name, p in by_name(groups).items() if p.count < by_name(row.pod_groups)[name].count]:
            says = ", ".join(f"{name} to {by_name(groups)[name].count} pods" for name in smaller)
            outbox = (event(fresh, RESIZED, f"Shrinks {says}; charged for the others until they are gone"),)
        ledger = self._ledger(row, groups, admission)
        changed = groups != row.pod_groups
        return Change(row=fresh, ledger=ledger, outbox=outbox, request_changed=changed)

    def _fitted(self, row: WorkloadRow, admission: Admission, found: Mapping[str, Size]) -> Admission:
        """The admission without pods that are neither wanted nor there any more."""
        here = len(let_through(self._picture.view.owned_by(PODS, row.uid), self._passed(row.uid)))
        counts = {n: max(size.size, min(size.admitted, here)) for n, size in found.items() if size.size < size.admitted}
        if all(count == found[name].admitted for name, count in counts.items()):
            return admission
        return self._picture.engine.shrunk(row.uid, counts)

    def ledger_of(self, row: WorkloadRow) -> tuple[LedgerEntry, ...]:
        """What the admission of a row is charged, as the engine counts it now."""
        assert row.admission is not None
        admission = row.admission.admission
        if is_elastic(row):
            return self._ledger(row, row.pod_groups, admission)
        return charged(admission.charge, self._picture.engine.charge_of(row.uid))

    def _ledger(self, row: WorkloadRow, groups: tuple[PodGroup, ...], admission: Admission) -> tuple[LedgerEntry, ...]:
        """Reserved for what is wanted; what still runs beyond that is draining; what has finished is lent."""
        engine = self._picture.engine
        charge = engine.charge_with(row.uid, groups, admission)
        wanted = engine.shrunk(row.uid, {p.name: p.count for p in by_name(groups).values()}).charge
        going: dict[Cell, int] = {}
        for cell, amount in charge.items():
            going[cell] = max(0, min(amount, admission.charge.get(cell, 0) - wanted.get(cell, 0)))
        staying = {cell: amount - going[cell] for cell, amount in charge.items()}
        reserved, draining = entries(staying, LedgerState.RESERVED), entries(going, LedgerState.DRAINING)
        return reserved + draining + loans(admission.charge, charge)


def is_elastic(row: WorkloadRow) -> bool:
    """Whether the row's workload may change its size, and runs."""
    running = row.state in STARTED and row.admission is not None
    return running and any(pod_set.elastic for pod_set in by_name(row.pod_groups).values())


def _elastic_sizes(groups: Iterable[PodGroup], admission: Admission) -> Mapping[str, Size]:
    pod_sets = by_name(groups)
    elastic = {name for name, pod_set in pod_sets.items() if pod_set.elastic}
    return {name: size for name, size in sizes(pod_sets.values(), admission).items() if name in elastic}


def _resized(row: WorkloadRow, fresh: Mapping[str, PodSet]) -> tuple[PodGroup, ...]:
    """The pod groups with the counts of now. Whatever else may have changed holds for the next start only."""
    assert row.admission is not None
    admitted = {p.name: p.count + p.reclaimed for p in row.admission.admission.pod_sets}

    def resized(pod_set: PodSet) -> PodSet:
        new = fresh.get(pod_set.name)
        if not pod_set.elastic or new is None:
            return pod_set
        # No longer marked: it keeps its size, and stays elastic here, for its pods are made with our gate as before.
        return replace(pod_set, count=new.count if new.elastic else admitted[pod_set.name])

    return tuple(replace(g, pod_sets=tuple(resized(p) for p in g.pod_sets)) for g in row.pod_groups)


def resize(row: WorkloadRow, admission: Admission, charge: Mapping[Cell, int]) -> Change:
    """running: the queue gave what was lacking, charged from this commit on."""
    assert row.admission is not None
    fresh = replace(row, reason="", message="", admission=replace(row.admission, admission=admission))
    text = f"Grows in queue {admission.queue}: {describe_pods(admission)}"
    return Change(row=fresh, ledger=charged(admission.charge, charge), outbox=(event(fresh, RESIZED, text),))


def resize_waits(row: WorkloadRow, waiting: Waiting, explanation: Mapping[str, object]) -> Change:
    """running: why the queue has not given what is lacking yet."""
    fresh = replace(row, reason=waiting.reason.value, message=lacks(row, waiting))
    return Change(row=fresh, explanation=explanation)


def lacks(row: WorkloadRow, waiting: Waiting) -> str:
    """What a running workload waits for, in words."""
    assert row.admission is not None
    lacking = sum(size.lacking for size in _elastic_sizes(row.pod_groups, row.admission.admission).values())
    return f"Runs on at its size, {lacking} more pods wait: {waiting.message}"
