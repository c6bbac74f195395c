"""JobSet: pod sets, start, stop, status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from queue_manager.cluster.pods import is_leaving
from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import kueue_keys, patches, replicated_jobs, template_edit
from queue_manager.kinds.exclusive import take_over_of_job_set
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import (
    Done,
    Lookup,
    Placement,
    Resolved,
    Step,
    Unresolvable,
    Wait,
    Write,
)
from queue_manager.kinds.limit_ranges import namespace_defaults
from queue_manager.kinds.names import JOB_SET_NAME
from queue_manager.kinds.patches import Operation
from queue_manager.kinds.scheduling import Dialect, unknown_fields
from queue_manager.kinds.suspending import Suspending
from queue_manager.kinds.template_edit import Record
from queue_manager.kinds.wishes import wishes_of


class JobSetKind(Suspending):
    """A JobSet of its user's own (those of a TrainJob are left to it)."""

    resource = JOB_SETS
    success = "Completed"

    @patches.guarded
    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        """As in `Kind.resolve`."""
        defaults = namespace_defaults(lookup, obj["metadata"].get("namespace", ""))
        wishes = wishes_of(View(obj)["metadata"])
        spec = kueue_keys.of_job_set_spec(View(_original(obj))["spec"], lookup)
        groups = replicated_jobs.groupings(spec, spec["scheduling"], Dialect.JOB_SET)
        name = View(obj)["metadata"]["name"].text()
        resolved = replicated_jobs.resolve(spec, defaults, self.reclaimable(obj, lookup), wishes, {}, groups, name)
        given = keys.pod_priority_class(obj) or resolved.pod_priority_class
        messages = (*resolved.messages, *unknown_fields(spec["scheduling"]))
        return replace(resolved, pod_priority_class=given, messages=messages)

    @patches.guarded
    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        """As in `Kind.suspend_on_create`; JobSet's exclusive placement becomes ours."""
        operations: list[Object] = super().suspend_on_create(obj, lookup)
        return [*operations, *take_over_of_job_set(obj)]

    @patches.guarded
    def next_start(self, obj: Object, placement: Placement, lookup: Lookup, *, refused: str = "") -> Step:
        """As in `Kind.next_start`. Children that keep keys of an earlier start are deleted one by one: JobSet makes
        them anew from the template."""
        original = View(_original(obj))["spec"]
        operations, record = _placed(obj, original, placement)
        operations += patches.put_annotations(obj, {keys.ORIGINAL: template_edit.record_text(record)})
        if not self.is_suspended(obj):
            if not operations:
                return Done()
            operations = [*patches.unchanged(obj), patches.put(True, "spec", "suspend")]
            return patches.write(
                obj, JOB_SETS, operations, "suspends the JobSet again: it was started without its placement"
            )
        stale = replicated_jobs.stale_children(obj, original, placement, lookup)
        unsuspend = patches.put(False, "spec", "suspend")
        if operations:
            says = "writes the placement into the suspended JobSet"
            if not refused and not stale:
                operations.append(unsuspend)
                says = "starts the JobSet with its placement"
            return patches.write(obj, JOB_SETS, [*patches.unchanged(obj), *operations], says)
        if stale:
            return _delete_child(stale[0])
        return patches.write(obj, JOB_SETS, [*patches.unchanged(obj), unsuspend], "starts the JobSet")

    def lost_placement(self, obj: Object, placement: Placement, lookup: Lookup) -> str:
        """Never: the API server lets nobody change the templates of what runs."""
        return ""

    @patches.guarded
    def next_stop(self, obj: Object, lookup: Lookup, *, drained: bool, refused: str = "") -> Step:
        """As in `Kind.next_stop`."""
        if not self.is_suspended(obj):
            return patches.write(obj, JOB_SETS, [patches.put(True, "spec", "suspend")], "suspends the JobSet")
        if not drained:
            return Wait("its pods to end")
        if refused or not patches.annotation(obj, keys.ORIGINAL):
            return Done()
        operations: list[Operation] = []
        original = _original(obj)["spec"]["replicatedJobs"]
        for index, job in enumerate(View(obj).at("spec", "replicatedJobs").items()):
            before = job.at("template", "spec", "template")
            after = original[index]["template"]["spec"]["template"]
            operations += template_edit.operations(before, after, *_path(index))
        operations += patches.put_annotations(obj, {keys.ORIGINAL: ""})
        return patches.write(
            obj, JOB_SETS, [*patches.unchanged(obj), *operations], "restores the JobSet's pod templates"
        )

    def is_active(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.is_active`."""
        return replicated_jobs.is_active(obj)

    def pods_ready(self, obj: Object, lookup: Lookup | None = None) -> bool:
        """As in `Kind.pods_ready`."""
        try:
            return not self.is_suspended(obj) and replicated_jobs.all_ready(obj)
        except Unresolvable:
            return False

    def reclaimable(self, obj: Object, lookup: Lookup) -> Mapping[str, int]:
        """As in `Kind.reclaimable`."""
        try:
            return replicated_jobs.reclaimable(obj)
        except Unresolvable:
            return {}

    def pod_selector(self, obj: Object) -> Mapping[str, str]:
        """By name, as JobSet itself does."""
        return {JOB_SET_NAME: obj["metadata"]["name"]}

    def pod_set_of(self, pod: Object) -> str:
        """The replicated job's name."""
        return replicated_jobs.pod_set_of(pod)


def _path(index: int) -> tuple[str | int, ...]:
    return ("spec", "replicatedJobs", index, "template", "spec", "template")


def _original(obj: Object) -> Object:
    """The JobSet as its user gave it: without what our record says we put into its templates."""
    record = template_edit.record_of(obj)
    if not record:
        return obj
    jobs: list[Any] = []
    for job in View(obj).at("spec", "replicatedJobs").items():
        template = job.at("template", "spec", "template")
        restored = template_edit.restore(template, record.get(job["name"].text()) or {})
        job_template = job["template"].mapping()
        job_spec = {**job_template.get("spec", {}), "template": restored}
        jobs.append({**job.mapping(), "template": {**job_template, "spec": job_spec}})
    return {**obj, "spec": {**obj["spec"], "replicatedJobs": jobs}}


def _placed(obj: Object, original: View, placement: Placement) -> tuple[list[Operation], Record]:
    """Operations that turn the templates into the placed originals, and the record to keep. Raises Unresolvable."""
    names = [job.name for job in replicated_jobs.replicated_jobs(original)]
    for name in placement:
        if name not in names:
            raise Unresolvable(
                "UnknownPodSet", "spec.replicatedJobs", f"spec.replicatedJobs has no job {name!r} to place"
            )
    operations: list[Operation] = []
    record: Record = {}
    present = [job.at("template", "spec", "template") for job in View(obj).at("spec", "replicatedJobs").items()]
    for index, job in enumerate(original["replicatedJobs"].items()):
        template = job.at("template", "spec", "template")
        after = dict(template.mapping())
        if names[index] in placement:
            after, undo = template_edit.place(template, placement[names[index]])
            if undo:
                record[names[index]] = undo
        changed = template_edit.operations(present[index], after, *_path(index))
        if changed:
            operations.append(patches.test(names[index], "spec", "replicatedJobs", index, "name"))
            operations += changed
    return operations, record


def _delete_child(job: Object) -> Step:
    metadata = job["metadata"]
    if is_leaving(job):
        return Wait(f"Job {metadata.get('name')} of an earlier start to be gone")
    return Write(
        "delete",
        JOBS,
        metadata.get("namespace", ""),
        metadata["name"],
        "makes a child Job anew: it keeps the placement of an earlier start",
        uid=metadata.get("uid", ""),
        propagation="Foreground",
    )
