"""TrainJob in the three generations of its API: pod sets, start, stop, status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import JOB_SETS, TRAIN_JOBS, Object
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import kueue_keys, patches, replicated_jobs
from queue_manager.kinds.exclusive import take_over_of_train_job
from queue_manager.kinds.fields import View, is_controlled_by, status_of, suspended, told
from queue_manager.kinds.kind import (
    PREFIX,
    Done,
    Lookup,
    Placement,
    PlacementLost,
    Resolved,
    Step,
    Unresolvable,
    Wait,
    Write,
)
from queue_manager.kinds.limit_ranges import namespace_defaults
from queue_manager.kinds.names import JOB_SET_NAME
from queue_manager.kinds.scheduling import SIZE, Dialect, Grouping, refuse_beside, unknown_fields
from queue_manager.kinds.suspending import Suspending
from queue_manager.kinds.train_job_patch import patch_entry
from queue_manager.kinds.trainer_api import generation
from queue_manager.kinds.trainer_runtime import (
    Runtime,
    differs,
    find_runtime,
    has_snapshot,
    job_set_spec,
    may_have_changed,
)
from queue_manager.kinds.wishes import Wishes, wishes_of


class TrainJobKind(Suspending):
    """`may_override`: policies of a runtime that its jobs may change (annotation keys, Settings.userMayOverride)."""

    resource = TRAIN_JOBS

    def __init__(self, may_override: frozenset[str] = frozenset()) -> None:
        self.may_override = may_override

    @patches.guarded
    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        """As in `Kind.resolve`; read from the runtime, or its snapshot, never from the child JobSet."""
        api = generation(lookup)
        _refuse_foreign_job_set(obj, lookup)
        runtime = find_runtime(obj, api, lookup)
        spec = job_set_spec(obj, runtime, api, without_ours=patch_entry(obj, api).recorded)
        spec = kueue_keys.of_job_set_spec(spec, lookup)
        _refuse_pod_group_policy(runtime, spec)
        scheduling = runtime.view.at("spec", "scheduling")
        if scheduling.given:
            refuse_beside(scheduling, runtime.view.at("spec", "podGroupPolicy"), spec["scheduling"])
        groups = replicated_jobs.groupings(spec, scheduling, Dialect.TRAINER)
        defaults = namespace_defaults(lookup, obj["metadata"].get("namespace", ""))
        wishes, messages = self._wishes(obj, runtime)
        name = View(obj)["metadata"]["name"].text()
        inputs = {runtime.name: runtime.identity, **_fixed_size(obj, groups)}
        resolved = replicated_jobs.resolve(spec, defaults, self.reclaimable(obj, lookup), wishes, inputs, groups, name)
        return replace(resolved, messages=(*resolved.messages, *messages, *unknown_fields(scheduling)))

    def _wishes(self, obj: Object, runtime: Runtime) -> tuple[Wishes, tuple[str, ...]]:
        """The admin's wishes on the runtime, else the job's; a job may replace those that the settings allow it to."""
        template = runtime.view.at("spec", "template", "metadata")
        policy, own = wishes_of(runtime.view["metadata"], template), wishes_of(View(obj)["metadata"])
        messages: list[str] = []
        topology = policy.topology or own.topology
        if policy.topology is not None and own.topology is not None and own.topology != policy.topology:
            says = f"{policy.topology.mode} {policy.topology.level}"
            key = next((k for k, mode in keys.TOPOLOGY_KEYS.items() if mode is own.topology.mode), keys.SLICE_TOPOLOGY)
            topology = own.topology if self._may_say(obj, runtime, key, says, messages) else policy.topology
        levels = []
        pairs = ((policy.spread, own.spread), (policy.exclusive, own.exclusive))
        for key, (admins, jobs) in zip((keys.SPREAD_TOPOLOGY, keys.EXCLUSIVE_TOPOLOGY), pairs, strict=True):
            differs_here = admins and jobs and admins != jobs
            may = not differs_here or self._may_say(obj, runtime, key, admins, messages)
            levels.append(jobs if differs_here and may else admins or jobs)
        return Wishes(topology, *levels), tuple(messages)

    def _may_say(self, obj: Object, runtime: Runtime, key: str, says: str, messages: list[str]) -> bool:
        """Whether a job may replace what the runtime `says` with its own annotation; a message where it may not."""
        if key.removeprefix(PREFIX) in self.may_override or key in self.may_override:
            return True
        path = keys.annotation(View(obj)["metadata"], key).path
        messages.append(f"{path} is not followed: {runtime.name} says {says}")
        return False

    @patches.guarded
    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        """As in `Kind.suspend_on_create`; never a second entry when the webhook is invoked again (kueue#15210)."""
        operations: list[Object] = super().suspend_on_create(obj, lookup)
        if not isinstance(obj.get("spec"), dict):
            return operations
        operations += take_over_of_train_job(obj)
        try:
            api = generation(lookup)
        except Unresolvable:
            return operations
        if api.keyed:
            operations += patch_entry(obj, api).ensure()
        return operations

    @patches.guarded
    def next_start(self, obj: Object, placement: Placement, lookup: Lookup, *, refused: str = "") -> Step:
        """As in `Kind.next_start`: one write, or two where Trainer wants that; children are rebuilt if keys change."""
        api = generation(lookup)
        entry = patch_entry(obj, api)
        lost = "" if entry.carries(placement) else entry.lost(placement)
        if not self.is_suspended(obj):
            # The runtime is not read here; it may be gone by now.
            if entry.carries(placement) or (lost and self.is_active(obj, lookup)):
                return Done()
            if not lost:
                return _suspend_again(obj)
        elif self.is_active(obj, lookup):
            # Trainer refuses patches as long as its JobSet counts active jobs.
            return Wait("the jobs of an earlier start to end")
        runtime = find_runtime(obj, api, lookup)
        spec = job_set_spec(obj, runtime, api, without_ours=entry.recorded)
        wanted = entry.content(spec, placement)
        rebuild = _rebuild(obj, runtime, spec, placement, lookup)
        notes = {keys.REBUILT: rebuild.note} if rebuild and rebuild.note else {}
        operations = patches.put_annotations(obj, notes)
        if not entry.holds(wanted, placement):
            operations = entry.fill(wanted, placement, notes)
        if lost:
            operations.append(patches.put(True, "spec", "suspend"))
            says = "writes the placement again: it was removed by somebody else"
            raise PlacementLost(
                entry.path, lost, patches.write(obj, TRAIN_JOBS, [*patches.unchanged(obj), *operations], says)
            )
        says = "writes the placement into the suspended TrainJob"
        if not operations and rebuild is not None:
            return rebuild.step
        if not operations or (api.one_write and not refused and rebuild is None):
            says = "starts the TrainJob with its placement" if operations else "starts the TrainJob"
            operations.append(patches.put(False, "spec", "suspend"))
        return patches.write(obj, TRAIN_JOBS, [*patches.unchanged(obj), *operations], says)

    @patches.guarded
    def lost_placement(self, obj: Object, placement: Placement, lookup: Lookup) -> str:
        """As in `Kind.lost_placement`."""
        entry = patch_entry(obj, generation(lookup))
        return "" if entry.carries(placement) else entry.lost(placement)

    @patches.guarded
    def next_stop(self, obj: Object, lookup: Lookup, *, drained: bool, refused: str = "") -> Step:
        """As in `Kind.next_stop`. Where Trainer refuses it (its runtime is gone), the JobSet is suspended."""
        if not self.is_suspended(obj):
            if refused:
                return _stop_through_job_set(obj, lookup, drained=drained, refused=refused)
            return patches.write(obj, TRAIN_JOBS, [patches.put(True, "spec", "suspend")], "suspends the TrainJob")
        if not drained:
            return Wait("its pods to end")
        if refused:
            # The next start overwrites the entry; a write that Trainer refuses must not keep quota.
            return Done()
        try:
            entry = patch_entry(obj, generation(lookup))
        except Unresolvable:
            return Done()
        operations, says = entry.clear()
        if not operations:
            return Done()
        return patches.write(obj, TRAIN_JOBS, [*patches.unchanged(obj), *operations], says)

    def is_active(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.is_active`; Trainer v2.0 fills no `jobsStatus`, so the JobSet is asked as well."""
        job_set = _job_set(obj, lookup)
        return any(told(entry, "active") for entry in _jobs_status(obj)) or (
            job_set is not None and replicated_jobs.is_active(job_set)
        )

    def pods_ready(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.pods_ready`; told from the JobSet where it is known."""
        job_set = _job_set(obj, lookup)
        if job_set is not None:
            try:
                return not self.is_suspended(obj) and replicated_jobs.all_ready(job_set)
            except Unresolvable:
                return False
        entries = _jobs_status(obj)
        # Without the JobSet the replicas are not known; those that Trainer labels are single.
        return bool(entries) and all(told(entry, "ready") + told(entry, "succeeded") > 0 for entry in entries)

    def reclaimable(self, obj: Object, lookup: Lookup) -> Mapping[str, int]:
        """As in `Kind.reclaimable`, told from the JobSet."""
        job_set = _job_set(obj, lookup)
        if job_set is None:
            return {}
        try:
            return replicated_jobs.reclaimable(job_set)
        except Unresolvable:
            return {}

    def pod_selector(self, obj: Object) -> Mapping[str, str]:
        """The JobSet has the TrainJob's name."""
        return {JOB_SET_NAME: obj["metadata"]["name"]}

    def pod_set_of(self, pod: Object) -> str:
        """The replicated job's name."""
        return replicated_jobs.pod_set_of(pod)


def _fixed_size(obj: Object, groups: tuple[Grouping, ...]) -> dict[str, str]:
    """The numNodes that the size of a gang was computed from: Trainer never changes a gang that it has made."""
    if all(group.minimum is None for group in groups):
        return {}
    return {SIZE: str(View(obj).at("spec", "trainer", "numNodes").integer(0))}


def _suspend_again(obj: Object) -> Step:
    """Somebody else unsuspended it: its pods may come up anywhere."""
    operations = [*patches.unchanged(obj), patches.put(True, "spec", "suspend")]
    return patches.write(
        obj, TRAIN_JOBS, operations, "suspends the TrainJob again: it was started without its placement"
    )


def _jobs_status(obj: Object) -> list[Mapping[str, object]]:
    entries = status_of(obj).get("jobsStatus")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _job_set(obj: Object, lookup: Lookup | None) -> Object | None:
    """The child JobSet: the one of its name that it owns."""
    if lookup is None:
        return None
    metadata = obj["metadata"]
    found = lookup.get(JOB_SETS, metadata.get("namespace", ""), metadata["name"])
    return found if found is not None and is_controlled_by(found, metadata.get("uid", "")) else None


def _refuse_foreign_job_set(obj: Object, lookup: Lookup) -> None:
    """A JobSet of the same name that isn't ours would be taken over by Trainer's forced apply."""
    metadata = obj["metadata"]
    found = lookup.get(JOB_SETS, metadata.get("namespace", ""), metadata["name"])
    if found is not None and not is_controlled_by(found, metadata.get("uid", "")):
        message = f"metadata.name: there is a JobSet {metadata['name']} that this TrainJob does not own"
        raise Unresolvable("JobSetNameTaken", "metadata.name", message)


def _refuse_pod_group_policy(runtime: Runtime, spec: View) -> None:
    """Its group counts all pods at once: with jobs that wait for each other it is never complete (workloads.md 1.7)."""
    policy = runtime.view.at("spec", "podGroupPolicy")
    named = next((policy[name] for name in ("coscheduling", "volcano") if policy[name].given), None)
    if named is not None and replicated_jobs.sequenced(spec):
        message = (
            f"{named.path} makes one group of all pods, but the jobs of {runtime.name} start one after another: "
            "the group can never form"
        )
        raise Unresolvable("PodGroupNeverForms", named.path, message)


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """The step that makes a JobSet anew, taken once the TrainJob carries its placement and this note."""

    step: Step
    note: str = ""


def _rebuild(obj: Object, runtime: Runtime, spec: View, placement: Placement, lookup: Lookup) -> _Rebuild | None:
    """What to do before the JobSet can take the placement, None where it can.

    A child Job keeps every node selector key and gate it ever got: JobSet merges on resume and removes nothing (D4).
    And a JobSet made from a runtime that was edited since can't be updated: Trainer's apply is refused (trainer#3008).
    """
    job_set = _job_set(obj, lookup)
    if job_set is None:
        return None
    metadata = job_set["metadata"]
    if is_leaving(job_set):
        return _Rebuild(Wait("the JobSet of an earlier start to be gone"))
    stale = replicated_jobs.stale_children(job_set, spec, placement, lookup)
    if stale:
        return _Rebuild(_delete(job_set, f"{stale[0]['metadata'].get('name')} keeps the placement of an earlier start"))
    if not may_have_changed(runtime, job_set) or not differs(obj, spec, job_set):
        return None
    # Once for each edit: should we be wrong about what Trainer makes, this must not go on for ever.
    note = f"{runtime.identity} {metadata.get('uid', '')}"
    noted = patches.annotation(obj, keys.REBUILT)
    if noted != note and noted.partition(" ")[0] == runtime.identity:
        return None
    return _Rebuild(_delete(job_set, f"{runtime.name} was edited after its JobSet was made"), note)


def _delete(job_set: Object, why: str) -> Write:
    metadata = job_set["metadata"]
    return Write(
        "delete",
        JOB_SETS,
        metadata.get("namespace", ""),
        metadata["name"],
        f"makes the JobSet anew: {why}",
        uid=metadata.get("uid", ""),
        propagation="Foreground",
    )


def _stop_through_job_set(obj: Object, lookup: Lookup, *, drained: bool, refused: str) -> Step:
    job_set = _job_set(obj, lookup)
    if job_set is None or drained:
        return Done() if drained else Wait("its pods to end")
    if has_snapshot(obj, lookup):
        message = (
            f"Trainer refuses the TrainJob ({refused}) and would resume its JobSet from the runtime's snapshot: "
            "bring the runtime back, or delete the TrainJob"
        )
        raise Unresolvable("StopRefused", "spec.runtimeRef", message)
    if not suspended(job_set):
        operations = [patches.put(True, "spec", "suspend")]
        return patches.write(
            job_set, JOB_SETS, operations, f"suspends the JobSet: Trainer refuses the TrainJob ({refused})"
        )
    return Wait("its pods to end")
