"""The one reason of a nomination that came to nothing (kueue.md 1.5); what exactly is short is for explanations."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.engine.decision import Reason
from queue_manager.engine.flavors import SEVERITY, Mode
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.prepared import Prepared


def most_severe(reasons: Iterable[Reason]) -> Reason | None:
    """Of things that are all needed, the farthest from fitting counts."""
    return max(reasons, key=SEVERITY.index, default=None)


def reason_of(nomination: Nomination) -> Reason:
    """The reason by all that stands in the way."""
    if nomination.mode >= Mode.DEFERRED or nomination.victims:
        return Reason.WAITING_FOR_QUOTA
    if nomination.limit is not None:
        return Reason.LIMIT_REACHED
    assignment = nomination.assignment
    found = [choice.taken.reason for choice in assignment.choices if choice.taken.reason is not None]
    found += [Reason.NO_MATCHING_FLAVOR for _ in assignment.prepared.uncovered]
    found += [Reason.MISCONFIGURED for _ in assignment.prepared.unmapped]
    found += [Reason.BEHIND_HOLD for _ in nomination.behind[:1]]
    found += [Reason.TOPOLOGY_PLACEMENT_FAILED] if nomination.misfit is not None and not nomination.behind else []
    return most_severe(found) or Reason.PENDING_EVALUATION


def kueue_reason_of(nomination: Nomination) -> Reason:
    """The reason as Kueue finds it: only the first pod sets that no flavor can take count, of them the resource groups
    looked at until one has no flavor; a group counts with the nearest of the flavors that do not fit, even where
    another one does. Who might evict others, or fits on empty nodes, waits for quota."""
    assignment = nomination.assignment
    if nomination.limit is not None:
        return Reason.LIMIT_REACHED
    if assignment.prepared.unmapped:
        return Reason.MISCONFIGURED
    if nomination.victims or nomination.mode >= Mode.NO_CANDIDATES:
        return Reason.WAITING_FOR_QUOTA
    unit = assignment.failed_unit
    if unit is None:
        return Reason.TOPOLOGY_PLACEMENT_FAILED if nomination.misfit is not None else Reason.PENDING_EVALUATION
    choices = {resource: c for c in assignment.choices if c.need.unit == unit for resource in c.need.resources}
    found: list[Reason] = []
    for resource in _in_kueues_order(assignment.prepared, unit):
        choice = choices.get(resource)
        if choice is None:
            break
        misfits = [trial.reason for trial in choice.trials if trial.mode is Mode.NO_FIT and trial.reason is not None]
        found += [min(misfits, key=SEVERITY.index)] if misfits else []
        if choice.taken.mode is Mode.NO_FIT:
            break
    return most_severe(found) or Reason.NO_MATCHING_FLAVOR


def _in_kueues_order(prepared: Prepared, unit: int) -> list[str]:
    """Resources of a unit in the order in which Kueue looks at them: that of the FNV-1a hash of their names."""
    names = {name for index in prepared.ask.units[unit] for name in prepared.requests[index]}
    return sorted(names, key=_fnv_1a)


def _fnv_1a(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return value
