"""Plain pods: a group of them, or one alone, is a workload without an object of its own (issue 5; workloads.md §4.4).

`obj` is made by the controller from the pods and the row (see `controller.plain_groups`): its metadata are those of the
oldest pod, `spec` holds `pods` (as the caches keep them), `suspend` (no pod is past its gate, and none is to be),
`stopped` (it ran before), `attempt` and, once admitted, `admitted`: pod set name -> (pods wanted, pods admitted, pods
that had ended by then).

Pods can't be suspended: they start when our gate is taken off them, one by one (`controller.pod_gates`), and are
stopped by deleting them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from queue_manager.cluster.pods import is_gone, is_leaving, is_ready
from queue_manager.cluster.port import PODS, Object, Query, Resource
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import patches
from queue_manager.kinds.fields import View, suspended
from queue_manager.kinds.gates import ADMISSION_GATE, awaits_admission
from queue_manager.kinds.kind import (
    PREFIX,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    Additions,
    Done,
    Finished,
    Lookup,
    Outcome,
    Placement,
    PodPlacement,
    Resolved,
    Several,
    Step,
    Unresolvable,
    Wait,
    Write,
)
from queue_manager.kinds.limit_ranges import Defaults
from queue_manager.kinds.plain_rules import plain_rules
from queue_manager.kinds.plain_shapes import (
    POD_GROUP_LABEL,
    POD_GROUP_SIZE,
    POD_SET,
    SHAPE,
    TEMPLATE,
    WORKLOAD,
    admission_of,
    age,
    has_failed,
    has_succeeded,
    runs,
)
from queue_manager.kinds.pod_template import PodShape, pod_shape, with_count
from queue_manager.kinds.wishes import wishes_of, with_wishes

PLAIN_GROUPS = Resource("queue-manager.io", "v1", "podgroups", "PodGroup")
LONE_PODS = Resource("queue-manager.io", "v1", "pods", "Pod")
"""Collections that no API server has."""

PODS_MISSING = "PodsMissing"
MOST_NOTED = 8
"""Pods of a group that get events and annotations, the oldest ones: a group of thousands costs no more."""

_AGREED = {
    "labels": (QUEUE_LABEL, PRIORITY_CLASS_LABEL),
    "annotations": (
        *(POD_GROUP_SIZE, keys.MIN_COUNT, keys.MAX_RUN_TIME, PREFIX + "user", *keys.TOPOLOGY_KEYS),
        *(keys.SLICE_TOPOLOGY, keys.SLICE_SIZE, keys.BALANCED, keys.SPREAD_TOPOLOGY, *keys.EXCLUSIVE_KEYS),
    ),
}
"""What speaks of the whole group: all its pods have to say the same."""


class PlainPods:
    """`resource` tells groups from pods that are alone."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    @patches.guarded
    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        """As in `Kind.resolve`, once all pods exist. A pod set are pods that are alike, in the order of the oldest."""
        done, there = _succeeded(obj), _existing(obj)
        _agree([*done, *there])
        size = group_size(obj)
        if len(done) + len(there) < size:
            raise Unresolvable(PODS_MISSING, "", _missing(obj, len(done) + len(there), size))
        members = [*done, *there[: size - len(done)]]
        counts = Counter(self.pod_set_of(pod) for pod in sorted(members, key=age))
        templates = {pod[SHAPE]: View(pod[TEMPLATE], "") for pod in members if TEMPLATE in pod}
        shapes = _shapes(templates, Defaults(lookup, obj["metadata"].get("namespace", "")))
        if not shapes:
            raise Unresolvable(PODS_MISSING, "", "no pod of the group waits at its gate")
        metadata = View(obj)["metadata"]
        wishes = wishes_of(metadata)
        min_count = _min_count(metadata, size, len(shapes))
        ended = Counter(self.pod_set_of(pod) for pod in done)
        rules = plain_rules(obj["metadata"], templates, [pod for pod in members if not has_succeeded(pod)])
        pod_sets = (
            replace(
                with_count(shapes[name], counts[name], reclaimed=ended[name]),
                min_count=min_count,
                rules=rules[name].rules,
            )
            for name in counts
            if name in shapes
        )
        return Resolved(
            pod_groups=(PodGroup("main", tuple(with_wishes(pod_set, 0, wishes) for pod_set in pod_sets)),),
            topology=wishes.topology,
            pod_priority_class=next((s.priority_class for s in shapes.values() if s.priority_class), ""),
            messages=tuple(dict.fromkeys(message for found in rules.values() for message in found.messages)),
        )

    def is_suspended(self, obj: Object) -> bool:
        """Whether no pod is past its gate, and none is to be."""
        return suspended(obj)

    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        """As in `Kind.suspend_on_create`, of one pod: the gate."""
        return gate_on_create(obj)

    def next_start(self, obj: Object, placement: Placement, lookup: Lookup, *, refused: str = "") -> Step:
        """Nothing to write here: each pod is let through by itself, at any time while the group runs."""
        return Done()

    def lost_placement(self, obj: Object, placement: Placement, lookup: Lookup) -> str:
        """Never: the API server lets nobody change where a pod may go once its gate is off."""
        return ""

    def next_stop(self, obj: Object, lookup: Lookup, *, drained: bool, refused: str = "") -> Step:
        """As in `Kind.next_stop`: pods that are past their gate are deleted, each with its own grace period. Those that
        wait at it stay for the next start."""
        running = [pod for pod in _pods(obj) if runs(pod)]
        if drained or not running:
            return Done()
        going = tuple(_delete(pod) for pod in running if not is_leaving(pod))
        return Several(going) if going else Wait("its pods to end")

    def is_active(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.is_active`."""
        return any(runs(pod) for pod in _pods(obj))

    def pods_ready(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.pods_ready`."""
        done = Counter(self.pod_set_of(pod) for pod in _succeeded(obj))
        ready = Counter(self.pod_set_of(pod) for pod in _pods(obj) if runs(pod) and is_ready(pod))
        return not self.is_suspended(obj) and all(
            ready[name] >= min(admitted, wanted - done[name]) for name, (wanted, admitted, _) in _admitted(obj).items()
        )

    def finished(self, obj: Object) -> Finished | None:
        """Once enough pods have succeeded, or all have ended by themselves and nobody has made another one. Until then
        one that failed can be replaced: it keeps its place."""
        attempt = obj["spec"].get("attempt", 0)
        succeeded = len(_succeeded(obj))
        failed = sum(has_failed(pod) and admission_of(pod)[1] in (0, attempt) for pod in _pods(obj))
        size = _declared_size(obj)
        if succeeded + failed == 0 or size is None or any(runs(pod) for pod in _pods(obj)):
            return None
        if succeeded >= size:
            return Finished(Outcome.SUCCEEDED, f"{succeeded} of {size} pods succeeded")
        if succeeded + failed < size or _existing(obj):
            return None
        return Finished(Outcome.FAILED, f"{succeeded} of {size} pods succeeded, {failed} failed")

    def reclaimable(self, obj: Object, lookup: Lookup) -> Mapping[str, int]:
        """Pods that have succeeded, where none that still waits for its turn (min-count) takes their place."""
        done = Counter(self.pod_set_of(pod) for pod in _succeeded(obj))
        sizes = _admitted(obj)
        return {name: _lent(ended, *sizes[name]) if name in sizes else ended for name, ended in done.items()}

    def pods_query(self, obj: Object) -> Query:
        """As in `Kind.pods_query`."""
        metadata = obj["metadata"]
        if self.resource == LONE_PODS:
            return Query(namespace=metadata["namespace"], field_selector=f"metadata.name={metadata['name']}")
        return Query(namespace=metadata["namespace"], label_selector=f"{POD_GROUP_LABEL}={metadata['name']}")

    def occupies(self, obj: Object, pod: Object) -> bool:
        """A pod that waits at its gate waits for the next admission."""
        if self.resource == LONE_PODS and pod["metadata"]["uid"] != obj["metadata"]["uid"]:
            return False
        return runs(pod) and admission_of(pod)[0] in ("", obj["metadata"]["uid"])

    def passage(self, pod: Object, placement: PodPlacement, admission: str) -> Additions:
        """Node selector and tolerations, which nobody else gives it, and whose it is."""
        template = View(pod.get(TEMPLATE) or {}, "")
        operations = []
        if wanted := patches.checked(template.at("spec", "nodeSelector"), placement.node_selector):
            selector = {**template.at("spec", "nodeSelector").mapping(), **wanted}
            operations.append(patches.put(selector, "spec", "nodeSelector"))
        present = [entry.value for entry in template.at("spec", "tolerations").items()]
        merged = patches.merged_tolerations(template.at("spec", "tolerations"), placement.tolerations)
        if len(merged) > len(present):
            operations.append(patches.put(merged, "spec", "tolerations"))
        return Additions({WORKLOAD: admission, POD_SET: self.pod_set_of(pod)}, tuple(operations))

    def most_running(self, pod_set: PodSet, assigned: PodSetAssignment, pods: Sequence[Object]) -> int | None:
        """As many as are admitted, and no more than have yet to succeed."""
        return min(assigned.count, pod_set.count - sum(map(has_succeeded, pods)))

    def keeps_slot(self, pod: Object, uid: str, attempt: int) -> bool:
        """One that has succeeded: the place of one that failed is for its replacement."""
        return has_succeeded(pod) and admission_of(pod) == (uid, attempt)

    def pod_set_of(self, pod: Object) -> str:
        """As in `Kind.pod_set_of`."""
        return str(pod.get(SHAPE) or "")

    def noted_on(self, obj: Object) -> Sequence[tuple[Resource, Object]]:
        """Its oldest pods, those that have not ended first."""
        pods = sorted(_pods(obj), key=lambda pod: (is_gone(pod), age(pod)))
        return [(PODS, pod) for pod in pods[:MOST_NOTED]]


def group_size(obj: Object) -> int:
    """The number of pods that the group consists of. Raises Unresolvable."""
    metadata = View(obj)["metadata"]
    field = keys.annotation(metadata, POD_GROUP_SIZE)
    grouped = POD_GROUP_LABEL in metadata["labels"].mapping()
    if field.given and not grouped:
        label = f"metadata.labels[{POD_GROUP_LABEL}]"
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} needs {label} beside it")
    if not field.given:
        if not grouped:
            return 1
        raise Unresolvable("BadAnnotation", field.path, f"{field.path} is missing: of how many pods is it?")
    return keys.read(field, keys.parse_count)


def gate_on_create(pod: Object) -> list[Object]:
    """What puts our gate on a pod that is being created."""
    gates = (pod.get("spec") or {}).get("schedulingGates")
    if awaits_admission(pod) or not isinstance(pod.get("spec"), dict):
        return []
    gate = {"name": ADMISSION_GATE}
    return [patches.put([*(gates or ()), gate], "spec", "schedulingGates")]


def _pods(obj: Object) -> Sequence[Object]:
    return obj["spec"]["pods"]  # type: ignore[no-any-return]


def _admitted(obj: Object) -> Mapping[str, tuple[int, int, int]]:
    return obj["spec"].get("admitted") or {}


def _succeeded(obj: Object) -> list[Object]:
    return [pod for pod in _pods(obj) if has_succeeded(pod)]


def _existing(obj: Object) -> list[Object]:
    """Pods that have yet to end and are to stay, the oldest first."""
    return sorted((pod for pod in _pods(obj) if not is_gone(pod) and not is_leaving(pod)), key=age)


def _missing(obj: Object, found: int, size: int) -> str:
    gone = "; those that ran were deleted when it was stopped" if obj["spec"].get("stopped") else ""
    return f"{found} of {size} pods exist{gone}"


def _lent(succeeded: int, wanted: int, admitted: int, ended: int) -> int:
    """Pods of `admitted + ended` that have no successor any more."""
    return max(0, admitted + ended - min(admitted, wanted - succeeded))


def _declared_size(obj: Object) -> int | None:
    try:
        return group_size(obj)
    except Unresolvable:
        return None


def _agree(pods: Sequence[Object]) -> None:
    """Raises Unresolvable where pods of one group contradict each other."""
    ordered = sorted(pods, key=age)
    for part, key in ((part, key) for part, names in _AGREED.items() for key in names):
        values = {(pod["metadata"].get(part) or {}).get(key): pod for pod in reversed(ordered)}
        if len(values) > 1:
            one, other = sorted(values.items(), key=lambda item: age(item[1]))[:2]
            path = f"metadata.{part}[{key}]"
            said = " and ".join(f"{value or 'nothing'!r} on {pod['metadata']['name']}" for value, pod in (one, other))
            raise Unresolvable("Disagreement", path, f"{path} must be the same on all pods of the group, but is {said}")


def _shapes(templates: Mapping[str, View], defaults: Defaults) -> Mapping[str, PodShape]:
    """Pod sets by name. What they ask for stands in those of their pods that were not let through yet: a pod set of
    which all have succeeded needs nothing any more."""
    return {name: pod_shape(template, name, defaults) for name, template in templates.items()}


def _min_count(metadata: View, size: int, shapes: int) -> int | None:
    """The smallest number of pods the group can run with at once. Raises Unresolvable."""
    count, path = keys.min_count(metadata), keys.annotation(metadata, keys.MIN_COUNT).path
    if count is not None and count > size:
        raise Unresolvable("BadAnnotation", path, f"{path} must not be above {POD_GROUP_SIZE} ({size}), but is {count}")
    if count is not None and shapes > 1:
        message = f"{path} needs pods that are all alike, the group has {shapes} kinds of them"
        raise Unresolvable("BadAnnotation", path, message)
    return count


def _delete(pod: Object) -> Write:
    metadata = pod["metadata"]
    says = "deletes a pod of a group that is stopped"
    return Write("delete", PODS, metadata["namespace"], metadata["name"], says, uid=metadata["uid"])
