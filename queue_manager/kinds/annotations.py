"""Our labels and annotations on jobs, pod templates and runtimes (design, section 4): reading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from queue_manager.cluster.port import Object
from queue_manager.engine.workload import MICROSECONDS, DisruptionMode, SliceLayer, TopologyMode, TopologyRequest
from queue_manager.kinds.fields import View, written_as
from queue_manager.kinds.kind import MANAGED_LABEL, PREFIX, PRIORITY_CLASS_LABEL, QUEUE_LABEL, Unresolvable

REQUIRED_TOPOLOGY = PREFIX + "required-topology"
PREFERRED_TOPOLOGY = PREFIX + "preferred-topology"
UNCONSTRAINED_TOPOLOGY = PREFIX + "unconstrained-topology"
PODSET_GROUP = PREFIX + "podset-group"
PODSET_GROUP_TOPOLOGY = PREFIX + "podset-group-required-topology"
MIN_COUNT = PREFIX + "min-count"
MAX_RUN_TIME = PREFIX + "max-run-time"
DISRUPTION_MODE = PREFIX + "disruption-mode"
ELASTIC = PREFIX + "elastic"
NO_SLICES = "pods that come later could not complete a slice whose domain is full by then"
"""Why an elastic Job has no slices."""
CHECKPOINTED_AT = PREFIX + "checkpointed-at"
T = TypeVar("T")
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


class BadValue(ValueError):
    """An annotation's value is not of its form; says which form that is."""


def annotation(metadata: View, key: str) -> View:
    """One annotation of an object's metadata, its path written so that people find it."""
    given = metadata["annotations"].mapping()
    return View(given.get(key), f"{metadata.path}.annotations[{written_as(given, key)}]")


def read(field: View, parse: Callable[[str], T]) -> T:
    """What a field says, by a parser that raises BadValue. Raises Unresolvable."""
    try:
        return parse(field.text())
    except BadValue as error:
        raise bad(field, str(error)) from error


def bad(field: View, why: str) -> Unresolvable:
    """The refusal of what an annotation says."""
    return Unresolvable("BadAnnotation", field.path, f"{field.path} {why}")


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
        raise bad(field, f"can't stand beside {other}")
    mode = TOPOLOGY_KEYS[found[0]]
    if mode is TopologyMode.UNCONSTRAINED:
        read(field, parse_true)
        return TopologyRequest(mode, "", layers, balanced)
    return TopologyRequest(mode, read(field, parse_level), layers, balanced)


def slice_layers(metadata: View) -> tuple[SliceLayer, ...]:
    """The slices that these annotations ask for, the outermost layer first. Raises Unresolvable."""
    levels, sizes = annotation(metadata, SLICE_TOPOLOGY), annotation(metadata, SLICE_SIZE)
    if not (levels.given or sizes.given):
        return ()
    for field, other in ((levels, sizes), (sizes, levels)):
        if not field.given:
            raise bad(other, f"needs {field.path} beside it")
    keys, counts = read(levels, parse_levels), read(sizes, parse_sizes)
    if len(counts) != len(keys):
        raise bad(sizes, f"must give one size for each of the {len(keys)} levels, not {len(counts)}")
    return tuple(map(SliceLayer, keys, counts))


def is_balanced(metadata: View) -> bool:
    """Whether the domains that the pods need several of take equal parts. Raises Unresolvable."""
    field = annotation(metadata, BALANCED)
    if not field.given:
        return False
    read(field, parse_true)
    given = metadata["annotations"].mapping()
    if REQUIRED_TOPOLOGY not in given and PREFERRED_TOPOLOGY not in given:
        raise bad(field, f"needs {PREFERRED_TOPOLOGY} or {REQUIRED_TOPOLOGY} beside it")
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
    return read(field, parse_name) if field.given else ""


def podset_group_topology(metadata: View) -> TopologyRequest | None:
    """The domain that pod sets of one group share, around what each of them asks for itself. Raises Unresolvable."""
    field = annotation(metadata, PODSET_GROUP_TOPOLOGY)
    if not field.given:
        return None
    if not podset_group(metadata):
        raise bad(field, f"needs {annotation(metadata, PODSET_GROUP).path} beside it")
    return TopologyRequest(TopologyMode.REQUIRED, read(field, parse_level))


def is_label_key(text: str) -> bool:
    """Whether a node can have a label of this key."""
    return bool(_LABEL_KEY.fullmatch(text))


def min_count(metadata: View) -> int | None:
    """The smallest count the job can run with. Raises Unresolvable."""
    field = annotation(metadata, MIN_COUNT)
    return read(field, parse_count) if field.given else None


def is_elastic(metadata: View) -> bool:
    """Whether the job may change its number of pods while it runs. Raises Unresolvable."""
    field = annotation(metadata, ELASTIC)
    return field.given and read(field, parse_true)


def max_run_time(obj: Object) -> int | None:
    """The longest time an admission of this job may last, in microseconds; None without one. Raises Unresolvable."""
    field = annotation(View(obj)["metadata"], MAX_RUN_TIME)
    return read(field, parse_duration) if field.given else None


def pod_priority_class(obj: Object) -> str:
    """The priority class that the user gave the pods, where the webhook has given them another one; else ""."""
    text = (obj["metadata"].get("annotations") or {}).get(POD_PRIORITY_CLASS)
    return text if isinstance(text, str) else ""


def disruption_mode(obj: Object) -> DisruptionMode | None:
    """What becomes of the job when a third party takes pods of it away, None where it does not say. Raises
    Unresolvable."""
    field = annotation(View(obj)["metadata"], DISRUPTION_MODE)
    return read(field, parse_disruption_mode) if field.given else None


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


def parse_true(text: str) -> bool:
    """`true`, the only value of a switch. Raises BadValue."""
    if text != "true":
        raise BadValue(f"must be true, not {text!r}")
    return True


def parse_name(text: str) -> str:
    """A name. Raises BadValue."""
    if not is_name(text):
        raise BadValue(f"must be a name of at most 63 characters, not {text!r}")
    return text


def is_name(text: str) -> bool:
    """Whether an object can have this name, or a label this value."""
    return bool(_NAME.fullmatch(text))


PARSERS: Mapping[str, Callable[[str], object]] = {
    REQUIRED_TOPOLOGY: parse_level,
    PREFERRED_TOPOLOGY: parse_level,
    UNCONSTRAINED_TOPOLOGY: parse_true,
    SPREAD_TOPOLOGY: parse_level,
    EXCLUSIVE_TOPOLOGY: parse_level,
    PODSET_GROUP_TOPOLOGY: parse_level,
    PODSET_GROUP: parse_name,
    SLICE_TOPOLOGY: parse_levels,
    SLICE_SIZE: parse_sizes,
    MAX_RUN_TIME: parse_duration,
    DISRUPTION_MODE: parse_disruption_mode,
    MIN_COUNT: parse_count,
    ELASTIC: parse_true,
    CHECKPOINTED_AT: parse_instant,
}
"""How the value of each of our annotations is read, where it is enough to look at it alone."""
