"""A STAND-IN for Kubeflow Trainer of newer generations, for tests only; it is not Trainer and shares no code with it.

The real Trainer v2.0.0 can be built from its published module and runs in the same tests. Later ones can't be had
there, while their TrainJob API is different: ``spec.podTemplateOverrides`` (v2.1) and ``spec.runtimePatches`` (v2.2
and later). This module plays that API as far as a queue manager can see it:

- CRDs of our own (:mod:`tests.control_plane.trainer_stand_in_crds`);
- a webhook that stamps ``runtimePatches[].time``, and refuses changes of the patches of running jobs, patches that
  name no job of the runtime, and any update when the runtime is gone;
- a controller that keeps the snapshot of the runtime in a ConfigMap (v2.3), makes the JobSet from runtime, TrainJob
  and patches by server-side apply as ``trainer``, copies ``suspend``, and mirrors conditions and ``jobsStatus``.

- from v2.4 on the PodGroups of `spec.scheduling` (:mod:`tests.control_plane.trainer_stand_in_groups`).

Not played: initializer settings, MPI secrets and host files, environment of frameworks other than ``PET_NNODES``,
progress. Run as ``python -m tests.control_plane.trainer_stand_in`` (see ``--help``).
"""

from __future__ import annotations

import argparse
import base64
import copy
import datetime
import json
import os
import queue
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from tests.control_plane.client import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    JOB_SET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    ApiError,
    Client,
    Object,
    Objects,
)
from tests.control_plane.trainer_stand_in_crds import GROUP, MULTIKUEUE
from tests.control_plane.trainer_stand_in_groups import GroupsPending, group_of_pod, has_gang, pod_webhook, prepare

TOKEN_VARIABLE = "TRAINER_STAND_IN_TOKEN"
"""Environment variable with the bearer token."""

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
FIELD_MANAGER = "trainer"
WORKERS = 4
RETRY_SECONDS = (0.05, 5.0)
"""First and longest pause after a failed reconcile; it doubles in between."""

MERGE_KEYS = {
    "replicatedJobs": "name",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
}
"""Lists that a strategic merge joins by key; any other list (tolerations, affinity terms) is replaced."""


class Refused(Exception):
    """The webhook denies a request; the text is its message."""


class ReconcileError(Exception):
    """A reconcile could not do its work and is tried again."""


# ---- from runtime and TrainJob to JobSet


def strategic_merge(base: Any, patch: Any, field: str = "") -> Any:
    """The base with the patch laid over it, by Kubernetes' strategic merge rules for pod and JobSet templates."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic_merge(base.get(key), value, key)
        return merged
    key = MERGE_KEYS.get(field)
    if key and isinstance(base, list) and isinstance(patch, list):
        rest = {item[key]: item for item in patch}
        joined = [strategic_merge(item, rest.pop(item[key])) if item[key] in rest else item for item in base]
        return joined + list(rest.values())
    return copy.deepcopy(patch)


def resolve(runtime_spec: Object, train_job: Object, generation: str) -> Object:
    """Metadata (labels, annotations) and spec of the JobSet that a TrainJob gets from a runtime's spec."""
    spec = train_job["spec"]
    template = runtime_spec["template"]
    result: Object = {"metadata": copy.deepcopy(template.get("metadata") or {}), "spec": template["spec"]}
    if generation == "v2.1":
        result = _with_overrides(result, spec.get("podTemplateOverrides", []))
    else:
        for entry in spec.get("runtimePatches", []):
            patch = (entry.get("trainingRuntimeSpec") or {}).get("template") or {}
            metadata = {key: patch.get("metadata", {}).get(key, {}) for key in ("labels", "annotations")}
            result = strategic_merge(result, {"metadata": metadata, "spec": patch.get("spec", {})})
    result = copy.deepcopy(result)
    policy = runtime_spec.get("mlPolicy")
    for job in result["spec"]["replicatedJobs"]:
        _shape(job, policy, spec.get("trainer") or {})
    result["spec"]["suspend"] = bool(spec.get("suspend"))
    return result


