"""What would let a waiting workload start, blocker by blocker, and who holds what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from queue_manager.config import human
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import BlockerType
from queue_manager.engine.quantities import show
from queue_manager.store.deadlines import must_end_by
from queue_manager.store.readings import UNKNOWN_PRIORITY_CLASS, UNKNOWN_QUEUE
from queue_manager.store.records import WorkloadRow

from .schemas import Blocker, Holder

MOST_NAMED = 3


def completed(blocker: Blocker, rows: Mapping[str, WorkloadRow]) -> Blocker:
    """The blocker with its holders as they are now, and the ways out of it. `rows` are admitted workloads by
    `namespace/name`; a holder that is no longer one has gone since."""
    held = [_holder(rows[name], blocker) for name in blocker.holders if name in rows]
    ways = _WAYS.get(blocker.type, _OTHERWISE)
    return blocker.model_copy(update={"held": held, "ways_out": list(ways(blocker, held))})


def _holder(row: WorkloadRow, blocker: Blocker) -> Holder:
    admission = row.admission
    assert admission is not None
    amount = None
    if blocker.type in (BlockerType.QUOTA, BlockerType.MAX_QUOTA):
        amount = admission.admission.charge.get(Cell(blocker.flavor, blocker.resource), 0)
    elif blocker.type == BlockerType.LIMIT:
        per_cell = [each for cell, each in admission.admission.charge.items() if cell.resource == blocker.resource]
        amount = sum(per_cell) if per_cell else None
    return Holder(
        namespace=row.namespace,
        name=row.name,
        kind=row.kind,
        queue=admission.admission.queue,
        user=row.user,
        priority=row.priority,
        state=row.state,
        amount=amount,
        since=admission.admitted_at,
        until=must_end_by(row),
    )


def _quota(blocker: Blocker, held: Sequence[Holder]) -> Sequence[str]:
    what = f"{show(blocker.resource, blocker.missing)} {blocker.resource} of flavor {blocker.flavor}"
    ways = []
    enough = [each for each in held if f"{each.namespace}/{each.name}" in blocker.enough]
    if enough and len(enough) == len(blocker.enough):
        ways.append(f"{_named(enough)} {'ends' if len(enough) == 1 else 'end'}{_at_the_latest(enough)}")
    else:
        ways.append(f"{what} become free there")
    ways.append(f"{blocker.node} gets {what} more (nominalQuota)")
    return ways


def _named(held: Sequence[Holder]) -> str:
    names = [f"{each.namespace}/{each.name}" for each in held]
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _at_the_latest(held: Sequence[Holder]) -> str:
    ends = [each.until for each in held]
    known = [each for each in ends if each is not None]
    return f", at {human.moment(max(known))} at the latest" if known and len(known) == len(ends) else ""


def _most(blocker: Blocker, _: Sequence[Holder]) -> Sequence[str]:
    what = f"{show(blocker.resource, blocker.missing)} {blocker.resource} of flavor {blocker.flavor}"
    return [
        f"{blocker.node} gets {what} more (nominalQuota, or its borrowing limit if it has one)",
        "it asks for less: as it is it never starts",
    ]


def _flavor(blocker: Blocker, _: Sequence[Holder]) -> Sequence[str]:
    if "is stopped" in blocker.message:
        return [f"flavor {blocker.flavor} is opened again: queue-manager drain flavor {blocker.flavor} --undo"]
    if blocker.node:  # no quota for the resource at all
        return [
            f"a resource group of queue {blocker.node} covers {blocker.resource}",
            f"it does not ask for {blocker.resource}",
        ]
    return [
        "its pod template allows one of the flavors (node selector, affinity, tolerations)",
        "a flavor that its pods can use gets quota in its queue",
    ]


def _topology(blocker: Blocker, held: Sequence[Holder]) -> Sequence[str]:
    ways = [f"room for {blocker.missing} more pods comes free" + (f" in {blocker.node}" if blocker.node else "")]
    if held:
        ways[0] += f"; there run {_named(held)}{_at_the_latest(held)}"
    ways.append("it asks for a wider level, or prefers it instead of requiring it")
    return ways


def _ahead(_: Blocker, held: Sequence[Holder]) -> Sequence[str]:
    return [f"{_named(held)} has started and leaves enough"] if held else ["those before it have had their turn"]


def _first(blocker: Blocker, held: Sequence[Holder]) -> Sequence[str]:
    names = blocker.holders
    return (
        [f"{names[0]} starts (see why it does not: queue-manager explain {names[0]})"]
        if names
        else _ahead(blocker, held)
    )


def _limit(blocker: Blocker, held: Sequence[Holder]) -> Sequence[str]:
    ways = (
        [f"one of {_named(held)} ends" if len(held) > 1 else f"{_named(held)} ends"]
        if held
        else ["others of those it counts end"]
    )
    return [*ways, f"the limit in queue {blocker.node} grows by {show(blocker.resource, blocker.missing)} (limits)"]


def _says(*sentences: str) -> Callable[[Blocker, Sequence[Holder]], Sequence[str]]:
    return lambda blocker, _: [sentence.format(node=blocker.node) for sentence in sentences]


_WAYS: Mapping[str, Callable[[Blocker, Sequence[Holder]], Sequence[str]]] = {
    BlockerType.QUOTA: _quota,
    BlockerType.MAX_QUOTA: _most,
    BlockerType.FLAVOR: _flavor,
    BlockerType.DEVICE_CLASS: _says("deviceClassMappings of the Settings name the class"),
    BlockerType.TOPOLOGY: _topology,
    BlockerType.PREEMPTION: _says("nothing to do: it starts once their pods are gone"),
    BlockerType.AHEAD_IN_QUEUE: _first,
    BlockerType.QUEUE_STOPPED: _says("what is stopped is opened again: queue-manager stop NAME --policy None"),
    BlockerType.QUEUE_INACTIVE: _says("what the message names is put right", "the job names another queue"),
    BlockerType.NAMESPACE: _says(
        "the namespaceSelector of queue {node} matches its namespace", "the job names a queue that takes its namespace"
    ),
    BlockerType.BACKOFF: _says("nothing to do: it is tried again then", "it is released: then at once"),
    BlockerType.PODS_READY: _says("the pods of the one before it are ready, or its time for that is over"),
    BlockerType.HOLD: _first,
    BlockerType.LIMIT: _limit,
    BlockerType.HISTORY: _says("the others have had their part, or its past use has faded (half-life)"),
    UNKNOWN_QUEUE: _says(
        "its label names a queue that is there (queue-manager move does that, too)",
        "a local queue of that name is made in its namespace, or the queue takes its namespace",
    ),
    UNKNOWN_PRIORITY_CLASS: _says(
        "its label names a priority class that is there", "a PriorityClass of that name is applied"
    ),
    "AdmissionCheck": _says("whoever the check is answers Ready"),
    "HeldByOperator": _says("it is released (queue-manager release)"),
    "SuspendedByUser": _says("its user lets it go on (spec.suspend: false), or it is released"),
}
"""Ways out of a blocker by its type."""
_OTHERWISE = _says("what the message names is put right")
RELEASED = "it is released (queue-manager release)"
"""The way out for one that is deactivated, whatever did that."""
