"""From a job object to the row it asks for: queue, priority, user and pod sets. Pure, given the lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from urllib.parse import unquote

from queue_manager.cluster.clock import parse_rfc3339
from queue_manager.cluster.port import NAMESPACES, PRIORITY_CLASSES, Object
from queue_manager.config.compiled import Compiled
from queue_manager.controller.pod_priority import PodPriority, with_priorities
from queue_manager.engine.copies import replace
from queue_manager.engine.workload import DisruptionMode, PodGroup
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.annotations import disruption_mode, max_run_time
from queue_manager.kinds.fields import identity, written_as
from queue_manager.kinds.kind import (
    MANAGED_LABEL,
    PREFIX,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    Kind,
    Lookup,
    Resolved,
    Unresolvable,
)
from queue_manager.kinds.kubernetes_groups import Covering, noted, remembered, with_groups
from queue_manager.kinds.scheduling import SIZE
from queue_manager.store.readings import KUBERNETES_CLASS, UNKNOWN_QUEUE, resolve_queue, with_priority_class
from queue_manager.store.records import State, WorkloadRow
from queue_manager.store.wishes import PENDING_EVALUATION, STICKY_HOLDS

DEFAULT_LOCAL_QUEUE = "default"
GANG_SIZE_CHANGED = "GangSizeChanged"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reading:
    """A row read off its object, and `messages`: what of the object is not acted on. `preempting` are the priorities of
    its pods by which kube-scheduler may stop others."""

    row: WorkloadRow
    messages: tuple[str, ...] = ()
    preempting: tuple[PodPriority, ...] = ()


def resolve_anew(obj: Object, kind: Kind, lookup: Lookup) -> Resolved:
    """What an object asks for, worked out."""
    return kind.resolve(obj, lookup)


@dataclass(frozen=True, slots=True)
class Intake:
    """Reads rows off objects with the configuration and the caches of the moment."""

    lookup: Lookup
    compiled: Callable[[], Compiled]
    pod_groups: Callable[[Object, Kind], Sequence[Covering]] = lambda obj, kind: ()
    """The PodGroups that Kubernetes has of a job now."""
    resolve: Callable[[Object, Kind, Lookup], Resolved] = resolve_anew

    def is_managed(self, obj: Object) -> bool:
        """Whether the object itself asks for a queue, or lies in a managed namespace."""
        meta = obj["metadata"]
        if kueue_keys.labels_of(obj, self.lookup).get(QUEUE_LABEL):
            return True
        return self.namespace_labels(meta.get("namespace", "")).get(MANAGED_LABEL) == "true"

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Labels of a namespace, {} while it is not known."""
        found = self.lookup.get(NAMESPACES, "", namespace)
        return (found or {}).get("metadata", {}).get("labels") or {}

    def read(self, obj: Object, kind: Kind, inputs: Mapping[str, str] = NOTHING) -> WorkloadRow:
        """The row of an object as if it had just arrived: waiting, or held where its pod sets can't be told. `inputs`
        are those of the row that it has."""
        return self.read_all(obj, kind, inputs).row

    def read_all(self, obj: Object, kind: Kind, inputs: Mapping[str, str] = NOTHING) -> Reading:
        """The same with what there is to tell its user."""
        meta = obj["metadata"]
        labels, annotations = kueue_keys.labels_of(obj, self.lookup), meta.get("annotations") or {}
        local_queue = str(labels.get(QUEUE_LABEL) or DEFAULT_LOCAL_QUEUE)
        namespace = meta.get("namespace", "")
        queue, problem = resolve_queue(
            self.compiled(), namespace, self.namespace_labels(namespace), local_queue, written_as(labels, QUEUE_LABEL)
        )
        row = WorkloadRow(
            uid=meta["uid"],
            kind=kind.resource.kind,
            namespace=namespace,
            name=meta["name"],
            created_at=parse_rfc3339(meta["creationTimestamp"]),
            state=State.WAITING,
            local_queue=local_queue,
            queue=queue,
            user=annotations.get(PREFIX + "user") or namespace,
            groups=tuple(unquote(g) for g in annotations.get(PREFIX + "user-groups", "").split(",") if g),
            reason=UNKNOWN_QUEUE if problem else PENDING_EVALUATION,
            message=problem,
        )
        try:
            row = replace(row, max_run_time=max_run_time(kueue_keys.of_job(obj, self.lookup)))
            resolved = with_disruption(self.resolve(obj, kind, self.lookup), disruption_mode(obj))
        except Unresolvable as problem_of_object:
            held = replace(row, state=State.HELD, reason=problem_of_object.reason, message=problem_of_object.told)
            return Reading(self._with_priority(held, labels, ""))
        found = [self._with_known_level(covering) for covering in self.pod_groups(obj, kind)]
        groups, preempting = with_priorities(resolved.pod_groups, resolved.pod_priority_classes, self.lookup)
        groups, notes = as_kubernetes_has_them(groups, found, inputs)
        row = replace(
            row,
            pod_groups=with_reclaimed(groups, kind.reclaimable(obj, self.lookup)),
            topology=resolved.topology,
            inputs={**resolved.inputs, **notes},
        )
        row = self._with_priority(row, labels, resolved.pod_priority_class)
        return Reading(row, resolved.messages, preempting)

    def _with_known_level(self, covering: Covering) -> Covering:
        """A key that is a level of no topology is left to kube-scheduler: nothing here could be planned by it."""
        topologies = self.compiled().configuration.topologies.values()
        if any(covering.group.level in topology.levels for topology in topologies):
            return covering
        return replace(covering, group=replace(covering.group, level=""))

    def _with_priority(self, row: WorkloadRow, labels: Mapping[str, str], pod_priority_class: str) -> WorkloadRow:
        """Priority from the job's label, else from the pods' priority class (workloads.md D9)."""
        name = str(labels.get(PRIORITY_CLASS_LABEL, ""))
        if name:
            return with_priority_class(row, self.compiled(), name, written_as(labels, PRIORITY_CLASS_LABEL))
        pods = self.lookup.get(PRIORITY_CLASSES, "", pod_priority_class) if pod_priority_class else None
        if pods is None:
            return row
        return replace(
            row,
            priority=int(pods.get("value", 0)),
            priority_class=pod_priority_class,
            may_preempt=pods.get("preemptionPolicy") != "Never",
            inputs={**row.inputs, KUBERNETES_CLASS + pod_priority_class: identity(pods)},
        )


