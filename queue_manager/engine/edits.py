"""Edits of a configuration that change amounts of quota and nothing else: they need not be prepared anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from queue_manager.engine.configuration import Cohort, Configuration, Queue, ResourceGroup

AMOUNTS = ("queues", "cohorts", "revision")


@dataclass(frozen=True, slots=True)
class QuotaEdits:
    """The queues and cohorts whose amounts have changed, by name."""

    queues: Mapping[str, Queue]
    cohorts: Mapping[str, Cohort]


def quota_edits(old: Configuration, new: Configuration) -> QuotaEdits | None:
    """What has changed, if that is only how much quota there is of known cells; None for any other change."""
    if any(getattr(old, f.name) != getattr(new, f.name) for f in fields(Configuration) if f.name not in AMOUNTS):
        return None
    queues = _edited(old.queues, new.queues)
    cohorts = _edited(old.cohorts, new.cohorts)
    if queues is None or cohorts is None:
        return None
    return QuotaEdits({name: new.queues[name] for name in queues}, {name: new.cohorts[name] for name in cohorts})


def _edited(old: Mapping[str, Queue | Cohort], new: Mapping[str, Queue | Cohort]) -> list[str] | None:
    """Names of those whose amounts have changed; None if anything else has."""
    if old.keys() != new.keys():
        return None
    changed = [name for name, now in new.items() if now is not old[name] and now != old[name]]
    same = all(_without_amounts(old[name]) == _without_amounts(new[name]) for name in changed)
    return changed if same else None


def _without_amounts(holder: Queue | Cohort) -> tuple[object, ...]:
    return (replace(holder, resource_groups=()), *map(_cells, holder.resource_groups))


def _cells(group: ResourceGroup) -> tuple[object, ...]:
    """What a resource group has quota of, amounts apart."""
    return (group.resources, *((quotas.flavor, tuple(quotas.quotas)) for quotas in group.flavors))
