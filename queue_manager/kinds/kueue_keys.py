"""Kueue's own labels and annotations, read as the ones of ours that say the same (design, section 4; kueue.md, 3.1).

They are translated where jobs are read, never written into them: whoever goes back to Kueue has his jobs as they were.
A key of ours wins over Kueue's: of one topology request, or one slice, all keys are ours or all are Kueue's. Kueue
reads topology annotations from pod templates alone; on a job or runtime itself they say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queue_manager.cluster.port import JOBS, Object
from queue_manager.kinds import annotations as keys
from queue_manager.kinds.annotation_faults import Finding, Severity
from queue_manager.kinds.annotation_faults import validate as validate_ours
from queue_manager.kinds.annotations import BadValue
from queue_manager.kinds.fields import Borrowed, View
from queue_manager.kinds.kind import PRIORITY_CLASS_LABEL, QUEUE_LABEL, Lookup, Unresolvable

KUEUE = "kueue.x-k8s.io/"
KUEUE_QUEUE_LABEL = KUEUE + "queue-name"
SLICE_LEVEL, SLICE_SIZE = KUEUE + "podset-slice-required-topology", KUEUE + "podset-slice-size"
SLICE_LAYERS = SLICE_LEVEL + "-constraints"
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}

Said = Mapping[str, str]
"""Keys of ours and their values."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of Kueue's. `says` answers what ours would say in its place, or raises BadValue; it counts where none of
    ours in `unless` stands."""

    name: str
    says: Callable[[str], Said]
    unless: Sequence[str]


def _key(name: str, ours: str, parse: Callable[[str], str] = str, *rivals: str) -> Key:
    return Key(KUEUE + name, lambda text: {ours: parse(text)}, rivals or (ours,))


def _seconds(text: str) -> str:
    return f"{keys.parse_count(text)}s"


def _count(text: str) -> str:
    return str(keys.parse_count(text))


def _unconstrained(text: str) -> Said:
    if text not in _TRUE | _FALSE:
        raise BadValue(f"must be true or false, not {text!r}")
    return {keys.UNCONSTRAINED_TOPOLOGY: "true"} if text in _TRUE else {}


def _layers(text: str) -> Said:
    """Several slice levels, the outermost first (KEP-2724 of Kueue): a JSON list of `topology` and `size`."""
    try:
        layers = [(layer["topology"], layer["size"]) for layer in json.loads(text)]
        good = bool(layers) and all(isinstance(level, str) and type(size) is int for level, size in layers)
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        raise BadValue(f'must be a list such as [{{"topology": "topology/rack", "size": 8}}], not {text!r}')
    levels = ",".join(keys.parse_level(level) for level, _ in layers)
    return {keys.SLICE_TOPOLOGY: levels, keys.SLICE_SIZE: ",".join(_count(str(size)) for _, size in layers)}


_SLICES = (keys.SLICE_TOPOLOGY, keys.SLICE_SIZE)
JOB_LABELS = (_key("queue-name", QUEUE_LABEL), _key("priority-class", PRIORITY_CLASS_LABEL))
LABELS_THAT_ARE_ANNOTATIONS = (_key("max-exec-time-seconds", keys.MAX_RUN_TIME, _seconds),)
JOB_ANNOTATIONS = (_key("job-min-parallelism", keys.MIN_COUNT, _count),)
"""Of a batch/v1 Job alone: Kueue lets no other kind start with fewer pods."""
TEMPLATE_ANNOTATIONS = (
    _key("podset-required-topology", keys.REQUIRED_TOPOLOGY, keys.parse_level, *keys.TOPOLOGY_KEYS),
    _key("podset-preferred-topology", keys.PREFERRED_TOPOLOGY, keys.parse_level, *keys.TOPOLOGY_KEYS),
    Key(KUEUE + "podset-unconstrained-topology", _unconstrained, tuple(keys.TOPOLOGY_KEYS)),
    Key(SLICE_LEVEL, lambda text: {keys.SLICE_TOPOLOGY: keys.parse_level(text)}, _SLICES),
    Key(SLICE_SIZE, lambda text: {keys.SLICE_SIZE: _count(text)}, _SLICES),
    Key(SLICE_LAYERS, _layers, _SLICES),
    _key("podset-group-name", keys.PODSET_GROUP),
)


def queue_labels(lookup: Lookup) -> tuple[str, ...]:
    """The labels that name a queue, ours first."""
    return (QUEUE_LABEL, KUEUE_QUEUE_LABEL) if lookup.kueue_keys else (QUEUE_LABEL,)


def labels_of(obj: Object, lookup: Lookup) -> Mapping[str, str]:
    """The labels of a job, with queue and priority class where Kueue's name them. An empty one names nothing."""
    labels: Mapping[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    if not lookup.kueue_keys or not any(labels.get(key.name) for key in JOB_LABELS):
        return labels
    given = {name: value for name, value in labels.items() if value and isinstance(value, str)}
    return {**_said(View(given), given, JOB_LABELS), **labels}


def of_job(obj: Object, lookup: Lookup) -> Object:
    """A job whose own labels and annotations (not those of its pod templates) are ours. Raises Unresolvable."""
    if not lookup.kueue_keys or not isinstance(obj.get("metadata"), dict):
        return obj
    metadata = View(obj)["metadata"]
    annotations = metadata["annotations"].mapping()
    read = _said(metadata["labels"], annotations, LABELS_THAT_ARE_ANNOTATIONS)
    if obj.get("kind") == JOBS.kind:
        read |= _said(metadata["annotations"], annotations, JOB_ANNOTATIONS)
    labels = labels_of(obj, lookup)
    if not read and labels is metadata["labels"].value:
        return obj
    parts = {"labels": labels, "annotations": {**annotations, **read}}
    return {**obj, "metadata": {**metadata.mapping(), **{name: part for name, part in parts.items() if part}}}


def of_template(template: View, lookup: Lookup) -> View:
    """A pod template whose annotations are ours. Raises Unresolvable."""
    if not lookup.kueue_keys:
        return template
    annotations = template["metadata"]["annotations"]
    read = _said(annotations, annotations.mapping(), TEMPLATE_ANNOTATIONS)
    if not read:
        return template
    if (keys.SLICE_TOPOLOGY in read) is not (keys.SLICE_SIZE in read):
        one, other = (SLICE_LEVEL, SLICE_SIZE) if keys.SLICE_TOPOLOGY in read else (SLICE_SIZE, SLICE_LEVEL)
        path = f"{annotations.path}[{one}]"
        raise Unresolvable("BadAnnotation", path, f"{path} needs {annotations.path}[{other}] beside it")
    metadata = {**template["metadata"].mapping(), "annotations": {**annotations.mapping(), **read}}
    return template.instead({**template.mapping(), "metadata": metadata})


def of_job_set_spec(spec: View, lookup: Lookup) -> View:
    """The spec of a JobSet, or a patch of it, whose pod templates' annotations are ours. Raises Unresolvable."""
    if not lookup.kueue_keys or not spec["replicatedJobs"].given:
        return spec
    jobs = [_in(job, ("template", "spec", "template"), lookup).value for job in spec["replicatedJobs"].items()]
    return spec.instead({**spec.mapping(), "replicatedJobs": jobs})


def _in(view: View, path: Sequence[str], lookup: Lookup) -> View:
    """An object whose pod template at that path is read so."""
    if not path:
        return of_template(view, lookup)
    step = view[path[0]]
    after = _in(step, path[1:], lookup) if step.given else step
    return view if after is step else view.instead({**view.mapping(), path[0]: after.value})


def everywhere(obj: Object, lookup: Lookup) -> Object:
    """A job that says with our keys whatever it says itself, pod templates and patches of them included: to tell its
    user what is wrong with it. Raises Unresolvable."""
    if not lookup.kueue_keys:
        return obj
    read = of_job(obj, lookup)
    spec = View(read)["spec"]
    if not spec.given:
        return read
    if obj.get("kind") == JOBS.kind:
        after = _in(spec, ("template",), lookup)
    else:
        after = of_job_set_spec(spec, lookup)
        lists = (("podTemplateOverrides", _of_override), ("runtimePatches", _of_patch))
        found = {name: [of(item, lookup) for item in after[name].items()] for name, of in lists if after[name].given}
        after = after.instead({**after.mapping(), **found})
    return {**read, "spec": after.value}


def _of_override(item: View, lookup: Lookup) -> Any:
    return of_template(item, lookup).value


def _of_patch(patch: View, lookup: Lookup) -> Any:
    spec = patch.at("trainingRuntimeSpec", "template", "spec")
    after = of_job_set_spec(spec, lookup)
    if after is spec:
        return patch.value
    runtime = patch["trainingRuntimeSpec"]
    template = {**runtime["template"].mapping(), "spec": after.value}
    return {**patch.mapping(), "trainingRuntimeSpec": {**runtime.mapping(), "template": template}}


def validate(obj: Object, lookup: Lookup) -> list[Finding]:
    """All findings about our own keys, and Kueue's where they count. Never raises."""
    try:
        findings = validate_ours(everywhere(obj, lookup), lookup)
        return findings + (_misplaced(obj) if lookup.kueue_keys else [])
    except Unresolvable as error:
        return [Finding(error.field, error.message.removeprefix(f"{error.field} "))]


def _misplaced(obj: Object) -> list[Finding]:
    """Warnings about what Kueue does not read on a job itself."""
    metadata = View(obj)["metadata"]
    given = metadata["annotations"].mapping()
    return [
        Finding(_at(metadata["annotations"], key), "has a meaning on pod templates only", Severity.WARNING)
        for key in TEMPLATE_ANNOTATIONS
        if key.name in given
    ]


def _said(theirs: View, ours: Mapping[str, Any], table: Sequence[Key]) -> dict[str, Borrowed]:
    """What the keys of the table in `theirs` say, `ours` being what stands there already. Raises Unresolvable."""
    given = theirs.mapping()
    read: dict[str, Borrowed] = {}
    for key in table:
        if key.name not in given or any(rival in ours for rival in key.unless):
            continue
        path = _at(theirs, key)
        said = keys.read(View(given[key.name], path), key.says)
        for name, value in said.items():
            if name in read:
                message = f"{path} can't stand beside {read[name].key}"
                raise Unresolvable("BadAnnotation", path, message)
            read[name] = Borrowed(value, key.name)
    return read


def _at(part: View, key: Key) -> str:
    return f"{part.path}[{key.name}]"
