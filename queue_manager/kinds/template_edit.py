"""Placing the pod template of an object that is its user's own (JobSet, Job), with a record to undo exactly that."""

from __future__ import annotations

import copy
import json
from typing import Any

from queue_manager.cluster.port import Object
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import patches
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import PodPlacement, Unresolvable
from queue_manager.kinds.names import REQUIRED
from queue_manager.kinds.patches import Operation

Record = dict[str, Any]
"""Of one pod set: `labels`, `annotations`, `nodeSelector` (key -> value before, null for none), `tolerations` and
`schedulingGates` (those that we added) and, where we wrote it, `affinity` (as it was, null for none). An object's
record is by pod set."""

MAPS = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
FIELDS = (*MAPS, ("spec", "tolerations"), ("spec", "schedulingGates"), ("spec", "affinity"))


def record_of(obj: Object) -> Record:
    """What we noted on the object, {} when nothing of ours is in it."""
    try:
        record = json.loads(patches.annotation(obj, keys.ORIGINAL) or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def record_text(record: Record) -> str:
    """The annotation's value for a record."""
    return json.dumps(record, sort_keys=True) if record else ""


def place(template: View, placement: PodPlacement, *, as_affinity: bool = False) -> tuple[dict[str, Any], Record]:
    """A placed copy of a pod template that carries nothing of ours, and the record that undoes it.

    With `as_affinity` the node selector becomes a required node affinity. Raises Unresolvable on a conflict.
    """
    placed = dict(template.mapping())  # what is changed below is made anew
    record: Record = {}
    wishes = {
        "labels": placement.labels,
        "annotations": placement.annotations,
        "nodeSelector": {} if as_affinity else placement.node_selector,
    }
    for parent, name in MAPS:
        wanted = patches.checked(template.at(parent, name), wishes[name])
        if wanted:
            present = template.at(parent, name).mapping()
            record[name] = {key: present.get(key) for key in wanted}
            placed[parent] = {**(placed.get(parent) or {}), name: {**present, **wanted}}
    if placement.tolerations:
        present_tolerations = [entry.value for entry in template.at("spec", "tolerations").items()]
        merged = patches.merged_tolerations(template.at("spec", "tolerations"), placement.tolerations)
        if added := merged[len(present_tolerations) :]:
            record["tolerations"] = added
            placed["spec"] = {**placed["spec"], "tolerations": merged}
    if placement.gates:
        present_gates = [entry.value for entry in template.at("spec", "schedulingGates").items()]
        if new_gates := [{"name": name} for name in placement.gates if {"name": name} not in present_gates]:
            record["schedulingGates"] = new_gates
            placed["spec"] = {**placed["spec"], "schedulingGates": [*present_gates, *new_gates]}
    if as_affinity and placement.node_selector:
        patches.checked(template.at("spec", "nodeSelector"), placement.node_selector)
        record["affinity"] = copy.deepcopy(template.at("spec", "affinity").value)
        placed["spec"] = {**placed["spec"], "affinity": _with_requirements(template, placement)}
    return placed, record


def restore(template: View, record: Record) -> dict[str, Any]:
    """A copy of the pod template without what the record says is ours."""
    restored = {part: dict(value) if isinstance(value, dict) else value for part, value in template.mapping().items()}
    for parent, name in MAPS:
        values = dict((restored.get(parent) or {}).get(name) or {})
        for key, before in (record.get(name) or {}).items():
            if before is None:
                values.pop(key, None)
            else:
                values[key] = before
        if record.get(name):
            _set(restored, parent, name, values or None)
    for name in ("tolerations", "schedulingGates"):
        if record.get(name):
            kept = [entry for entry in restored["spec"].get(name) or [] if entry not in record[name]]
            _set(restored, "spec", name, kept or None)
    if "affinity" in record:
        _set(restored, "spec", "affinity", copy.deepcopy(record["affinity"]))
    return restored


def operations(before: View, after: dict[str, Any], *path: str | int) -> list[Operation]:
    """What turns the pod template at `path` from `before` into `after`, field by field."""
    found: list[Operation] = []
    for parent, name in FIELDS:
        old, new = before.at(parent, name).value, (after.get(parent) or {}).get(name)
        if old == new:
            continue
        if new is None:
            found.append(patches.remove(*path, parent, name))
        elif not before[parent].given:
            # The parent is made whole by the first of its fields.
            if not any(operation["path"] == patches.pointer(*path, parent) for operation in found):
                found.append(patches.put(after[parent], *path, parent))
        else:
            found.append(patches.put(new, *path, parent, name))
    return found


def _set(template: dict[str, Any], parent: str, name: str, value: Any) -> None:
    fields = template.setdefault(parent, {})
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _with_requirements(template: View, placement: PodPlacement) -> dict[str, Any]:
    """The affinity with our requirements in each required term: terms are alternatives, so each must hold ours."""
    affinity = copy.deepcopy(dict(template.at("spec", "affinity").mapping()))
    ours = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(placement.node_selector.items())]
    terms_field = template.at("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms = [dict(term.mapping()) for term in terms_field.items()] or [{}]
    if terms_field.given:
        # An empty term matches no node; with a requirement added it would match some.
        terms = [term for term in terms if term.get("matchExpressions") or term.get("matchFields")]
        if not terms:
            raise Unresolvable(
                "NoNodeMatches", terms_field.path, f"{terms_field.path} has only empty terms: no node fits"
            )
    merged = [{**term, "matchExpressions": [*(term.get("matchExpressions") or []), *ours]} for term in terms]
    node_affinity = {**(affinity.get("nodeAffinity") or {}), REQUIRED: {"nodeSelectorTerms": merged}}
    return {**affinity, "nodeAffinity": node_affinity}


__all__ = ["Record", "operations", "place", "record_of", "record_text", "restore"]