def _with_overrides(result: Object, overrides: Objects) -> Object:
    jobs = []
    for job in result["spec"]["replicatedJobs"]:
        for override in overrides:
            if job["name"] not in [target["name"] for target in override["targetJobs"]]:
                continue
            metadata = {key: override.get("metadata", {}).get(key, {}) for key in ("labels", "annotations")}
            patch = {"metadata": metadata, "spec": override.get("spec", {})}
            job = strategic_merge(job, {"template": {"spec": {"template": patch}}})
        jobs.append(job)
    return {**result, "spec": {**result["spec"], "replicatedJobs": jobs}}


def _shape(job: Object, policy: Object | None, trainer: Object) -> None:
    """Sets counts, resources and the trainer's container of one replicated job."""
    template = job["template"]
    ancestor = (template.get("metadata") or {}).get("labels", {}).get(ANCESTOR_LABEL)
    is_trainer = ancestor == "trainer" and policy is not None
    mpi = (policy or {}).get("mpi")
    launcher_as_node = bool((mpi or {}).get("runLauncherAsNode"))
    job_spec = template.setdefault("spec", {})
    count = (policy or {}).get("numNodes", 1) if is_trainer else job_spec.get("parallelism", 1)
    count = max(count, 1)
    wanted = trainer.get("numNodes")
    if wanted is not None and mpi is not None and job["name"] == "node":
        count = max(wanted - 1, 1) if launcher_as_node else wanted
    elif wanted is not None and mpi is None and is_trainer:
        count = wanted
    job_spec["parallelism"] = job_spec["completions"] = count
    if ancestor:
        job["replicas"] = 1
    gets_resources = is_trainer or (launcher_as_node and job["name"] == "node")
    for container in job_spec["template"]["spec"]["containers"]:
        if container["name"] != "node":
            continue
        if gets_resources and trainer.get("resourcesPerNode"):
            container["resources"] = strategic_merge(container.get("resources", {}), trainer["resourcesPerNode"])
        if gets_resources:
            container["env"] = strategic_merge(container.get("env", []), trainer.get("env", []), "env")
        if is_trainer:
            container.update({key: trainer[key] for key in ("image", "command", "args") if key in trainer})
        if is_trainer and "torch" in (policy or {}):
            nodes = [{"name": "PET_NNODES", "value": str(count)}]
            container["env"] = strategic_merge(container["env"], nodes, "env")


# ---- webhook


def webhooks(url: str, ca: bytes, generation: str) -> Objects:
    """The webhook configurations, for a webhook that listens at an address of this machine."""

    def configuration(kind: str, name: str, path: str) -> Object:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": f"{name}.trainer.kubeflow.org"},
            "webhooks": [
                {
                    "name": f"{name}.trainjob.trainer.kubeflow.org",
                    "clientConfig": {"url": url + path, "caBundle": base64.b64encode(ca).decode()},
                    "rules": [
                        {
                            "apiGroups": [GROUP],
                            "apiVersions": ["v1alpha1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["trainjobs"],
                        }
                    ],
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                }
            ],
        }

    return [
        configuration("MutatingWebhookConfiguration", "defaulter", "/mutate"),
        configuration("ValidatingWebhookConfiguration", "validator", "/validate"),
        *([pod_webhook(url, base64.b64encode(ca).decode())] if generation == "v2.4" else []),
    ]


def stamp(old: Object | None, new: Object, now: str) -> Objects:
    """JSON patch that sets the time of each patch entry that is new or changed, and keeps the others' time."""
    before = {entry["manager"]: entry for entry in ((old or {}).get("spec") or {}).get("runtimePatches", [])}
    operations = []
    for index, entry in enumerate(new["spec"].get("runtimePatches", [])):
        former = before.get(entry["manager"])
        if former is None:
            value = entry.get("time", now)
        elif {**former, "time": None} == {**entry, "time": None}:
            value = former.get("time", now)
        else:
            value = now
        if entry.get("time") != value:
            operations.append({"op": "add", "path": f"/spec/runtimePatches/{index}/time", "value": value})
    return operations


