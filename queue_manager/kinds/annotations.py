"""Our labels and annotations on jobs, pod templates and runtimes (design, section 4): reading and checking them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from queue_manager.cluster.port import Object
from queue_manager.engine.workload import MICROSECONDS, DisruptionMode, SliceLayer, TopologyMode, TopologyRequest
from queue_manager.kinds.fields import View, written_as
from queue_manager.kinds.kind import MANAGED_LABEL, PREFIX, PRIORITY_CLASS_LABEL, QUEUE_LABEL, Lookup, Unresolvable

REQUIRED_TOPOLOGY = PREFIX + "required-topology"
PREFERRED_TOPOLOGY = PREFIX + "preferred-topology"
UNCONSTRAINED_TOPOLOGY = PREFIX + "unconstrained-topology"
PODSET_GROUP = PREFIX + "podset-group"
PODSET_GROUP_TOPOLOGY = PREFIX + "podset-group-required-topology"
MIN_COUNT = PREFIX + "min-count"
MAX_RUN_TIME = PREFIX + "max-run-time"
DISRUPTION_MODE = PREFIX + "disruption-mode"
ELASTIC = PREFIX + "elastic"
CHECKPOINTED_AT = PREFIX + "checkpointed-at"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PLACEMENT = PREFIX + "placement"
"""Ours, on a TrainJob: the digest of the placement we wrote, so that a pruned or removed entry is noticed."""
OVERRIDES = PREFIX + "overrides"
"""Ours, on a TrainJob before v2.2: the list entries that we wrote, as JSON; its lists have no keys to know ours by."""
ORIGINAL = PREFIX + "original"
"""Ours, on a JobSet or Job: what to undo in its pod templates, as JSON."""
REBUILT = PREFIX + "rebuilt"
"""Ours, on a TrainJob: the edit of the runtime for which its JobSet was made anew, so that this happens once."""

TOPOLOGY_KEYS = {
    REQUIRED_TOPOLOGY: TopologyMode.REQUIRED,
    PREFERRED_TOPOLOGY: TopologyMode.PREFERRED,
    UNCONSTRAINED_TOPOLOGY: TopologyMode.UNCONSTRAINED,
}
SLICE_TOPOLOGY = PREFIX + "slice-topology"
SLICE_SIZE = PREFIX + "slice-size"
MOST_SLICE_LAYERS = 3
SPREAD_TOPOLOGY = PREFIX + "spread-topology"
EXCLUSIVE_TOPOLOGY = PREFIX + "exclusive-topology"
JOB_SET_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""JobSet's own, on a JobSet or on the Job template of a replicated job."""
EXCLUSIVE_KEYS = (EXCLUSIVE_TOPOLOGY, JOB_SET_EXCLUSIVE)
BALANCED = PREFIX + "balanced"
OTHERS = tuple(PREFIX + name for name in ("state", "message", "user", "user-groups", "pod-group", "pod-group-size"))
POD_PRIORITY_CLASS = PREFIX + "pod-priority-class"
"""Written by the webhook: the priorityClassName that the user gave, where the pods got another one."""
WRITTEN_ON_PODS = tuple(PREFIX + name for name in ("slot", "workload", "pod-set"))
OWN = (POD_PRIORITY_CLASS, PLACEMENT, OVERRIDES, ORIGINAL, REBUILT, *WRITTEN_ON_PODS)
KNOWN = (
    *(*TOPOLOGY_KEYS, SLICE_TOPOLOGY, SLICE_SIZE, PODSET_GROUP, PODSET_GROUP_TOPOLOGY, MIN_COUNT, MAX_RUN_TIME),
    *(DISRUPTION_MODE, CHECKPOINTED_AT, ELASTIC, SPREAD_TOPOLOGY, EXCLUSIVE_TOPOLOGY, BALANCED, *OTHERS, *OWN),
)
KNOWN_LABELS = (QUEUE_LABEL, PRIORITY_CLASS_LABEL, MANAGED_LABEL, PREFIX + "pod-group")