def arrived_at(created: datetime, seen: datetime) -> datetime:
    """When a job came: `created` is told in whole seconds, and of two jobs of one second the one seen first is the
    older. Never outside its second, however late it is seen and whatever the clocks say."""
    return min(max(created, seen), created + timedelta(microseconds=999_999))


def with_disruption(resolved: Resolved, mode: DisruptionMode | None) -> Resolved:
    """Pod groups of one disruption mode, where the job says which."""
    if mode is None:
        return resolved
    return replace(resolved, pod_groups=tuple(replace(group, disruption=mode) for group in resolved.pod_groups))


def with_reclaimed(groups: tuple[PodGroup, ...], reclaimed: Mapping[str, int]) -> tuple[PodGroup, ...]:
    """Pod groups with the pods that have finished set apart; the same ones where none of that changes."""
    if all(p.reclaimed == min(p.count, reclaimed.get(p.name, 0)) for group in groups for p in group.pod_sets):
        return groups
    return tuple(
        replace(
            group,
            pod_sets=tuple(replace(p, reclaimed=min(p.count, reclaimed.get(p.name, 0))) for p in group.pod_sets),
        )
        for group in groups
    )


def merged(old: WorkloadRow, new: WorkloadRow) -> WorkloadRow | None:
    """What a re-read object changes in the row of a workload that waits or is held; None when nothing.

    A hold by a person or by the user's suspension stays; a hold for an unreadable object ends with its cause.
    """
    new = with_fixed_gang(old, new)
    state, reason, message = old.state, old.reason, old.message
    if new.state is State.HELD or new.reason == UNKNOWN_QUEUE:
        state, reason, message = new.state, new.reason, new.message
    elif (old.state is State.HELD and old.reason not in STICKY_HOLDS) or old.reason == UNKNOWN_QUEUE:
        state, reason, message = State.WAITING, PENDING_EVALUATION, ""
    if old.state is State.HELD and old.reason in STICKY_HOLDS:
        state, reason, message = old.state, old.reason, old.message
    keep = new if new.pod_groups else replace(new, pod_groups=old.pod_groups, topology=old.topology, inputs=old.inputs)
    result = replace(
        keep,
        state=state,
        reason=reason,
        message=message,
        attempt=old.attempt,
        not_before=old.not_before,
        requeues=old.requeues,
        requeued_at=old.requeued_at,
        past_run_time=old.past_run_time,
        checks=old.checks,
        relabels=old.relabels,
        emptied_at=old.emptied_at,
        version=old.version,
        after_drain=old.after_drain,
        admission=old.admission,
        finished_at=old.finished_at,
        created_at=old.created_at,
    )
    return None if result == old else result


