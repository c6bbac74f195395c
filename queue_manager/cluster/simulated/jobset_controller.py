"""The JobSet controller: child Jobs, dependencies, suspension, restarts, success policy (`workloads.md` §3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queue_manager.cluster.cache import controller_of, key_of
from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.documents import copied, read
from queue_manager.cluster.simulated.exclusive import EXCLUSIVE
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import (
    children,
    has_condition,
    is_true,
    owner_reference,
    unversioned,
    with_condition,
    write_status,
)
from queue_manager.cluster.simulated.storage import Change

PREFIX = "jobset.sigs.k8s.io/"
REPLICATED_JOB = PREFIX + "replicatedjob-name"
ATTEMPT = PREFIX + "restart-attempt"
_MANAGER = "jobset-controller"


class JobSetController:
    """Keeps the child Jobs of JobSets as their spec and status say."""

    def __init__(self, api: ApiState) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterable[Key]:
        """The JobSet, or the JobSet of the Job."""
        if change.resource == JOB_SETS:
            yield key_of(change.new)
        elif change.resource == JOBS:
            owner = controller_of(change.new)
            if owner is not None and owner["kind"] == JOB_SETS.kind:
                yield change.new["metadata"]["namespace"], owner["name"]

    def reconcile(self, key: Key) -> float | None:
        """Brings one JobSet a step further."""
        job_set = self._api.peek(JOB_SETS, key[0], key[1])
        if job_set is None or job_set["metadata"].get("deletionTimestamp") or job_set["spec"].get("managedBy"):
            return None
        status = dict(job_set.get("status") or {})
        status.setdefault("conditions", [])
        status.setdefault("restarts", 0)
        jobs = [job for job in children(self._api, job_set, JOBS) if controller_of(job) == owner_reference(job_set)]
        current = [job for job in jobs if _attempt(job) >= status["restarts"]]
        status["replicatedJobsStatus"] = _statuses(job_set, current)
        self._advance(job_set, status, jobs, current)
        latest = self._api.peek(JOB_SETS, *key_of(job_set))
        if latest is not None:
            write_status(self._api, JOB_SETS, latest, status, _MANAGER)
        return None

    def _advance(self, job_set: Object, status: Object, jobs: list[Object], current: list[Object]) -> None:
        if is_true(job_set, "Completed", "Failed"):
            self._delete([job for job in jobs if not is_true(job, "Complete", "Failed")])
            return
        self._delete([job for job in jobs if _attempt(job) < status["restarts"]])
        if any(is_true(job, "Failed") for job in current):
            self._restart_or_fail(job_set, status)
            return
        if _succeeded(job_set, current):
            self._condition(status, "Completed", True, "AllJobsCompleted", "jobset completed successfully")
            status["terminalState"] = "Completed"
            return
        self._create_missing(job_set, status, jobs)
        if job_set["spec"].get("suspend"):
            for job in current:
                if not job["spec"].get("suspend") and not is_true(job, "Complete", "Failed"):
                    self._update(job, {**job, "spec": {**job["spec"], "suspend": True}})
            self._condition(status, "Suspended", True, "SuspendedJobs", "jobset is suspended")
        else:
            for job in current:
                if job["spec"].get("suspend"):
                    self._resume(job, _template_of(job_set, job))
            if has_condition(job_set, "Suspended"):
                self._condition(status, "Suspended", False, "ResumeJobs", "jobset is resumed")

    def _restart_or_fail(self, job_set: Object, status: Object) -> None:
        if status["restarts"] < int(read(job_set, "spec", "failurePolicy", "maxRestarts", default=0)):
            status["restarts"] += 1
            status["restartsCountTowardsMax"] = status["restarts"]
            return
        self._condition(status, "Failed", True, "FailedJobs", "jobset failed due to one or more job failures")
        status["terminalState"] = "Failed"

    def _create_missing(self, job_set: Object, status: Object, jobs: list[Object]) -> None:
        """Jobs are made even while suspended, except those that wait for others."""
        present = {job["metadata"]["name"] for job in jobs}
        numbers = {entry["name"]: entry for entry in status["replicatedJobsStatus"]}
        replicas = {entry["name"]: entry["replicas"] for entry in job_set["spec"]["replicatedJobs"]}
        first = 0
        for entry in job_set["spec"]["replicatedJobs"]:
            ready = all(_reached(needed, numbers, replicas) for needed in entry.get("dependsOn") or ())
            for index in range(entry["replicas"] if ready else 0):
                job = _child(job_set, entry, index, first + index, status["restarts"])
                if job["metadata"]["name"] not in present:
                    self._api.create(JOBS, job_set["metadata"]["namespace"], job, manager=_MANAGER)
            first += entry["replicas"]

    def _resume(self, job: Object, template: Object) -> None:
        """Merges the directives of the JobSet's template into the Job and lets it run; removes nothing, ever."""
        if (job.get("status") or {}).get("startTime"):
            status = {name: value for name, value in job["status"].items() if name != "startTime"}
            job = write_status(self._api, JOBS, job, status, _MANAGER)
        pod = copied(job["spec"]["template"])
        metadata, spec = pod.setdefault("metadata", {}), pod["spec"]
        wish, wish_spec = template.get("metadata") or {}, template.get("spec") or {}
        for field in ("labels", "annotations"):
            if wish.get(field):
                metadata[field] = {**(metadata.get(field) or {}), **wish[field]}
        if wish_spec.get("nodeSelector"):
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **wish_spec["nodeSelector"]}
        for field in ("tolerations", "schedulingGates"):
            present: list[Any] = spec.get(field) or []
            if added := [entry for entry in wish_spec.get(field) or () if entry not in present]:
                spec[field] = [*present, *added]
        self._update(job, {**job, "spec": {**job["spec"], "template": pod, "suspend": False}})

    def _update(self, old: Object, new: Object) -> None:
        self._api.update(JOBS, old, unversioned(new), manager=_MANAGER)

    def _delete(self, jobs: Iterable[Object]) -> None:
        for job in jobs:
            if not job["metadata"].get("deletionTimestamp"):
                self._api.delete(JOBS, *key_of(job), propagation="Foreground")

    def _condition(self, status: Object, kind: str, value: bool, reason: str, message: str) -> None:
        status["conditions"] = with_condition(status["conditions"], kind, value, reason, message, self._api.time())


