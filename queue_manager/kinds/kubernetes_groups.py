"""PodGroups of Kubernetes (`scheduling.k8s.io`) as other controllers make them: read, never written.

v1beta1 of Kubernetes 1.37 and v1alpha2 of 1.36 (reference/workloads.md, 5.1). What can't be read counts as not given:
kube-scheduler has it from the API server's own validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from queue_manager.cluster.port import Object
from queue_manager.engine.workload import (
    DisruptionMode,
    GroupPolicy,
    PodGroup,
    PodSet,
    SliceLayer,
    TopologyMode,
    TopologyRequest,
)
from queue_manager.kinds.fields import status_of

NOTED = "PodGroup/"
"""Start of keys in a workload's inputs: what was read of a PodGroup, kept while the object itself is away (some
controllers delete them when they suspend)."""
_ALL = {"all", "PodGroup"}
_PLACED = ("PodGroupInitiallyScheduled", "PodGroupScheduled")
"""The condition by its name in v1beta1 and in v1alpha2."""


@dataclass(frozen=True, slots=True)
class KubernetesGroup:
    """One PodGroup. `minimum` is None in a basic one, `level` its topology key ("" for none).

    `reason` and `message` are kube-scheduler's for not placing it, `disrupted` its words for taking pods of it away,
    at `disrupted_at` (RFC 3339), both "" while that is not so.
    """

    uid: str
    name: str
    policy: GroupPolicy = GroupPolicy.BASIC
    minimum: int | None = None
    level: str = ""
    disruption: DisruptionMode = DisruptionMode.SINGLE
    priority: int | None = None
    priority_class: str = ""
    reason: str = ""
    message: str = ""
    disrupted: str = ""
    disrupted_at: str = ""


@dataclass(frozen=True, slots=True)
class Covering:
    """A PodGroup and the pod sets whose pods are in it; `each`: only those of one child Job, others have their own.
    `pod_priorities` are those of the pods that are there."""

    pod_sets: tuple[str, ...]
    group: KubernetesGroup
    each: bool = False
    pod_priorities: tuple[int, ...] = ()


def read_group(obj: Object) -> KubernetesGroup:
    """A PodGroup of either version."""
    spec = _object(obj.get("spec"))
    gang = _object(spec.get("schedulingPolicy")).get("gang")
    topology = _object(spec.get("schedulingConstraints")).get("topology")
    keys = [_text(_object(entry).get("key")) for entry in topology] if isinstance(topology, list) else []
    mode = spec.get("disruptionMode")
    words = {mode} if isinstance(mode, str) else set(_object(mode))
    unplaced = next((c for name in _PLACED if (c := _condition(obj, name, "False"))), {})
    gone = _condition(obj, "DisruptionTarget", "True")
    return KubernetesGroup(
        uid=_text(obj["metadata"].get("uid")),
        name=_text(obj["metadata"].get("name")),
        policy=GroupPolicy.BASIC if gang is None else GroupPolicy.GANG,
        minimum=_number(_object(gang).get("minCount")),
        level=next(iter(keys), ""),
        disruption=DisruptionMode.ALL if words & _ALL else DisruptionMode.SINGLE,
        priority=_number(spec.get("priority")),
        priority_class=_text(spec.get("priorityClassName")),
        reason=_text(unplaced.get("reason")),
        message=_text(unplaced.get("message")),
        disrupted=_text(gone.get("message")) or _text(gone.get("reason")),
        disrupted_at=_text(gone.get("lastTransitionTime")),
    )


def workload_of(group: Object) -> str:
    """The name of the Workload that a PodGroup was made for, "" for none."""
    spec = _object(group.get("spec"))
    former = _object(_object(spec.get("podGroupTemplateRef")).get("workload"))
    return _text(_object(spec.get("workloadRef")).get("workloadName")) or _text(former.get("workloadName"))


def controller_reference(workload: Object) -> tuple[str, str, str]:
    """API group, kind and name of the object that a Workload stands for."""
    reference = _object(_object(workload.get("spec")).get("controllerRef"))
    return _text(reference.get("apiGroup")), _text(reference.get("kind")), _text(reference.get("name"))


def group_name(template: Any) -> str:
    """The PodGroup that pods of this template, or a pod, name; "" for none."""
    return _text(_object(_object(_object(template).get("spec")).get("schedulingGroup")).get("podGroupName"))


def with_groups(groups: tuple[PodGroup, ...], coverings: Iterable[Covering]) -> tuple[PodGroup, ...]:
    """A workload's pod groups as Kubernetes has them: what kube-scheduler holds together is one group here, too."""
    for covering in coverings:
        groups = _with_group(groups, covering)
    return groups