_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a field of the user's object; an error is to be refused, a warning only shown."""

    field: str
    message: str
    severity: Severity = Severity.ERROR


class BadValue(ValueError):
    """An annotation's value is not of its form; says which form that is."""


def annotation(metadata: View, key: str) -> View:
    """One annotation of an object's metadata, its path written so that people find it."""
    given = metadata["annotations"].mapping()
    return View(given.get(key), f"{metadata.path}.annotations[{written_as(given, key)}]")


def topology_request(metadata: View) -> TopologyRequest | None:
    """The topology wish of these annotations, None without one. Raises Unresolvable on a bad or contradictory value."""
    found = [key for key in TOPOLOGY_KEYS if key in metadata["annotations"].mapping()]
    layers = slice_layers(metadata)
    balanced = is_balanced(metadata)
    if not found:
        return TopologyRequest(TopologyMode.UNCONSTRAINED, "", layers) if layers else None
    field = annotation(metadata, found[0])
    if len(found) > 1:
        other = written_as(metadata["annotations"].mapping(), found[1])
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} can't stand beside {other}")
    try:
        return replace(_topology(found[0], field.text()), slices=layers, balanced=balanced)
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error


def slice_layers(metadata: View) -> tuple[SliceLayer, ...]:
    """The slices that these annotations ask for, the outermost layer first. Raises Unresolvable."""
    levels, sizes = annotation(metadata, SLICE_TOPOLOGY), annotation(metadata, SLICE_SIZE)
    if not (levels.given or sizes.given):
        return ()
    for field, other in ((levels, sizes), (sizes, levels)):
        if not field.given:
            raise Unresolvable("BadAnnotation", other.path, f"{other.path} needs {field.path} beside it")
    field = levels
    try:
        keys = parse_levels(levels.text())
        field = sizes
        counts = parse_sizes(sizes.text())
        if len(counts) != len(keys):
            raise BadValue(f"must give one size for each of the {len(keys)} levels, not {len(counts)}")
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error
    return tuple(map(SliceLayer, keys, counts))


def is_balanced(metadata: View) -> bool:
    """Whether the domains that the pods need several of take equal parts. Raises Unresolvable."""
    field = annotation(metadata, BALANCED)
    if not field.given:
        return False
    if field.text() != "true":
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} must be true, not {field.text()!r}")
    given = metadata["annotations"].mapping()
    if REQUIRED_TOPOLOGY not in given and PREFERRED_TOPOLOGY not in given:
        message = f"{field.path} needs {PREFERRED_TOPOLOGY} or {REQUIRED_TOPOLOGY} beside it"
        raise Unresolvable("BadAnnotation", field.path, message)
    return True


def parse_level(text: str) -> str:
    """A node label key. Raises BadValue."""
    if not _LABEL_KEY.fullmatch(text):
        raise BadValue(f"must be a node label key such as topology/rack, not {text!r}")
    return text


def parse_levels(text: str) -> list[str]:
    """Node label keys, the outermost first. Raises BadValue."""
    keys = [key.strip() for key in text.split(",")]
    if len(keys) > MOST_SLICE_LAYERS or not all(_LABEL_KEY.fullmatch(key) for key in keys):
        raise BadValue(f"must be at most {MOST_SLICE_LAYERS} node label keys with commas between, not {text!r}")
    return keys


def parse_sizes(text: str) -> list[int]:
    """Pods of a slice, the outermost first, each size dividing the one before. Raises BadValue."""
    sizes = [parse_count(size.strip()) for size in text.split(",")]
    if len(sizes) > MOST_SLICE_LAYERS or any(outer % inner for outer, inner in pairwise(sizes)):
        raise BadValue(f"must be at most {MOST_SLICE_LAYERS} sizes, each dividing the one before, not {text!r}")
    return sizes