def validate(client: Client, old: Object | None, new: Object, generation: str) -> None:
    """Raises: Refused with the reasons for which Trainer denies the creation or update."""
    runtime = _live_runtime(client, new)
    if runtime is None:
        kind = new["spec"]["runtimeRef"].get("kind", "")
        kind = kind[:1].lower() + kind[1:]
        raise Refused(
            f"spec.runtimeRef: Invalid value: {json.dumps(new['spec']['runtimeRef'])}: "
            f"specified {kind} must be created before the TrainJob is created"
        )
    jobs = [job["name"] for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]]
    field, word = ("podTemplateOverrides", "PodTemplateOverrides") if generation == "v2.1" else _PATCHES
    _refuse_resized_gang(runtime, old, new)
    entries = new["spec"].get(field, [])
    for entry in entries:
        if generation == "v2.1":
            named = [target["name"] for target in entry["targetJobs"]]
            wrong = "must not have targetJob that doesn't exist in the runtime job template"
        else:
            if "/" not in entry["manager"] or "." not in entry["manager"].split("/")[0]:
                raise Refused(
                    f"spec.{field}.manager: Invalid value: {entry['manager']!r}: must be a domain-prefixed path"
                )
            template = (entry.get("trainingRuntimeSpec") or {}).get("template") or {}
            named = [job["name"] for job in (template.get("spec") or {}).get("replicatedJobs", [])]
            wrong = "must not have replicated job that doesn't exist in the runtime job template"
        if any(name not in jobs for name in named):
            raise Refused(f"spec.{field}: Invalid value: {json.dumps(entries)}: {wrong}")
    if old is None or old["spec"].get(field, []) == entries:
        return
    suspended = bool(new["spec"].get("suspend"))
    if generation == "v2.1" and not suspended:
        raise Refused(f"spec.{field}: Forbidden: {word} can only be modified when the TrainJob is suspended")
    if not suspended and not old["spec"].get("suspend"):
        raise Refused(
            f"spec.{field}: Forbidden: {word} can only be modified when the TrainJob is suspended before or after "
            "the update"
        )
    job_set = client.find(JOB_SET, new["metadata"]["name"], new["metadata"]["namespace"])
    for status in ((job_set or {}).get("status") or {}).get("replicatedJobsStatus", []):
        if status.get("active", 0) > 0:
            raise Refused(
                f"spec.{field}: Forbidden: {word} cannot be modified when the JobSet's ReplicatedJob "
                f"{status['name']} is still active"
            )


_PATCHES = ("runtimePatches", "RuntimePatches")


def _refuse_resized_gang(runtime: Object, old: Object | None, new: Object) -> None:
    """numNodes of a gang doesn't change (v2.4; before, no numNodes does)."""

    def nodes(train_job: Object) -> object:
        return (train_job["spec"].get("trainer") or {}).get("numNodes")

    if old is not None and nodes(old) != nodes(new) and has_gang(runtime["spec"].get("scheduling")):
        raise Refused("spec.trainer.numNodes: Forbidden: it can't be changed while gang scheduling is active")


