"""Labels that go with a decision: row and object change together, decided from both (docs/decisions/0009).

A row that was moved says which labels its object has yet to get. As long as the object says what it said when that was
decided, it counts as if it had them; whatever else it says was written by somebody else since. Of a workload that is
admitted the row counts then, of one that waits the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from queue_manager.cluster.pods import is_gone
from queue_manager.cluster.port import PODS, Object, Resource
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.fields import written_as
from queue_manager.kinds.kind import PRIORITY_CLASS_LABEL, QUEUE_LABEL, Kind, Lookup
from queue_manager.kinds.plain_pods import LONE_PODS, PLAIN_GROUPS
from queue_manager.store.readings import own_class
from queue_manager.store.records import CHARGED, Relabel, WorkloadRow

Labels = Mapping[str, str]
PLAIN = (PLAIN_GROUPS, LONE_PODS)


def labels_on(obj: Object) -> Labels:
    """The labels of an object as they are written there."""
    return (obj.get("metadata") or {}).get("labels") or {}


def carriers(obj: Object, kind: Kind) -> list[tuple[Resource, Object]]:
    """The objects that carry the labels of a workload: the job, or all its plain pods that have not ended."""
    if kind.resource not in PLAIN:
        return [(kind.resource, obj)]
    return [(PODS, pod) for pod in obj["spec"]["pods"] if not is_gone(pod)]


def relabelled(row: WorkloadRow, obj: Object, lookup: Lookup, wanted: Mapping[str, str]) -> tuple[Relabel, ...]:
    """What has yet to be written once the labels that mean these keys of ours are to say this. Kueue's label stays the
    one that counts where the job has no other."""
    said, written = kueue_keys.labels_of(obj, lookup), labels_on(obj)
    changes = {relabel.key: relabel for relabel in row.relabels}
    for ours, value in wanted.items():
        key = written_as(said, ours)
        before = written.get(key, "")
        changes.pop(key, None)
        if before != value:
            changes[key] = Relabel(key, before, value)
    return tuple(changes[key] for key in sorted(changes))


def pending(row: WorkloadRow, obj: Object, kind: Kind) -> tuple[Relabel, ...]:
    """What of `row.relabels` has yet to be written. Somebody else's label is overwritten where the row counts."""
    on = [labels_on(found) for _, found in carriers(obj, kind)]
    return tuple(r for r in row.relabels if any(lacks(r, labels.get(r.key, ""), row) for labels in on))


def lacks(relabel: Relabel, said: str, row: WorkloadRow) -> bool:
    """Whether an object that says this has yet to get the label."""
    return said != relabel.after if row.state in CHARGED else said == relabel.before


def as_labelled(row: WorkloadRow, obj: Object, kind: Kind) -> Object:
    """The object as it will be once its labels are written."""
    if not row.relabels:
        return obj
    shown = _shown(row, obj)
    if kind.resource not in PLAIN:
        return shown
    return {**shown, "spec": {**obj["spec"], "pods": [_shown(row, pod) for pod in obj["spec"]["pods"]]}}


def _shown(row: WorkloadRow, obj: Object) -> Object:
    labels = labels_on(obj)
    changes = {r.key: r.after for r in row.relabels if lacks(r, labels.get(r.key, ""), row)}
    return {**obj, "metadata": {**obj["metadata"], "labels": {**labels, **changes}}} if changes else obj


def settled(row: WorkloadRow, obj: Object, kind: Kind) -> WorkloadRow:
    """The row without what is written by now, or was written by somebody else and counts."""
    return replace(row, relabels=left) if (left := pending(row, obj, kind)) != row.relabels else row


def outvoted(row: WorkloadRow, obj: Object, kind: Kind, lookup: Lookup) -> str:
    """What somebody has written on the job of an admitted workload that the row does not follow, in words; "" where the
    labels say what the row says."""
    said = kueue_keys.labels_of(as_labelled(row, obj, kind), lookup)
    command = f"queue-manager {{}} {row.namespace}/{row.name}"
    queue, name = said.get(QUEUE_LABEL), said.get(PRIORITY_CLASS_LABEL)
    words = []
    if queue and queue != row.local_queue:
        words.append(_outvoted(written_as(said, QUEUE_LABEL), queue, row.local_queue, command.format("move")))
    if name and name != own_class(row):
        key, counts = written_as(said, PRIORITY_CLASS_LABEL), own_class(row) or "none"
        words.append(_outvoted(key, name, counts, command.format("reprioritise")))
    return "; ".join(words)


def _outvoted(key: str, said: str, counts: str, command: str) -> str:
    return f"metadata.labels[{key}] says {said!r}, which counts only once it waits again: {counts!r} counts ({command})"