def podset_group(metadata: View) -> str:
    """The pod set group of a pod template, "" without one. Raises Unresolvable."""
    field = annotation(metadata, PODSET_GROUP)
    if field.given and not _NAME.fullmatch(field.text()):
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} must be a name of at most 63 characters")
    return field.text()


def podset_group_topology(metadata: View) -> TopologyRequest | None:
    """The domain that pod sets of one group share, around what each of them asks for itself. Raises Unresolvable."""
    field = annotation(metadata, PODSET_GROUP_TOPOLOGY)
    if not field.given:
        return None
    if not podset_group(metadata):
        path = annotation(metadata, PODSET_GROUP).path
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} needs {path} beside it")
    try:
        return _topology(REQUIRED_TOPOLOGY, field.text())
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error


def is_label_key(text: str) -> bool:
    """Whether a node can have a label of this key."""
    return bool(_LABEL_KEY.fullmatch(text))


def min_count(metadata: View) -> int | None:
    """The smallest count the job can run with. Raises Unresolvable."""
    field = annotation(metadata, MIN_COUNT)
    try:
        return parse_count(field.text()) if field.given else None
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error


def is_elastic(metadata: View) -> bool:
    """Whether the job may change its number of pods while it runs. Raises Unresolvable."""
    field = annotation(metadata, ELASTIC)
    if field.given and field.text() != "true":
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} must be true, not {field.text()!r}")
    return field.given


def max_run_time(obj: Object) -> int | None:
    """The longest time an admission of this job may last, in microseconds; None without one. Raises Unresolvable."""
    field = annotation(View(obj)["metadata"], MAX_RUN_TIME)
    try:
        return parse_duration(field.text()) if field.given else None
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error


def pod_priority_class(obj: Object) -> str:
    """The priority class that the user gave the pods, where the webhook has given them another one; else ""."""
    text = (obj["metadata"].get("annotations") or {}).get(POD_PRIORITY_CLASS)
    return text if isinstance(text, str) else ""


def disruption_mode(obj: Object) -> DisruptionMode | None:
    """What becomes of the job when a third party takes pods of it away, None where it does not say. Raises
    Unresolvable."""
    field = annotation(View(obj)["metadata"], DISRUPTION_MODE)
    try:
        return parse_disruption_mode(field.text()) if field.given else None
    except BadValue as error:
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} {error}") from error


def parse_disruption_mode(text: str) -> DisruptionMode:
    """`single` or `all`. Raises BadValue."""
    if text not in set(DisruptionMode):
        raise BadValue(f"must be {' or '.join(DisruptionMode)}, not {text!r}")
    return DisruptionMode(text)


def checkpointed_at(obj: Object) -> int:
    """When the job says that it last wrote a checkpoint, in microseconds since the Unix epoch; 0 when it says nothing
    that can be read."""
    text = (obj["metadata"].get("annotations") or {}).get(CHECKPOINTED_AT)
    try:
        return parse_instant(text) if isinstance(text, str) else 0
    except BadValue:
        return 0