def review(client: Client, path: str, request: Object, generation: str) -> Object:
    """The answer to one admission request."""
    answer: Object = {"uid": request["uid"], "allowed": True}
    old, new = request.get("oldObject"), request["object"]
    if path in ("/mutate", "/mutate-pod"):
        pod = path == "/mutate-pod"
        patch = group_of_pod(client, new, request["namespace"]) if pod else stamp(old, new, _now())
        if patch:
            answer["patchType"] = "JSONPatch"
            answer["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        return answer
    try:
        validate(client, old, new, generation)
    except Refused as refusal:
        answer["allowed"] = False
        answer["status"] = {"code": 403, "reason": "Forbidden", "message": str(refusal)}
    return answer


# ---- controller


class WorkQueue:
    """Keys to reconcile: each at most once in the queue, and by one worker at a time."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, str]] = queue.Queue()
        self._lock = threading.Lock()
        self._waiting: set[tuple[str, str]] = set()
        self._working: set[tuple[str, str]] = set()
        self._failures: dict[tuple[str, str], int] = {}

    def add(self, key: tuple[str, str]) -> None:
        """Has the key reconciled soon."""
        with self._lock:
            if key in self._waiting:
                return
            self._waiting.add(key)
            if key not in self._working:
                self._queue.put(key)

    def add_after(self, key: tuple[str, str], seconds: float) -> None:
        """Has the key reconciled after some time."""
        timer = threading.Timer(max(seconds, 0), self.add, [key])
        timer.daemon = True
        timer.start()

    def work(self, reconcile: Callable[[tuple[str, str]], None]) -> None:
        """Reconciles keys for ever; one that fails comes again, later each time."""
        while True:
            key = self._queue.get()
            with self._lock:
                self._waiting.discard(key)
                self._working.add(key)
            try:
                reconcile(key)
                self._failures.pop(key, None)
            except Exception:
                traceback.print_exc()
                count = self._failures.get(key, 0)
                self._failures[key] = count + 1
                self.add_after(key, min(RETRY_SECONDS[0] * 2**count, RETRY_SECONDS[1]))
            with self._lock:
                self._working.discard(key)
                if key in self._waiting:
                    self._queue.put(key)


class Controller:
    """Makes TrainJobs' snapshots and JobSets, and keeps their status."""

    def __init__(self, client: Client, generation: str) -> None:
        self.client = client
        self.generation = generation
        self.queue = WorkQueue()
        self.synced = {TRAIN_JOB: threading.Event(), JOB_SET: threading.Event()}

    def start(self) -> None:
        """Starts the watches and the workers as daemon threads."""
        for kind in self.synced:
            threading.Thread(target=self._watch, args=[kind], daemon=True).start()
        for _ in range(WORKERS):
            threading.Thread(target=self.queue.work, args=[self.reconcile], daemon=True).start()

    def _watch(self, kind: str) -> None:
        """Lists and watches a kind for ever and enqueues the TrainJobs concerned."""
        while True:
            try:
                path = self.client.path(kind)
                listed = self.client.request("GET", path)
                for item in listed["items"]:
                    self._enqueue(kind, item)
                self.synced[kind].set()
                version = listed["metadata"]["resourceVersion"]
                for event in self.client.watch(kind, resource_version=version):
                    if event["type"] != "BOOKMARK":
                        self._enqueue(kind, event["object"])
            except Exception:
                traceback.print_exc()
                time.sleep(RETRY_SECONDS[0])

    def _enqueue(self, kind: str, obj: Object) -> None:
        metadata = obj["metadata"]
        if kind == TRAIN_JOB:
            self.queue.add((metadata["namespace"], metadata["name"]))
            return
        for owner in metadata.get("ownerReferences", []):
            if owner["kind"] == "TrainJob" and owner.get("controller"):
                self.queue.add((metadata["namespace"], owner["name"]))

    def reconcile(self, key: tuple[str, str]) -> None:
        """Brings one TrainJob's objects and status up to date. Raises: ReconcileError, ApiError to be tried again."""
        namespace, name = key
        train_job = self.client.find(TRAIN_JOB, name, namespace)
        if train_job is None or train_job["spec"].get("managedBy") == MULTIKUEUE:
            return
        status = copy.deepcopy(train_job.get("status", {}))
        failure: Exception | None = None
        if train_job["spec"]["runtimeRef"]["kind"] not in ("ClusterTrainingRuntime", "TrainingRuntime"):
            failure = ReconcileError(f"unsupported runtime: {train_job['spec']['runtimeRef']}")
            _set_condition(status, "Failed", "True", "TrainingRuntimeNotSupported", str(failure))
        elif not _finished(status):
            try:
                self._apply_objects(train_job)
            except (ApiError, ReconcileError, GroupsPending) as error:
                failure = error
                self._event(train_job, f"TrainJob resources reconciliation failed: {str(error)[:950]}")
        if train_job["spec"].get("suspend"):
            _set_condition(status, "Suspended", "True", "Suspended", "TrainJob is suspended")
        elif _condition(status, "Suspended") == "True":
            _set_condition(status, "Suspended", "False", "Resumed", "TrainJob is resumed")
        job_set = self.client.find(JOB_SET, name, namespace)
        if job_set is None and not _finished(status):
            failure = failure or ReconcileError(f"no JobSet {namespace}/{name}")
        elif job_set is not None:
            _mirror(job_set, status)
        self._deadline(key, train_job, status)
        if status != train_job.get("status", {}):
            self.client.patch(TRAIN_JOB, name, {"status": status}, namespace, subresource="status")
        if failure:
            raise failure

    def _apply_objects(self, train_job: Object) -> None:
        metadata = train_job["metadata"]
        runtime = self._runtime(train_job)
        existing = self.client.find(JOB_SET, metadata["name"], metadata["namespace"])
        if existing and not existing["spec"].get("suspend") and not train_job["spec"].get("suspend"):
            return
        resolved = resolve(runtime["spec"], train_job, self.generation)
        if self.generation == "v2.4":
            prepare(self.client, train_job, runtime, resolved, _owner(train_job))
        self._apply(
            {
                "apiVersion": JOB_SET.rsplit("/", 1)[0],
                "kind": "JobSet",
                "metadata": {
                    **{key: value for key, value in resolved["metadata"].items() if key in ("labels", "annotations")},
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "ownerReferences": [_owner(train_job)],
                },
                "spec": resolved["spec"],
            }
        )

    def _runtime(self, train_job: Object) -> Object:
        """The runtime as it was when the TrainJob was first seen (from v2.3 on), else as it is now."""
        metadata = train_job["metadata"]
        snapshot = f"{metadata['name']}-runtime-snapshot"
        if self.generation != "v2.1":
            config_map = self.client.find(CONFIG_MAP, snapshot, metadata["namespace"])
            if config_map is not None:
                owners = [item["uid"] for item in config_map["metadata"].get("ownerReferences", [])]
                if metadata["uid"] not in owners:
                    raise ReconcileError(
                        "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
                    )
                stored: Object = yaml.safe_load(config_map["data"]["runtime"])
                return stored
        runtime = _live_runtime(self.client, train_job)
        if runtime is None:
            raise ReconcileError("TrainingRuntime specified in TrainJob is not found")
        if self.generation != "v2.1":
            runtime["metadata"].pop("managedFields", None)
            self._apply(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": snapshot,
                        "namespace": metadata["namespace"],
                        "ownerReferences": [_owner(train_job)],
                    },
                    "data": {"runtime": yaml.safe_dump(runtime)},
                }
            )
        return runtime

    def _apply(self, obj: Object) -> None:
        kind = f"{obj['apiVersion']}/{obj['kind']}"
        metadata = obj["metadata"]
        self.client.patch(
            kind, metadata["name"], obj, metadata["namespace"], form="apply", field_manager=FIELD_MANAGER, force=True
        )

    def _deadline(self, key: tuple[str, str], train_job: Object, status: Object) -> None:
        seconds = train_job["spec"].get("activeDeadlineSeconds")
        if not seconds or _finished(status) or train_job["spec"].get("suspend"):
            return
        began = train_job["metadata"]["creationTimestamp"]
        for condition in status.get("conditions", []):
            if condition["type"] == "Suspended" and condition["status"] == "False":
                began = condition["lastTransitionTime"]
        left = datetime.datetime.fromisoformat(began).timestamp() + seconds - time.time()
        if left > 0:
            self.queue.add_after(key, left)
            return
        _set_condition(status, "Failed", "True", "DeadlineExceeded", "TrainJob exceeded its active deadline")
        self.client.delete(JOB_SET, key[1], key[0])

    def _event(self, train_job: Object, note: str) -> None:
        metadata = train_job["metadata"]
        self.client.request(
            "POST",
            f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events",
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
                "type": "Warning",
                "reason": "TrainJobResourcesCreationFailed",
                "action": "Reconciling",
                "note": note,
                "eventTime": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "reportingController": "trainer-stand-in",
                "reportingInstance": "trainer-stand-in",
                "regarding": {
                    "apiVersion": train_job["apiVersion"],
                    "kind": "TrainJob",
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "uid": metadata["uid"],
                },
            },
        )


