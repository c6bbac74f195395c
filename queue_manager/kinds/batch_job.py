"""batch/v1 Job: pod sets, start, stop, status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from queue_manager.cluster.port import JOBS, PODS, Object, PatchType
from queue_manager.engine.workload import GroupPolicy, PodGroup
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import gates, kueue_keys, patches, pod_template, template_edit
from queue_manager.kinds.fields import View, status_of, suspended, told
from queue_manager.kinds.kind import (
    Done,
    Lookup,
    Placement,
    PodPlacement,
    Resolved,
    Step,
    Unresolvable,
    Wait,
    Write,
)
from queue_manager.kinds.limit_ranges import namespace_defaults
from queue_manager.kinds.names import CONTROLLER_UID
from queue_manager.kinds.pod_rules import PodLabels, pod_rules
from queue_manager.kinds.scheduling import (
    CONFLICT,
    Grouping,
    Terms,
    check_minimum,
    read_terms,
    refuse_beside,
    unknown_fields,
)
from queue_manager.kinds.suspending import Suspending
from queue_manager.kinds.template_edit import Record
from queue_manager.kinds.wishes import wishes_of, with_wishes

POD_SET = "main"
TEMPLATE = ("spec", "template")
ENDS = ("succeeded", "completedIndexes", "failedIndexes")
"""Fields of the status that tell of pods that have ended."""


class JobKind(Suspending):
    """A Job of its user's own (those of a JobSet are left to it)."""

    resource = JOBS

    @patches.guarded
    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        """As in `Kind.resolve`. `count` is the full width, `reclaimed` what finished completions no longer need."""
        defaults = namespace_defaults(lookup, obj["metadata"].get("namespace", ""))
        original = View(kueue_keys.of_job(_original(obj), lookup))
        template = kueue_keys.of_template(original.at(*TEMPLATE), lookup)
        scheduling = original.at("spec", "scheduling")
        terms = _terms(original, scheduling)
        shape = pod_template.pod_shape(template, POD_SET, defaults, terms.claims)
        pod_set = pod_template.with_count(shape, width(original), reclaimed=finished_width(original))
        elastic = _is_elastic(obj, original)
        min_count = None if elastic else keys.min_count(original["metadata"])
        wishes = wishes_of(original["metadata"])
        namespace, name = defaults.namespace, original["metadata"]["name"].text()
        found = pod_rules(template["spec"], namespace, POD_SET, PodLabels.of_job(template, name))
        pod_set = replace(pod_set, min_count=min_count, elastic=elastic, rules=found.rules)
        pod_set = with_wishes(pod_set, 0, wishes, template["metadata"])
        if elastic and any(request is not None and request.slices for request in (wishes.topology, pod_set.topology)):
            field = original["metadata"]["annotations"][keys.ELASTIC].path
            raise Unresolvable(CONFLICT, field, f"can't stand beside slices: {keys.NO_SLICES}")
        group = Grouping(POD_SET, (POD_SET,), terms, pod_set.count)
        minimum = group.minimum if scheduling.given else None
        return Resolved(
            pod_groups=(PodGroup(POD_SET, (pod_set,), terms.policy, minimum, terms.topology, terms.disruption),),
            topology=wishes.topology,
            inputs=dict(defaults.inputs),
            pod_priority_class=keys.pod_priority_class(obj) or shape.priority_class,
            pod_priority_classes={POD_SET: shape.priority_class},
            messages=(*unknown_fields(scheduling), *found.messages),
        )

    @patches.guarded
    def next_start(self, obj: Object, placement: Placement, lookup: Lookup, *, refused: str = "") -> Step:
        """As in `Kind.next_start`; the node selector becomes required node affinity, fewer pods a lower parallelism."""
        operations = self._placing(obj, placement.get(POD_SET, PodPlacement(0)))
        if not self.is_suspended(obj):
            if not operations:
                return Done()
            operations = [*patches.unchanged(obj), patches.put(True, "spec", "suspend")]
            return patches.write(obj, JOBS, operations, "suspends the Job again: it was started without its placement")
        if refused and operations and _start_time(obj):
            return _forget_start(obj)
        says = "writes the placement into the suspended Job"
        if not operations or not refused:
            says = "starts the Job with its placement" if operations else "starts the Job"
            operations.append(patches.put(False, "spec", "suspend"))
        return patches.write(obj, JOBS, [*patches.unchanged(obj), *operations], says)

    def _placing(self, obj: Object, placement: PodPlacement) -> list[patches.Operation]:
        original = View(_original(obj))
        elastic = _is_elastic(obj, original)
        full = width(original)
        if not (elastic or patches.annotation(obj, keys.ORIGINAL) or _changes(placement) or placement.count < full):
            return []
        if elastic:
            placement = replace(placement, gates=(gates.GATE, *placement.gates))
        after, undo = template_edit.place(original.at(*TEMPLATE), placement, as_affinity=True)
        record: Record = {POD_SET: undo} if undo else {}
        parallelism = original.at("spec", "parallelism").count(1)
        done = _done_before(obj)
        # What has finished makes the width smaller by itself. The pods of an elastic Job are let through one by one.
        if not elastic and 0 < placement.count < full - (finished_width(original) if done is None else done):
            record |= {"parallelism": parallelism, "done": finished_width(original) if done is None else done}
            parallelism = placement.count
        operations = template_edit.operations(View(obj).at(*TEMPLATE), after, *TEMPLATE)
        if View(obj).at("spec", "parallelism").count(1) != parallelism:
            operations.append(patches.put(parallelism, "spec", "parallelism"))
        return operations + patches.put_annotations(obj, {keys.ORIGINAL: template_edit.record_text(record)})

    def lost_placement(self, obj: Object, placement: Placement, lookup: Lookup) -> str:
        """Never: the API server lets nobody change the templates of what runs."""
        return ""

    @patches.guarded
    def next_stop(self, obj: Object, lookup: Lookup, *, drained: bool, refused: str = "") -> Step:
        """As in `Kind.next_stop`. Before Kubernetes 1.35 `status.startTime` fixes the template, so it goes first."""
        if not self.is_suspended(obj):
            return patches.write(obj, JOBS, [patches.put(True, "spec", "suspend")], "suspends the Job")
        if not drained:
            return Wait("its pods to end")
        if refused or not patches.annotation(obj, keys.ORIGINAL):
            return Done()
        if _start_time(obj):
            return _forget_start(obj)
        original = _original(obj)
        operations = template_edit.operations(View(obj).at(*TEMPLATE), original["spec"]["template"], *TEMPLATE)
        if original["spec"].get("parallelism") != obj["spec"].get("parallelism"):
            operations.append(patches.put(original["spec"].get("parallelism", 1), "spec", "parallelism"))
        operations += patches.put_annotations(obj, {keys.ORIGINAL: ""})
        return patches.write(obj, JOBS, [*patches.unchanged(obj), *operations], "restores the Job's pod template")

    def is_active(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.is_active`; terminating pods count, `active` leaves them out."""
        return told(status_of(obj), "active") > 0 or told(status_of(obj), "terminating") > 0

    def pods_ready(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.pods_ready`. Where completions follow each other there is hardly a moment in which all pods of
        the width are ready: those that have succeeded count, as in Kueue, but not without one that is ready now (the
        successes may be those of an earlier start). Pods of an elastic Job that are not admitted yet are not waited
        for."""
        try:
            full = width(View(obj))
            needed = full - finished_width(View(obj))
            gated = _gated(obj)
        except Unresolvable:
            return False
        held_back = 0
        if lookup is not None and gated:
            pods = lookup.owned_by(PODS, obj["metadata"].get("uid", ""))
            held_back = sum(gates.is_held_back(pod) for pod in pods)
        ready, succeeded = told(status_of(obj), "ready"), told(status_of(obj), "succeeded")
        enough = ready >= needed - held_back or (ready > 0 and ready + succeeded >= full - held_back)
        return not self.is_suspended(obj) and enough

    def reclaimable(self, obj: Object, lookup: Lookup) -> Mapping[str, int]:
        """As in `Kind.reclaimable`: width that the remaining completions can't fill."""
        try:
            pods = finished_width(View(obj)) + (_done_before(obj) or 0)
        except Unresolvable:
            return {}
        return {POD_SET: pods} if pods else {}

    def pod_selector(self, obj: Object) -> Mapping[str, str]:
        """By uid: a Job of the same name made anew has other pods."""
        return {CONTROLLER_UID: obj["metadata"]["uid"]}

    def pod_set_of(self, pod: Object) -> str:
        """There is one."""
        return POD_SET


def _changes(placement: PodPlacement) -> bool:
    """Whether the pod template has to be changed for a placement."""
    return bool(
        placement.node_selector or placement.labels or placement.annotations or placement.tolerations or placement.gates
    )


def _terms(job: View, scheduling: View) -> Terms:
    """What the Job says of its pod group: without a policy each of its pods may start alone (workloads.md 4.5)."""
    if not scheduling.given:
        return Terms()
    refuse_beside(scheduling, job.at(*TEMPLATE, "spec", "schedulingGroup"))
    terms = read_terms(scheduling, GroupPolicy.BASIC)
    check_minimum(scheduling, terms, width(job))
    field = keys.annotation(job["metadata"], keys.MIN_COUNT)
    if field.given and terms.policy is GroupPolicy.GANG:
        path = scheduling.at("schedulingPolicy", "gang").path
        message = f"{field.path} can't stand beside {path}, which says how many pods have to start together"
        raise Unresolvable(CONFLICT, field.path, message)
    return terms


def width(job: View) -> int:
    """Pods that run at the same time when nothing has finished yet."""
    parallelism = job.at("spec", "parallelism").count(1)
    return min(parallelism, job.at("spec", "completions").count(parallelism))


def finished_width(job: View) -> int:
    """How much of the width is not needed any more, from 0 to the width (kueue#13117: completions can be lowered)."""
    spec, status = job["spec"], job["status"]
    if not any(map(status.mapping().get, ENDS)):
        return 0
    full = width(job)
    succeeded = told(status.mapping(), "succeeded")
    if not spec["completions"].given:
        # A work queue: after the first success no pod is started any more.
        return max(0, full - told(status.mapping(), "active")) if succeeded else 0
    completions = spec["completions"].count(0)
    if spec["completionMode"].text() == "Indexed":
        done = indexes(status["completedIndexes"], completions) | indexes(status["failedIndexes"], completions)
        succeeded = len(done)
    return full - min(full, max(0, completions - succeeded))


def indexes(field: View, completions: int) -> set[int]:
    """The completion indexes below `completions` of a list such as `0-2,5`. Raises Unresolvable."""
    found: set[int] = set()
    for part in filter(None, field.text().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(part) > 30:
            raise field.malformed("a list of indexes such as 0-2,5")
        found.update(range(int(first), min(int(last or first) + 1, completions)))
    return found


def _is_elastic(obj: Object, original: View) -> bool:
    """Whether its number of pods may change while it runs: only where our gate holds back what is not admitted."""
    return keys.is_elastic(original["metadata"]) and (suspended(obj) or _gated(obj))


def _gated(obj: Object) -> bool:
    """Whether its pods are made with our gate."""
    entries = View(obj).at(*TEMPLATE, "spec", "schedulingGates").items()
    return any(entry["name"].text() == gates.GATE for entry in entries)


def _done_before(obj: Object) -> int | None:
    """What of the width had finished when it was started with fewer pods than it could use, None if it was not."""
    done = template_edit.record_of(obj).get("done")
    return done if isinstance(done, int) else None


def _start_time(obj: Object) -> bool:
    return bool(status_of(obj).get("startTime"))


def _forget_start(obj: Object) -> Write:
    metadata = obj["metadata"]
    return Write(
        "patch",
        JOBS,
        metadata.get("namespace", ""),
        metadata["name"],
        "clears status.startTime, so that the pod template may change",
        {"status": {"startTime": None}},
        PatchType.MERGE,
        subresource="status",
    )


def _original(obj: Object) -> Object:
    """The Job as its user gave it: without what our record says we put into it."""
    record = template_edit.record_of(obj)
    if not record:
        return obj
    spec = {**obj["spec"], "template": template_edit.restore(View(obj).at(*TEMPLATE), record.get(POD_SET) or {})}
    if isinstance(record.get("parallelism"), int):
        spec["parallelism"] = record["parallelism"]
    return {**obj, "spec": spec}
