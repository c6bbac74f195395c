"""Kueue's Workload objects as the engine's workloads: what they ask for, when, and with which rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from queue_manager.cluster.port import Object
from queue_manager.config.compiled import Compiled, PriorityClass
from queue_manager.engine.selectors import meets_all
from queue_manager.engine.workload import (
    MICROSECONDS,
    PodGroup,
    PodSet,
    SliceLayer,
    TopologyMode,
    TopologyRequest,
    Workload,
)
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.limit_ranges import Defaults, namespace_defaults
from queue_manager.kinds.pod_template import pod_shape
from queue_manager.simulate.checks import MAIN, check_pod_sets, int32
from queue_manager.simulate.fields import condition, moment
from queue_manager.simulate.objects import METADATA_NAME, Objects, ScenarioLookup, label, namespace_labels, namespace_of
from queue_manager.simulate.problem import ScenarioError
from queue_manager.simulate.semantics import Semantics
from queue_manager.simulate.states import may_preempt, priority_boost


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload as it was read. `problem` says why it is in no queue or can't be counted: it waits, and is never
    tried."""

    key: str
    workload: Workload
    problem: str = ""


class WorkloadReader:
    """Reads the workloads of one scenario."""

    def __init__(self, objects: Objects, compiled: Compiled, semantics: Semantics) -> None:
        self._compiled = compiled
        self._semantics = semantics
        self._namespaces = namespace_labels(objects)
        self._lookup = ScenarioLookup(objects)
        self._defaults: dict[str, Defaults] = {}
        self._pod_priorities = {
            o["metadata"]["name"]: View(o, f"PriorityClass {o['metadata']['name']}: ")
            for o in objects.of("PriorityClass")
        }
        for priority_class in self._pod_priorities.values():
            int32(priority_class["value"])

    def read(self, obj: Object, uid: str) -> Asked:
        """The workload of an object. Raises ScenarioError."""
        key = label(obj)
        view = View(obj, f"Workload {key}: ")
        try:
            return self._read(view, obj, uid, key)
        except Unresolvable as error:
            raise ScenarioError(error.message) from None

    def _read(self, view: View, obj: Object, uid: str, key: str) -> Asked:
        check_pod_sets(view)
        spec = view["spec"]
        namespace = namespace_of(obj)
        labels = self._namespaces.get(namespace, {METADATA_NAME: namespace})
        queue, problem = self._queue(namespace, spec["queueName"].text(), labels)
        rank = self._rank(spec)
        pod_sets, uncounted = self._pod_sets(view, namespace)
        workload = Workload(
            uid=uid,
            namespace=namespace,
            name=obj["metadata"]["name"],
            queue=queue,
            created=moment(view["metadata"]["creationTimestamp"]),
            pod_groups=(PodGroup("all", pod_sets),),
            priority=rank.value + priority_boost(view),
            may_preempt=rank.may_preempt and may_preempt(view),
            preemptible=rank.preemptible,
            namespace_labels=labels,
            not_before=moment(view.at("status", "requeueState", "requeueAt")),
            max_run_time=self._max_run_time(view),
            min_run_time=rank.min_run_time,
            requeued=self._requeued(view),
            local_queue=f"{namespace}/{spec['queueName'].text()}",
        )
        return Asked(key, workload, problem or uncounted)

    @staticmethod
    def _max_run_time(view: View) -> int:
        """What is left of its longest time, in microseconds; at least one second once there is a limit."""
        longest = view.at("spec", "maximumExecutionTimeSeconds").count(0)
        past = view.at("status", "accumulatedPastExecutionTimeSeconds").count(0)
        return max(1, longest - past) * MICROSECONDS if longest else 0

    def _requeued(self, view: View) -> int:
        """Time of the eviction that counts for its place (kueue.md 2.3, queue timestamp); 0 if its creation counts."""
        evicted = condition(view, "Evicted")
        if evicted is None:
            return 0
        reason = evicted["reason"].text()
        late = reason == "PodsReadyTimeout" and self._compiled.settings.requeue_by_eviction_time
        return moment(evicted["lastTransitionTime"]) if late or reason == "AdmissionCheck" else 0

    def _queue(self, namespace: str, name: str, labels: Mapping[str, str]) -> tuple[str, str]:
        """The queue that a workload names, or what is wrong. A queue of the project may be named itself."""
        local = self._compiled.configuration.local_queues.get(f"{namespace}/{name}")
        queues = self._compiled.configuration.queues
        if local is not None:
            return (local.queue, "") if local.queue in queues else ("", f"there is no queue {local.queue!r}")
        found = queues.get(name) if self._semantics is Semantics.OWN else None
        if found is None:
            return "", f"there is no local queue {name!r} in namespace {namespace!r}"
        if found.namespace_selector is None or not meets_all(found.namespace_selector, labels):
            return "", f"namespace {namespace!r} may not use queue {name!r}"
        return name, ""

    def _rank(self, spec: View) -> PriorityClass:
        """Priority and what comes with its class. A number in the object counts before its class."""
        reference = spec["priorityClassRef"]
        name = reference["name"].text() or spec["priorityClassName"].text()
        kind = reference["kind"].text() or spec["priorityClassSource"].text()
        found = PriorityClass(name, 0)
        if name and "workload" not in kind.lower() and name in self._pod_priorities:
            pods = self._pod_priorities[name]
            # Kueue pays no heed to the preemption policy of a PriorityClass.
            never = self._semantics is Semantics.OWN and pods["preemptionPolicy"].text() == "Never"
            found = PriorityClass(name, pods["value"].integer(0), may_preempt=not never)
        elif name:
            found = self._compiled.priority_classes.get(name, found)
        return replace(found, value=int32(spec["priority"], found.value))

    def _pod_sets(self, view: View, namespace: str) -> tuple[tuple[PodSet, ...], str]:
        reclaimed = {
            entry["name"].text(MAIN): entry["count"].count(0) for entry in view.at("status", "reclaimablePods").items()
        }
        found, problem = [], ""
        for item in view.at("spec", "podSets").items():
            name = item["name"].text(MAIN)
            try:
                found.append(self._pod_set(item, name, namespace, reclaimed.get(name, 0)))
                problem = problem or self._unsupported(found[-1])
            except Unresolvable as error:
                if error.reason == "Malformed":
                    raise
                found.append(PodSet(name, item["count"].count(1), {}))
                problem = problem or error.message
        return tuple(found), problem

    def _pod_set(self, item: View, name: str, namespace: str, reclaimed: int) -> PodSet:
        template = item["template"]
        if not template["spec"].given:
            template = View({"spec": {}}, template.path)
        pod_set = pod_shape(template, name, self._defaults_of(namespace)).pod_set
        count = item["count"].count(1)
        wish = item["topologyRequest"]
        return replace(
            pod_set,
            count=count,
            reclaimed=min(reclaimed, count),
            min_count=item["minCount"].count(0) if item["minCount"].given else None,
            topology=topology_request(wish) if wish.given else pod_set.topology,
            podset_group=wish["podSetGroupName"].text() or pod_set.podset_group,
        )

    def _unsupported(self, pod_set: PodSet) -> str:
        """Claims that exist already are not for Kueue; ours count them once."""
        if self._semantics is Semantics.OWN or not pod_set.devices.shared:
            return ""
        return f"pod set {pod_set.name} names a ResourceClaim, only templates of claims are supported"

    def _defaults_of(self, namespace: str) -> Defaults:
        found = self._defaults.get(namespace)
        if found is None:
            found = self._defaults[namespace] = namespace_defaults(self._lookup, namespace)
        return found


def topology_request(wish: View) -> TopologyRequest | None:
    """A pod set's `topologyRequest`."""
    layers = slice_layers(wish)
    for key, mode in (("required", TopologyMode.REQUIRED), ("preferred", TopologyMode.PREFERRED)):
        if wish[key].text():
            return TopologyRequest(mode, wish[key].text(), layers)
    if layers or wish["unconstrained"].boolean():
        return TopologyRequest(TopologyMode.UNCONSTRAINED, "", layers)
    return None


def slice_layers(wish: View) -> tuple[SliceLayer, ...]:
    """The slices of a pod set, the outermost layer first; a size of 0 is one that is not given."""
    layers = tuple(
        SliceLayer(item["topology"].text(), item["size"].count(0))
        for item in wish["podsetSliceRequiredTopologyConstraints"].items()
    )
    level = wish["podSetSliceRequiredTopology"].text()
    return layers or ((SliceLayer(level, wish["podSetSliceSize"].count(0)),) if level else ())
