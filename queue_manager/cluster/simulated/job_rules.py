"""Defaults and update rules of Job, JobSet and TrainJob (`reference/workloads.md` §1.3, §3.2, §4.2)."""

from __future__ import annotations

from typing import Any

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Object,
    Resource,
)
from queue_manager.cluster.simulated.admission import denied, invalid
from queue_manager.cluster.simulated.documents import read
from queue_manager.cluster.simulated.rules import Rules, View

JOB_SET_WEBHOOK = "vjobset.kb.io"
TRAIN_JOB_WEBHOOK = "validator.trainjob.trainer.kubeflow.org"
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def _fixed_template(template: Object, *, node_affinity: bool) -> Object:
    """A pod template without what may change while suspended."""
    spec = {name: value for name, value in (template.get("spec") or {}).items() if name not in _DIRECTIVES}
    if node_affinity and spec.get("affinity"):
        affinity = {kind: rule for kind, rule in spec["affinity"].items() if kind != "nodeAffinity"}
        spec["affinity"] = affinity
    if not spec.get("affinity"):
        spec.pop("affinity", None)
    metadata = {
        name: value
        for name, value in (template.get("metadata") or {}).items()
        if name not in ("labels", "annotations", "creationTimestamp")
    }
    return {**template, "metadata": metadata, "spec": spec}


class JobRules(Rules):
    """batch/v1 Job, as of Kubernetes 1.36 and later."""

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """Defaults and the labels that tie pods to their Job."""
        spec = dict(new["spec"])
        if spec.get("parallelism") is None:
            spec["parallelism"] = 1
            if spec.get("completions") is None and old is None:
                spec["completions"] = 1
        for name, value in (("completionMode", "NonIndexed"), ("backoffLimit", 6), ("suspend", False)):
            if spec.get(name) is None:
                spec[name] = value
        template = spec.get("template") or {}
        own = {
            "batch.kubernetes.io/controller-uid": new["metadata"]["uid"],
            "batch.kubernetes.io/job-name": new["metadata"]["name"],
        }
        metadata = template.get("metadata") or {}
        spec["template"] = {
            **template,
            "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **own}},
        }
        return {**new, "spec": spec}

    def check(self, new: Object, old: Object | None, view: View) -> None:
        """The template changes only while suspended and at rest, and only in its scheduling directives."""
        name, spec = new["metadata"]["name"], new["spec"]
        for field in ("parallelism", "completions", "backoffLimit"):
            if isinstance(spec.get(field), int) and spec[field] < 0:
                message = f"spec.{field}: Invalid value: {spec[field]}: must be greater than or equal to 0"
                raise invalid(self.resource, name, message)
        if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
            raise invalid(self.resource, name, "spec.completions: Required value: when completion mode is Indexed")
        if old is None:
            return
        before = old["spec"]
        for field in ("completionMode", "selector", "managedBy", "podFailurePolicy", "successPolicy"):
            if before.get(field) != spec.get(field):
                raise invalid(self.resource, name, f"spec.{field}: Invalid value: field is immutable")
        elastic = spec["completionMode"] == "Indexed" and spec.get("completions") == spec.get("parallelism")
        if before.get("completions") != spec.get("completions") and not elastic:
            raise invalid(self.resource, name, "spec.completions: Invalid value: field is immutable")
        if before["template"] == spec["template"]:
            return
        if not _at_rest(old):
            raise invalid(self.resource, name, "spec.template: Invalid value: field is immutable")
        if _fixed_template(before["template"], node_affinity=True) != _fixed_template(
            spec["template"], node_affinity=True
        ):
            raise invalid(self.resource, name, "spec.template: Invalid value: field is immutable")


