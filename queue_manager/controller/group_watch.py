"""What PodGroups of Kubernetes change for a workload that is admitted (reference/workloads.md, 5.4).

Our places must suit kube-scheduler's rule: all pods of a group in one domain of its key. A group that comes after the
admission with a key that they do not suit sends the workload back; it is planned again with that key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from queue_manager.controller.transitions import Facts, drain, event
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.workload import PodGroup, by_name
from queue_manager.kinds.kubernetes_groups import Covering, noted
from queue_manager.store.records import Change, State, WorkloadRow

PLACE_UNSUITABLE = "PodGroupPlace"
WAITS = "PodGroupWaits"
_SAYS = "PodGroup "
"""Start of our messages about a group, by which they are known again."""


def change_by_groups(
    row: WorkloadRow, coverings: Sequence[Covering], facts: Facts, *, quiet: bool = False
) -> Change | None:
    """The change that its PodGroups make to an admitted workload. `quiet`: its message speaks of something else."""
    assert row.admission is not None
    unsuited = [one for one in coverings if _is_apart(one, row.admission.admission, row)]
    if unsuited:
        return _plan_again(row, unsuited, facts)
    speaks = row.state is State.RUNNING and not quiet
    return _as_disrupted(row, coverings) or (_trouble(row, coverings) if speaks else None)


def _trouble(row: WorkloadRow, coverings: Sequence[Covering]) -> Change | None:
    """Tells once what keeps kube-scheduler from starting a group, and that it is over."""
    assert row.admission is not None
    found = next((text for one in coverings if (text := _why_not(one, row.admission.admission, row))), None)
    if found is None:
        return _told(row, "") if row.message.startswith(_SAYS) else None
    what, details = found
    return None if row.message.startswith(what) else _told(row, f"{what}: {details}")


def _told(row: WorkloadRow, message: str) -> Change:
    told = replace(row, message=message)
    return Change(row=told, outbox=(event(told, WAITS, message, warning=True),) if message else ())


def _why_not(covering: Covering, admission: Admission, row: WorkloadRow) -> tuple[str, str] | None:
    group = covering.group
    size = sum(_pods_of(assignment, covering, row) for assignment in _assignments(covering, admission))
    if covering.pod_sets and group.minimum is not None and group.minimum > size:
        details = f"it needs {group.minimum} pods at once, and {size} are left to run: kube-scheduler never starts it"
        return f"{_SAYS}{group.name} never forms", details
    priorities = {*covering.pod_priorities, group.priority or 0}
    if covering.pod_priorities and len(priorities) > 1:
        listed = ", ".join(map(str, covering.pod_priorities))
        details = f"it has priority {group.priority or 0} and its pods have {listed}: kube-scheduler wants them equal"
        return f"{_SAYS}{group.name} is never placed", details
    if group.reason:
        return f"{_SAYS}{group.name} is not placed by kube-scheduler ({group.reason})", group.message
    return None


def _pods_of(assignment: PodSetAssignment, covering: Covering, row: WorkloadRow) -> int:
    return _replica_size(assignment.name, row) or assignment.count if covering.each else assignment.count


def _replica_size(name: str, row: WorkloadRow) -> int:
    pod_set = by_name(row.pod_groups).get(name)
    return pod_set.replica_size if pod_set is not None else 0


def _assignments(covering: Covering, admission: Admission) -> list[PodSetAssignment]:
    return [assignment for assignment in admission.pod_sets if assignment.name in covering.pod_sets]


def _is_apart(covering: Covering, admission: Admission, row: WorkloadRow) -> bool:
    """Whether pods of one group have places in several domains of its key. What has no planned places, or a topology
    without that level, is kube-scheduler's to place."""
    level = covering.group.level
    members = [a for a in _assignments(covering, admission) if a.domains is not None and level in a.levels]
    if not covering.each:
        return len({domain for member in members for domain in _domains(member, level)}) > 1
    for member in members:
        ranks = list(_domains(member, level))
        size = _replica_size(member.name, row) or len(ranks)
        if any(len(set(ranks[first : first + size])) > 1 for first in range(0, len(ranks), size or 1)):
            return True
    return False


def _domains(assignment: PodSetAssignment, level: str) -> Iterator[tuple[str, ...]]:
    """The domain of the level for each pod, in the order of ranks."""
    depth = assignment.levels.index(level)
    for domain in assignment.domains or ():
        yield from [domain.values[: depth + 1]] * domain.count


def _plan_again(row: WorkloadRow, unsuited: Sequence[Covering], facts: Facts) -> Change:
    group = unsuited[0].group
    message = (
        f"{_SAYS}{group.name} wants its pods in one {group.level}, their places are in several: it is planned again "
        "with that"
    )
    known = replace(row, inputs={**row.inputs, **noted(unsuited)})
    return drain(known, facts, State.WAITING, PLACE_UNSUITABLE, message, event_reason="Evicted")


def _as_disrupted(row: WorkloadRow, coverings: Sequence[Covering]) -> Change | None:
    """What a PodGroup says of being disrupted counts, also where its pods run already."""
    modes = {frozenset(one.pod_sets): one.group.disruption for one in coverings if one.pod_sets}
    if not modes:
        return None
    groups = tuple(replace(group, disruption=modes.get(_names(group), group.disruption)) for group in row.pod_groups)
    return None if groups == row.pod_groups else Change(row=replace(row, pod_groups=groups), request_changed=True)


def _names(group: PodGroup) -> frozenset[str]:
    return frozenset(pod_set.name for pod_set in group.pod_sets)