def _with_group(groups: tuple[PodGroup, ...], covering: Covering) -> tuple[PodGroup, ...]:
    wanted, found = set(covering.pod_sets), covering.group
    members = [pod_set for group in groups for pod_set in group.pod_sets if pod_set.name in wanted]
    if not members:
        return groups
    request = TopologyRequest(TopologyMode.REQUIRED, found.level) if found.level else None
    if covering.each:
        members = [_each_in_one(pod_set, found.level) for pod_set in members]
        request = None
    result: list[PodGroup] = []
    placed = False
    for group in groups:
        rest = tuple(pod_set for pod_set in group.pod_sets if pod_set.name not in wanted)
        if len(rest) == len(group.pod_sets):
            result.append(group)
            continue
        if not placed:
            name = group.name if not rest else "-".join(pod_set.name for pod_set in members)
            result.append(PodGroup(name, tuple(members), found.policy, found.minimum, request, found.disruption))
            placed = True
        if rest:
            result.append(replace(group, pod_sets=rest))
    return tuple(result)


def _each_in_one(pod_set: PodSet, level: str) -> PodSet:
    """The pods of each child Job in one domain, beside the slices that are asked for already."""
    own = pod_set.topology or TopologyRequest(TopologyMode.UNCONSTRAINED)
    new = SliceLayer(level, pod_set.replica_size or pod_set.count)
    layers = sorted({*own.slices, new}, key=lambda layer: -layer.size)
    if not level or any(outer.size % inner.size for outer, inner in pairwise(layers)):
        return pod_set
    return replace(pod_set, topology=replace(own, slices=tuple(layers)))


def noted(coverings: Sequence[Covering]) -> dict[str, str]:
    """What to keep of PodGroups for the time without them, as inputs of a workload."""
    return {
        NOTED + ",".join(covering.pod_sets): json.dumps(
            {
                "level": covering.group.level,
                "policy": covering.group.policy.value,
                "disruption": covering.group.disruption.value,
                "minimum": covering.group.minimum,
                "priority": covering.group.priority,
                "each": covering.each,
            },
            sort_keys=True,
        )
        for covering in coverings
        if covering.pod_sets
    }


def remembered(inputs: Mapping[str, str]) -> list[Covering]:
    """The other way round; what can't be read is left out."""
    found = []
    for key in sorted(inputs):
        if not key.startswith(NOTED):
            continue
        names = tuple(key.removeprefix(NOTED).split(","))
        try:
            data = json.loads(inputs[key])
            policy, mode = GroupPolicy(data["policy"]), DisruptionMode(data["disruption"])
            minimum, priority = _number(data.get("minimum")), _number(data.get("priority"))
            group = KubernetesGroup("", "", policy, minimum, str(data["level"]), mode, priority)
            found.append(Covering(names, group, bool(data["each"])))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _condition(obj: Object, kind: str, status: str) -> Mapping[str, Any]:
    """The condition of that type if it has this status."""
    conditions = status_of(obj).get("conditions")
    known = (_object(entry) for entry in (conditions if isinstance(conditions, list) else []))
    return next((c for c in known if c.get("type") == kind and c.get("status") == status), {})


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