def _attempt(job: Object) -> int:
    return int((job["metadata"].get("labels") or {}).get(ATTEMPT, "0"))


def _replicated_job(job: Object) -> str:
    name: str = job["metadata"]["labels"][REPLICATED_JOB]
    return name


def _pods_of(job: Object) -> int:
    spec = job["spec"]
    completions = spec.get("completions")
    return int(spec["parallelism"] if completions is None else min(spec["parallelism"], completions))


def _statuses(job_set: Object, jobs: list[Object]) -> list[Object]:
    """Counts of child Jobs per replicated job."""
    numbers = {
        entry["name"]: dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for entry in job_set["spec"]["replicatedJobs"]
    }
    for job in jobs:
        count, status = numbers[_replicated_job(job)], job.get("status") or {}
        if is_true(job, "Complete"):
            count["succeeded"] += 1
        elif is_true(job, "Failed"):
            count["failed"] += 1
        else:
            count["active"] += 1 if status.get("active") else 0
            count["suspended"] += 1 if job["spec"].get("suspend") else 0
            ready = status.get("succeeded", 0) + status.get("ready", 0)
            count["ready"] += 1 if status and ready >= _pods_of(job) else 0
    return [{"name": name, **counts} for name, counts in numbers.items()]


def _succeeded(job_set: Object, jobs: list[Object]) -> bool:
    """Whether the success policy is met."""
    policy = job_set["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [entry["name"] for entry in job_set["spec"]["replicatedJobs"]]
    done = [job for job in jobs if _replicated_job(job) in targets and is_true(job, "Complete")]
    wanted = sum(entry["replicas"] for entry in job_set["spec"]["replicatedJobs"] if entry["name"] in targets)
    return bool(done) if policy.get("operator") == "Any" else bool(wanted) and len(done) == wanted


def _reached(needed: Object, numbers: dict[str, Object], replicas: dict[str, int]) -> bool:
    count, wanted = numbers[needed["name"]], replicas[needed["name"]]
    if needed["status"] == "Complete":
        return bool(count["succeeded"] == wanted)
    return bool(count["ready"] + count["succeeded"] >= wanted)


def _template_of(job_set: Object, job: Object) -> Object:
    for entry in job_set["spec"]["replicatedJobs"]:
        if entry["name"] == _replicated_job(job):
            template: Object = entry["template"]["spec"]["template"]
            return template
    return {}


def _child(job_set: Object, entry: Object, index: int, global_index: int, attempt: int) -> Object:
    """The Job of one replica."""
    name, template = job_set["metadata"]["name"], copied(entry["template"])
    total = sum(other["replicas"] for other in job_set["spec"]["replicatedJobs"])
    marks = {
        PREFIX + "jobset-name": name,
        PREFIX + "jobset-uid": job_set["metadata"]["uid"],
        REPLICATED_JOB: entry["name"],
        PREFIX + "replicatedjob-replicas": str(entry["replicas"]),
        PREFIX + "global-replicas": str(total),
        PREFIX + "job-index": str(index),
        PREFIX + "job-global-index": str(global_index),
        ATTEMPT: str(attempt),
    }
    spec = template["spec"]
    key = read(job_set, "metadata", "annotations", EXCLUSIVE) or read(template, "metadata", "annotations", EXCLUSIVE)
    exclusive = {EXCLUSIVE: key} if key else {}
    for metadata in (template.setdefault("metadata", {}), spec["template"].setdefault("metadata", {})):
        metadata["labels"] = {**(metadata.get("labels") or {}), **marks}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **marks, **exclusive}
    spec["suspend"] = bool(job_set["spec"].get("suspend"))
    metadata = {
        **template["metadata"],
        "name": f"{name}-{entry['name']}-{index}",
        "ownerReferences": [owner_reference(job_set)],
    }
    return {"metadata": metadata, "spec": spec}