def _live_runtime(client: Client, train_job: Object) -> Object | None:
    reference = train_job["spec"]["runtimeRef"]
    if reference.get("kind") == "TrainingRuntime":
        return client.find(TRAINING_RUNTIME, reference["name"], train_job["metadata"]["namespace"])
    return client.find(CLUSTER_TRAINING_RUNTIME, reference["name"])


def _owner(train_job: Object) -> Object:
    return {
        "apiVersion": train_job["apiVersion"],
        "kind": "TrainJob",
        "name": train_job["metadata"]["name"],
        "uid": train_job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _mirror(job_set: Object, status: Object) -> None:
    """Copies the end of a JobSet and the counts of its jobs into a TrainJob's status."""
    found = job_set.get("status", {})
    for condition in found.get("conditions", []):
        for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            if condition["type"] == theirs and condition["status"] == "True":
                _set_condition(status, ours, "True", condition["reason"], condition.get("message", ""))
    keys = ("name", "ready", "succeeded", "failed", "active", "suspended")
    jobs = [{key: job[key] for key in keys} for job in found.get("replicatedJobsStatus", [])]
    if jobs:
        status["jobsStatus"] = jobs
    else:
        status.pop("jobsStatus", None)


def _condition(status: Object, kind: str) -> str | None:
    return next((item["status"] for item in status.get("conditions", []) if item["type"] == kind), None)


def _finished(status: Object) -> bool:
    return "True" in (_condition(status, "Complete"), _condition(status, "Failed"))


def _set_condition(status: Object, kind: str, value: str, reason: str, message: str) -> None:
    """Sets a condition; its time changes only with its status."""
    conditions = status.setdefault("conditions", [])
    for condition in conditions:
        if condition["type"] == kind:
            if condition["status"] != value:
                condition["lastTransitionTime"] = _now()
            condition.update(status=value, reason=reason, message=message)
            return
    conditions.append(
        {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": _now()}
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- process


def _serve_webhook(client: Client, generation: str, port: int, certificate: str, key: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are two writes: the second would wait 40 ms for the acknowledgement of the first.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            answer = review(client, self.path.split("?")[0], request, generation)
            body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
            _answer(self, json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake is left to the connection's own thread: a client that doesn't speak must not block the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _serve_health(controller: Controller, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = all(event.is_set() for event in controller.synced.values())
            _answer(self, b"ok" if ready else b"not synced", 200 if ready else 503)

        def log_message(self, format: str, *args: object) -> None:
            return

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _answer(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def main(arguments: list[str] | None = None) -> int:
    """Runs until it is killed."""
    parser = argparse.ArgumentParser(prog="trainer_stand_in", description="Stand-in for Kubeflow Trainer, for tests")
    for name in ("server", "ca-file", "certificate", "key"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("webhook-port", "health-port"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--generation", choices=["v2.1", "v2.3", "v2.4"], required=True)
    options = parser.parse_args(arguments)
    client = Client(options.server, ca_file=options.ca_file, token=os.environ[TOKEN_VARIABLE])
    controller = Controller(client, options.generation)
    _serve_webhook(client, options.generation, options.webhook_port, options.certificate, options.key)
    controller.start()
    _serve_health(controller, options.health_port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