def as_kubernetes_has_them(
    groups: tuple[PodGroup, ...], found: Sequence[Covering], inputs: Mapping[str, str]
) -> tuple[tuple[PodGroup, ...], dict[str, str]]:
    """Pod groups with what PodGroups of Kubernetes ask for, and what to note of that; where there is no PodGroup, as
    was noted in `inputs`."""
    named = [covering for covering in found if covering.pod_sets]
    covered = {name for covering in named for name in covering.pod_sets}
    known = [*named, *(old for old in remembered(inputs) if covered.isdisjoint(old.pod_sets))]
    news = [one for one in known if _asked_of(with_groups(groups, [one])) != _asked_of(groups)]
    return with_groups(groups, known), noted(news)


def _asked_of(groups: tuple[PodGroup, ...]) -> list[tuple[object, ...]]:
    """What pod groups say of their pods beside their number: where they go, how many start together, what becomes of
    them."""
    return [
        (g.policy, g.minimum, g.topology, g.disruption, tuple((p.name, p.topology) for p in g.pod_sets)) for g in groups
    ]


def with_fixed_gang(old: WorkloadRow, new: WorkloadRow) -> WorkloadRow:
    """A TrainJob whose numNodes was edited although its pods are a gang is held as it was: its controller never changes
    the PodGroup that it has made (KEP-3015)."""
    before, now = old.inputs.get(SIZE), new.inputs.get(SIZE)
    if before is None or now is None or before == now:
        return new
    message = (
        f"{SIZE}: it was {before} and is {now} now, but the pods are a gang, whose size Trainer never changes: set it "
        f"back, or delete the TrainJob and create it anew"
    )
    kept = replace(new, pod_groups=old.pod_groups, topology=old.topology, inputs=old.inputs)
    return replace(kept, state=State.HELD, reason=GANG_SIZE_CHANGED, message=message)


def resolved_again(row: WorkloadRow, resolved: Resolved) -> bool:
    """Whether the object still asks for what the row was admitted with."""
    return same_pods(row.pod_groups, resolved.pod_groups)


def same_pods(one: tuple[PodGroup, ...], other: tuple[PodGroup, ...]) -> bool:
    """Whether both ask for equally many pods (where they are not elastic) of the same requests."""
    return _asked(one) == _asked(other)


def _asked(groups: tuple[PodGroup, ...]) -> list[tuple[object, ...]]:
    pod_sets = sorted((pod_set for group in groups for pod_set in group.pod_sets), key=lambda pod_set: pod_set.name)
    return [(p.name, p.elastic or p.count, dict(p.requests), p.devices) for p in pod_sets]