def parse_instant(text: str) -> int:
    """Microseconds since the Unix epoch of an RFC 3339 time. Raises BadValue."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or len(text) > 40:
        raise BadValue(f"must be a time such as 2026-01-31T12:00:00Z, not {text!r}")
    return max(0, (at - _EPOCH) // timedelta(microseconds=1))


def parse_count(text: str) -> int:
    """A whole number of at least 1. Raises BadValue."""
    if not text.isascii() or not text.isdecimal() or int(text[:10]) < 1 or len(text) > 10:
        raise BadValue(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def parse_duration(text: str) -> int:
    """Microseconds of `90m`, `36h`, `1h30m`, `45s`, `2d`. Raises BadValue."""
    if not _DURATION.fullmatch(text) or len(text) > 32:
        raise BadValue(f"must be a duration such as 90m or 36h, not {text!r}")
    parts = re.findall(r"(\d+)(?:\.(\d+))?([smhd])", text)
    total = 0
    for whole, fraction, unit in parts:
        scale = _UNITS[unit] * MICROSECONDS
        total += int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    if total == 0:
        raise BadValue("must be longer than nothing")
    return total


def _topology(key: str, value: str) -> TopologyRequest:
    mode = TOPOLOGY_KEYS[key]
    if mode is TopologyMode.UNCONSTRAINED:
        if value != "true":
            raise BadValue(f"must be true, not {value!r}")
        return TopologyRequest(mode)
    return TopologyRequest(mode, parse_level(value))


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
        if key in labels and not (isinstance(labels[key], str) and _NAME.fullmatch(labels[key]))
    ]
    for key in labels:
        if key.startswith(PREFIX) and key not in KNOWN_LABELS:
            hint = "; it is an annotation, not a label" if key in KNOWN else _hint(key, KNOWN_LABELS)
            findings.append(Finding(f"{metadata.path}.labels[{key}]", f"is not known{hint}", Severity.WARNING))
    return findings


def _annotations(metadata: View, obj: Object, *, template: bool) -> list[Finding]:
    annotations = metadata["annotations"].mapping()
    findings = []
    for key in annotations:
        if key.startswith(PREFIX):
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


def _annotation(field: View, key: str, obj: Object, *, template: bool) -> Finding | None:
    """The finding about one annotation of ours, None when all is well."""
    try:
        value = field.text()
        if key in TOPOLOGY_KEYS:
            _topology(key, value)
        elif key in (SPREAD_TOPOLOGY, EXCLUSIVE_TOPOLOGY):
            parse_level(value)
        elif key == PODSET_GROUP_TOPOLOGY:
            _topology(REQUIRED_TOPOLOGY, value)
        elif key == SLICE_TOPOLOGY:
            parse_levels(value)
        elif key == SLICE_SIZE:
            parse_sizes(value)
        elif key == CHECKPOINTED_AT:
            return _checkpoint(field, value)
        elif key == MAX_RUN_TIME:
            parse_duration(value)
        elif key == DISRUPTION_MODE:
            parse_disruption_mode(value)
        elif key == MIN_COUNT:
            _check_min_count(parse_count(value), obj, template=template)
        elif key == ELASTIC:
            _check_elastic(value, obj, template=template)
        elif key == PODSET_GROUP and not _NAME.fullmatch(value):
            raise BadValue(f"must be a name of at most 63 characters, not {value!r}")
    except BadValue as error:
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


def _checkpoint(field: View, value: str) -> Finding | None:
    """Written by the job while it runs: a bad value is said, and refused to nobody."""
    try:
        parse_instant(value)
    except BadValue as error:
        return Finding(field.path, f"{error}: it is ignored", Severity.WARNING)
    return None


def _check_min_count(count: int, obj: Object, *, template: bool) -> None:
    if obj.get("kind") != "Job":
        raise BadValue(f"is refused: a {obj.get('kind') or 'job of this kind'} can't run with fewer pods")
    if template:
        raise BadValue("belongs on the Job, not on its pod template")
    parallelism = View(obj).at("spec", "parallelism").integer(1)
    if count > parallelism:
        raise BadValue(f"must not be above spec.parallelism ({parallelism}), but is {count}")


def _check_elastic(value: str, obj: Object, *, template: bool) -> None:
    if value != "true":
        raise BadValue(f"must be true, not {value!r}")
    if obj.get("kind") != "Job":
        raise BadValue(f"is refused: a {obj.get('kind') or 'job of this kind'} can't change its size while it runs")
    if template:
        raise BadValue("belongs on the Job, not on its pod template")
    if MIN_COUNT in View(obj)["metadata"]["annotations"].mapping():
        raise BadValue("can't stand beside min-count: an elastic Job is admitted at the size it asks for")


def _hint(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
