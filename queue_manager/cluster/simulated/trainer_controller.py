"""The Trainer controller, `runtimePatches` generation with runtime snapshots (`workloads.md` §1.4-§1.6)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

import yaml

from queue_manager.cluster.cache import controller_of, key_of
from queue_manager.cluster.clock import Clock, parse_rfc3339
from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    ApiError,
    EventType,
    Object,
    PatchType,
)
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.documents import copied, read
from queue_manager.cluster.simulated.job_rules import runtime_of
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import is_true, owner_reference, with_condition, write_status
from queue_manager.cluster.simulated.patches import strategic_merged
from queue_manager.cluster.simulated.storage import Change

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
SNAPSHOT_SUFFIX = "-runtime-snapshot"
_MANAGER = "trainer"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class TrainerController:
    """Makes the JobSet of each TrainJob and mirrors its status."""

    def __init__(self, api: ApiState, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    def keys(self, change: Change) -> Iterable[Key]:
        """The TrainJob, the TrainJob of the JobSet, or all TrainJobs that wait for a new runtime."""
        if change.resource == TRAIN_JOBS:
            yield key_of(change.new)
        elif change.resource == JOB_SETS:
            owner = controller_of(change.new)
            if owner is not None and owner["kind"] == TRAIN_JOBS.kind:
                yield change.new["metadata"]["namespace"], owner["name"]
        elif change.resource in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES) and change.type is EventType.ADDED:
            for job in self._api.storage.all(TRAIN_JOBS):
                if job["spec"]["runtimeRef"].get("name") == change.new["metadata"]["name"]:
                    yield key_of(job)

    def reconcile(self, key: Key) -> float | None:
        """Brings one TrainJob a step further."""
        job = self._api.peek(TRAIN_JOBS, key[0], key[1])
        if job is None or job["metadata"].get("deletionTimestamp") or is_true(job, "Complete", "Failed"):
            return None
        try:
            self._apply_job_set(job)
        except ApiError as error:
            self._event(job, error)
            raise
        return self._status(job)

    def _apply_job_set(self, job: Object) -> None:
        namespace, name = key_of(job)
        runtime = self._runtime(job)
        existing = self._api.peek(JOB_SETS, namespace, name)
        if existing is not None and not existing["spec"].get("suspend") and not job["spec"].get("suspend"):
            return  # a running JobSet is left alone
        wish = {"metadata": {}, **job_set_of(job, runtime)}
        wish["metadata"] = {**wish["metadata"], "name": name, "ownerReferences": [owner_reference(job)]}
        self._api.patch(JOB_SETS, namespace, name, wish, PatchType.APPLY, manager=_MANAGER, force=True)

    def _runtime(self, job: Object) -> Object:
        """The snapshot, else the live runtime, of which a snapshot is taken."""
        namespace, name = key_of(job)
        snapshot = self._api.peek(CONFIG_MAPS, namespace, name + SNAPSHOT_SUFFIX)
        if snapshot is not None:
            owner = controller_of(snapshot)
            if owner is None or owner["uid"] != job["metadata"]["uid"]:
                raise ApiError(409, "Conflict", "the runtime snapshot belongs to another object")
            return _parsed(snapshot["data"]["runtime"])
        runtime = runtime_of(job, self._api)
        if runtime is None:
            raise ApiError(404, "NotFound", "TrainingRuntime specified in TrainJob is not found")
        body = {
            "metadata": {"name": name + SNAPSHOT_SUFFIX, "ownerReferences": [owner_reference(job)]},
            "data": {"runtime": yaml.dump(runtime, Dumper=_DUMPER)},
        }
        self._api.create(CONFIG_MAPS, namespace, body, manager=_MANAGER)
        return runtime

    def _status(self, job: Object) -> float | None:
        namespace, name = key_of(job)
        latest, job_set = self._api.get(TRAIN_JOBS, namespace, name), self._api.peek(JOB_SETS, namespace, name)
        status = dict(latest.get("status") or {})
        conditions = status.get("conditions") or []
        now = self._api.time()
        if job["spec"].get("suspend"):
            conditions = with_condition(conditions, "Suspended", True, "Suspended", "TrainJob is suspended", now)
        elif any(condition["type"] == "Suspended" for condition in conditions):
            conditions = with_condition(conditions, "Suspended", False, "Resumed", "TrainJob is resumed", now)
        for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            for condition in read(job_set, "status", "conditions", default=[]):
                if condition["type"] == theirs and condition["status"] == "True":
                    conditions = with_condition(conditions, ours, True, condition["reason"], condition["message"], now)
        left = self._left(job, conditions)
        if left is not None and left <= 0:
            message = "TrainJob exceeded its active deadline"
            conditions = with_condition(conditions, "Failed", True, "DeadlineExceeded", message, now)
            self._api.delete(JOB_SETS, namespace, name)
        if conditions:
            status["conditions"] = conditions
        if counts := read(job_set, "status", "replicatedJobsStatus", default=[]):
            status["jobsStatus"] = counts
        write_status(self._api, TRAIN_JOBS, latest, status, _MANAGER)
        return left if left is not None and left > 0 else None

    def _left(self, job: Object, conditions: list[Object]) -> float | None:
        """Seconds until the deadline, which begins anew at each resume; None where none runs."""
        seconds = job["spec"].get("activeDeadlineSeconds")
        ended = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
        if not seconds or ended or job["spec"].get("suspend"):
            return None
        began: datetime = parse_rfc3339(job["metadata"]["creationTimestamp"])
        for condition in conditions:
            if condition["type"] == "Suspended" and condition["status"] == "False":
                began = parse_rfc3339(condition["lastTransitionTime"])
        return float(seconds) - (self._clock.now() - began).total_seconds()

    def _event(self, job: Object, error: ApiError) -> None:
        namespace, name = key_of(job)
        reference = {"kind": TRAIN_JOBS.kind, "namespace": namespace, "name": name, "uid": job["metadata"]["uid"]}
        body = {
            "metadata": {"generateName": f"{name}."},
            "type": "Warning",
            "reason": "TrainJobResourcesCreationFailed",
            "message": error.message,
            "involvedObject": reference,
            "source": {"component": "trainer-controller"},
            "lastTimestamp": self._api.time(),
        }
        self._api.create(EVENTS, namespace, body, manager=_MANAGER)


@lru_cache(maxsize=256)
def _parsed(text: str) -> Object:
    """The runtime of a snapshot; most snapshots are of the same few runtimes, and YAML is slow."""
    stored: Object = yaml.load(text, Loader=_LOADER)
    return stored


def job_set_of(job: Object, runtime: Object) -> Object:
    """Metadata (labels, annotations) and spec of the JobSet that Trainer makes."""
    template = runtime["spec"]["template"]
    result: Object = {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
    order = [entry["name"] for entry in result["spec"].get("replicatedJobs") or ()]
    for entry in job["spec"].get("runtimePatches") or ():
        patch = read(entry, "trainingRuntimeSpec", "template", default={})
        result = strategic_merged(result, {name: patch[name] for name in ("metadata", "spec") if patch.get(name)})
    result = copied(result)
    jobs = {entry["name"]: entry for entry in result["spec"].get("replicatedJobs") or ()}
    result["spec"]["replicatedJobs"] = [jobs[name] for name in order]
    for entry in result["spec"]["replicatedJobs"]:
        _shape(entry, runtime["spec"].get("mlPolicy") or {}, job["spec"].get("trainer") or {})
    result["spec"]["suspend"] = bool(job["spec"].get("suspend"))
    return result


def _shape(entry: Object, policy: Object, trainer: Object) -> None:
    """Counts, resources and the training container of one replicated job."""
    template = entry.setdefault("template", {})
    spec = template.setdefault("spec", {})
    step = read(template, "metadata", "labels", ANCESTOR, default="")
    trains = step == "trainer" and bool(policy)
    mpi = policy.get("mpi") or {}
    as_node = bool(mpi.get("runLauncherAsNode"))
    count = policy.get("numNodes", 1) if trains else spec.get("parallelism", 1)
    wanted = trainer.get("numNodes")
    if wanted is not None and "mpi" in policy:
        if entry["name"] == "node":
            count = max(wanted - 1, 1) if as_node else wanted
    elif wanted is not None and trains:
        count = wanted
    spec["parallelism"] = spec["completions"] = max(count, 1)
    if step:
        entry["replicas"] = 1
    sized = trains or (as_node and entry["name"] == "node")
    for container in read(spec, "template", "spec", "containers", default=[]):
        if container["name"] != "node" or not sized:
            continue
        if trainer.get("resourcesPerNode"):
            container["resources"] = strategic_merged(container.get("resources") or {}, trainer["resourcesPerNode"])
        if trainer.get("env"):
            container["env"] = strategic_merged(container.get("env") or [], trainer["env"], "env")
        if trains:
            container |= {name: trainer[name] for name in ("image", "command", "args") if name in trainer}
