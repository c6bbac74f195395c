"""What is wrong with our labels and annotations on a job, said where they are written (design, section 4)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from queue_manager.cluster.port import Object
from queue_manager.kinds.annotations import (
    BALANCED,
    CHECKPOINTED_AT,
    DISRUPTION_MODE,
    ELASTIC,
    KNOWN,
    KNOWN_LABELS,
    MAX_RUN_TIME,
    MIN_COUNT,
    NO_SLICES,
    PARSERS,
    PODSET_GROUP,
    PODSET_GROUP_TOPOLOGY,
    SLICE_TOPOLOGY,
    SPREAD_TOPOLOGY,
    TOPOLOGY_KEYS,
    BadValue,
    annotation,
    is_balanced,
    is_name,
    podset_group_topology,
    slice_layers,
)
from queue_manager.kinds.fields import View, written_as
from queue_manager.kinds.kind import PREFIX, PRIORITY_CLASS_LABEL, QUEUE_LABEL, Lookup, Unresolvable


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a field of the user's object; an error is to be refused, a warning only shown."""

    field: str
    message: str
    severity: Severity = Severity.ERROR


def validate(obj: Object, lookup: Lookup | None = None) -> list[Finding]:
    """All findings about our own keys on a job and its pod templates, in a fixed order. Never raises.

    `lookup` is not needed for these rules; whether queues, classes and levels exist is for who knows the configuration.
    """
    findings: list[Finding] = []
    try:
        metadata = View(obj)["metadata"]
        findings += _labels(metadata)
        findings += _annotations(metadata, obj, template=False)
        for template in pod_templates(obj):
            findings += _annotations(template["metadata"], obj, template=True)
    except Unresolvable as error:
        findings.append(Finding(error.field, error.message))
    return findings


def pod_templates(obj: Object) -> Iterator[View]:
    """The pod templates, or patches of them, that stand in the user's own object. Raises Unresolvable."""
    spec = View(obj)["spec"]
    if obj.get("kind") == "Job":
        yield spec["template"]
    elif obj.get("kind") == "JobSet":
        for job in spec["replicatedJobs"].items():
            yield job.at("template", "spec", "template")
    elif obj.get("kind") == "TrainJob":
        yield from spec["podTemplateOverrides"].items()
        for patch in spec["runtimePatches"].items():
            for job in patch.at("trainingRuntimeSpec", "template", "spec", "replicatedJobs").items():
                yield job.at("template", "spec", "template")


def _labels(metadata: View) -> list[Finding]:
    labels = metadata["labels"].mapping()
    findings = [
        Finding(f"{metadata.path}.labels[{written_as(labels, key)}]", f"must be a name, not {labels[key]!r}")
        for key in (QUEUE_LABEL, PRIORITY_CLASS_LABEL)
        if key in labels and not (isinstance(labels[key], str) and is_name(labels[key]))
    ]
    for key in labels:
        if key.startswith(PREFIX) and key not in KNOWN_LABELS:
            hint = "; it is an annotation, not a label" if key in KNOWN else _hint(key, KNOWN_LABELS)
            findings.append(Finding(f"{metadata.path}.labels[{key}]", f"is not known{hint}", Severity.WARNING))
    return findings


_PLAIN = frozenset(KNOWN) - frozenset(PARSERS) - {BALANCED}
"""Annotations of which nothing can be wrong but that they are no strings: all that most jobs have of ours."""


def _annotations(metadata: View, obj: Object, *, template: bool) -> list[Finding]:
    annotations = metadata["annotations"].mapping()
    ours = [key for key, value in annotations.items() if key.startswith(PREFIX) and not _is_plain(key, value)]
    if not ours:
        return []
    findings = []
    for key in ours:
        finding = _annotation(annotation(metadata, key), key, obj, template=template)
        if finding is not None:
            findings.append(finding)
    if not findings:
        try:
            slice_layers(metadata)
            is_balanced(metadata)
            podset_group_topology(metadata)
        except Unresolvable as error:
            findings.append(Finding(error.field, error.message.removeprefix(f"{error.field} ")))
    wishes = [key for key in TOPOLOGY_KEYS if key in annotations]
    if len(wishes) > 1:
        findings.append(
            Finding(annotation(metadata, wishes[0]).path, f"can't stand beside {written_as(annotations, wishes[1])}")
        )
    return findings


def _is_plain(key: str, value: object) -> bool:
    return key in _PLAIN and isinstance(value, str)


def _annotation(field: View, key: str, obj: Object, *, template: bool) -> Finding | None:
    """The finding about one annotation of ours, None when all is well."""
    try:
        value = field.text()
        if key in PARSERS:
            read = PARSERS[key](value)
            if key == MIN_COUNT:
                _check_min_count(read, obj, template=template)
            elif key == ELASTIC:
                _check_elastic(obj, template=template)
    except BadValue as error:
        if key == CHECKPOINTED_AT:  # the job writes it while it runs: it is refused to nobody
            return Finding(field.path, f"{error}: it is ignored", Severity.WARNING)
        return Finding(field.path, str(error))
    if key == SPREAD_TOPOLOGY and obj.get("kind") == "Job":
        message = "has no effect: a Job is one replica; topologySpreadConstraints of its pod template spread pods"
        return Finding(field.path, message, Severity.WARNING)
    if key in (QUEUE_LABEL, PRIORITY_CLASS_LABEL):
        return Finding(field.path, "is a label, not an annotation", Severity.WARNING)
    if key not in KNOWN:
        return Finding(field.path, f"is not known{_hint(key, KNOWN)}", Severity.WARNING)
    if key in (PODSET_GROUP, PODSET_GROUP_TOPOLOGY) and not template:
        return Finding(field.path, "has a meaning on pod templates only", Severity.WARNING)
    if key in (MAX_RUN_TIME, DISRUPTION_MODE) and template:
        return Finding(field.path, "has a meaning on the job only, not on a pod template", Severity.WARNING)
    return None


def _check_min_count(count: object, obj: Object, *, template: bool) -> None:
    if obj.get("kind") != "Job":
        raise BadValue(f"is refused: a {obj.get('kind') or 'job of this kind'} can't run with fewer pods")
    if template:
        raise BadValue("belongs on the Job, not on its pod template")
    parallelism = View(obj).at("spec", "parallelism").integer(1)
    if isinstance(count, int) and count > parallelism:
        raise BadValue(f"must not be above spec.parallelism ({parallelism}), but is {count}")


def _check_elastic(obj: Object, *, template: bool) -> None:
    if obj.get("kind") != "Job":
        raise BadValue(f"is refused: a {obj.get('kind') or 'job of this kind'} can't change its size while it runs")
    if template:
        raise BadValue("belongs on the Job, not on its pod template")
    if MIN_COUNT in View(obj)["metadata"]["annotations"].mapping():
        raise BadValue("can't stand beside min-count: an elastic Job is admitted at the size it asks for")
    job = View(obj)
    for one in (job["metadata"], job.at("spec", "template", "metadata")):
        if SLICE_TOPOLOGY in one["annotations"].mapping():
            raise BadValue(f"can't stand beside slice-topology: {NO_SLICES}")


def _hint(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