def _at_rest(job: Object) -> bool:
    """Suspended, and never started or surely stopped."""
    if not job["spec"].get("suspend"):
        return False
    status = job.get("status") or {}
    stopped = any(c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions") or ())
    return status.get("startTime") is None or (stopped and not status.get("active"))


class JobSetRules(Rules):
    """JobSet with its webhooks."""

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """The mutating webhook's defaults."""
        spec = dict(new.get("spec") or {})
        spec["replicatedJobs"] = [self._defaulted(entry) for entry in spec.get("replicatedJobs") or []]
        spec.setdefault("successPolicy", {"operator": "All"})
        spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        spec.setdefault("network", {"enableDNSHostnames": True, "publishNotReadyAddresses": True})
        return {**new, "spec": spec}

    def _defaulted(self, entry: Object) -> Object:
        template = entry.get("template") or {}
        job = {"completionMode": "Indexed", **(template.get("spec") or {})}
        pod = job.get("template") or {}
        job["template"] = {**pod, "spec": {"restartPolicy": "OnFailure", **(pod.get("spec") or {})}}
        return {"replicas": 1, "groupName": "default", **entry, "template": {**template, "spec": job}}

    def check(self, new: Object, old: Object | None, view: View) -> None:
        """The validating webhook: job templates change only in their pods' directives, and only around suspension."""
        spec = new["spec"]
        names = [entry["name"] for entry in spec["replicatedJobs"]]
        for position, entry in enumerate(spec["replicatedJobs"]):
            for needed in entry.get("dependsOn") or ():
                if needed["name"] not in names[:position]:
                    raise denied(JOB_SET_WEBHOOK, f"{needed['name']} must be an earlier replicatedJob to depend on")
        if old is None:
            return
        before = old["spec"]
        for field in ("network", "successPolicy", "failurePolicy", "startupPolicy", "managedBy", "coordinator"):
            if before.get(field) != spec.get(field):
                raise denied(JOB_SET_WEBHOOK, f"spec.{field}: Invalid value: field is immutable")
        was, now = before["replicatedJobs"], spec["replicatedJobs"]
        if was != now:
            around_suspension = before.get("suspend") or spec.get("suspend")
            if not around_suspension or [_fixed_job(e) for e in was] != [_fixed_job(e) for e in now]:
                raise denied(JOB_SET_WEBHOOK, "spec.replicatedJobs: Invalid value: field is immutable")


def _fixed_job(entry: Object) -> Object:
    job = entry["template"]["spec"]
    fixed = {**job, "template": _fixed_template(job["template"], node_affinity=False)}
    return {**entry, "template": {**entry["template"], "spec": fixed}}


class TrainJobRules(Rules):
    """TrainJob of the `runtimePatches` generation with CEL rules and webhooks of Trainer 2.2.1 and later."""

    def prepare(self, new: Object, old: Object | None, view: View) -> Object:
        """Defaults; Trainer's webhook stamps the time on entries that changed."""
        spec = dict(new.get("spec") or {})
        reference = spec.get("runtimeRef") or {}
        spec["runtimeRef"] = {"apiGroup": TRAIN_JOBS.group, "kind": CLUSTER_TRAINING_RUNTIMES.kind, **reference}
        spec.setdefault("suspend", False)
        spec.setdefault("managedBy", "trainer.kubeflow.org/trainjob-controller")
        if spec.get("runtimePatches"):
            before = {entry["manager"]: entry for entry in read(old, "spec", "runtimePatches", default=[])}
            spec["runtimePatches"] = [
                self._stamped(entry, before.get(entry.get("manager")), view) for entry in spec["runtimePatches"]
            ]
        return {**new, "spec": spec}

    def _stamped(self, entry: Object, before: Object | None, view: View) -> Object:
        if before is not None and _timeless(before) == _timeless(entry):
            return {**entry, "time": before["time"]}
        return {**entry, "time": view.time()}

    def check(self, new: Object, old: Object | None, view: View) -> None:
        """CEL rules of the schema, then the validating webhook."""
        self._check_schema(new, old)
        runtime = runtime_of(new, view)
        if runtime is None:
            reference = new["spec"]["runtimeRef"]
            message = f"spec.runtimeRef: Invalid value: {reference['kind']} {reference.get('name')!r} not found"
            raise denied(TRAIN_JOB_WEBHOOK, message)
        known = {e["name"] for e in read(runtime, "spec", "template", "spec", "replicatedJobs", default=[])}
        for entry in new["spec"].get("runtimePatches") or ():
            for job in patched_jobs(entry):
                if job["name"] not in known:
                    message = f"spec.runtimePatches: Invalid value: no replicated job {job['name']!r} in the runtime"
                    raise denied(TRAIN_JOB_WEBHOOK, message)
        if old is not None:
            self._check_patches(new, old, view)

    def _check_schema(self, new: Object, old: Object | None) -> None:
        name, spec = new["metadata"]["name"], new["spec"]
        if len(name) > 63:
            raise invalid(self.resource, name, "metadata.name must be no more than 63 characters")
        managers = [entry.get("manager") for entry in spec.get("runtimePatches") or ()]
        if len(set(managers)) < len(managers):
            raise invalid(self.resource, name, "spec.runtimePatches: Duplicate value")
        if any(not manager or "/" not in manager for manager in managers):
            raise invalid(self.resource, name, "spec.runtimePatches.manager: must be a domain-prefixed path")
        allowed = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
        if spec["managedBy"] not in allowed:
            raise invalid(self.resource, name, "spec.managedBy must be trainer.kubeflow.org/trainjob-controller or ...")
        for field in ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy"):
            if old is not None and old["spec"].get(field) != spec.get(field):
                raise invalid(self.resource, name, f"spec.{field}: Invalid value: field is immutable")

    def _check_patches(self, new: Object, old: Object, view: View) -> None:
        before, after = old["spec"].get("runtimePatches") or [], new["spec"].get("runtimePatches") or []
        if before == after:
            return
        if not old["spec"].get("suspend") and not new["spec"].get("suspend"):
            raise denied(TRAIN_JOB_WEBHOOK, "spec.runtimePatches can only be modified when the TrainJob is suspended")
        job_set = view.peek(JOB_SETS, new["metadata"]["namespace"], new["metadata"]["name"])
        for status in read(job_set, "status", "replicatedJobsStatus", default=[]):
            if status.get("active"):
                message = "spec.runtimePatches cannot be modified when the JobSet's ReplicatedJob {} is still active"
                raise denied(TRAIN_JOB_WEBHOOK, message.format(status["name"]))


def runtime_of(train_job: Object, view: View) -> Object | None:
    """The live runtime that a TrainJob names."""
    reference = train_job["spec"]["runtimeRef"]
    if reference["kind"] == TRAINING_RUNTIMES.kind:
        return view.peek(TRAINING_RUNTIMES, train_job["metadata"]["namespace"], reference.get("name", ""))
    return view.peek(CLUSTER_TRAINING_RUNTIMES, "", reference.get("name", ""))


def patched_jobs(entry: Object) -> list[Object]:
    """The replicated jobs that one entry of `runtimePatches` speaks of."""
    found: list[Object] = read(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", default=[])
    return found


def _timeless(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "time"}


JOB_RULES: dict[Resource, Rules] = {
    JOBS: JobRules(JOBS, status=True),
    JOB_SETS: JobSetRules(JOB_SETS, status=True),
    TRAIN_JOBS: TrainJobRules(TRAIN_JOBS, status=True),
}
