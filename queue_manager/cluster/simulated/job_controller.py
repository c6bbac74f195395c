"""The Job controller: pods with indexes, suspension, counts, completion (`reference/workloads.md` §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from queue_manager.cluster.cache import controller_of, key_of
from queue_manager.cluster.port import JOBS, PODS, ApiError, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.documents import copied
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import (
    children,
    has_condition,
    is_true,
    owner_reference,
    with_condition,
    without_finalizer,
    write_status,
)
from queue_manager.cluster.simulated.storage import Change

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_MANAGER = "kube-controller-manager"


class JobController:
    """Keeps the pods of Jobs as their spec and status say."""

    def __init__(self, api: ApiState, random: Random) -> None:
        self._api = api
        self._random = random
        self._refused: ApiError | None = None

    def keys(self, change: Change) -> Iterable[Key]:
        """The Job, or the Job of the pod."""
        if change.resource == JOBS:
            yield ("job", *key_of(change.new))
        elif change.resource == PODS:
            owner = controller_of(change.new)
            if owner is not None and owner["kind"] == JOBS.kind:
                yield ("job", change.new["metadata"]["namespace"], owner["name"])
                if TRACKING in (change.new["metadata"].get("finalizers") or ()):
                    yield ("pod", *key_of(change.new))

    def reconcile(self, key: Key) -> float | None:
        """Brings one Job a step further, or frees a pod whose Job is gone."""
        if key[0] == "pod":
            pod = self._api.peek(PODS, key[1], key[2])
            owner = controller_of(pod) if pod is not None else None
            if pod is not None and owner is not None and self._api.storage.by_uid(owner["uid"]) is None:
                self._untrack(pod)
            return None
        job = self._api.peek(JOBS, key[1], key[2])
        if job is None:
            return None
        if job["metadata"].get("deletionTimestamp"):
            for pod in children(self._api, job, PODS):
                self._untrack(pod)
            return None
        managed_by = job["spec"].get("managedBy", "kubernetes.io/job-controller")
        if managed_by == "kubernetes.io/job-controller":
            self._reconcile(job)
        return None

    def _reconcile(self, job: Object) -> None:
        status = dict(job.get("status") or {})
        status.setdefault("conditions", [])
        pods = self._count_finished(job, status)
        active = [pod for pod in pods if _is_active(pod)]
        if is_true(job, "Complete", "Failed"):
            self._remove(active)
        elif status.get("failed", 0) > job["spec"]["backoffLimit"]:
            self._remove(active)
            self._condition(
                status, "Failed", True, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        elif self._is_complete(job, status, active):
            self._remove(active)
            status["completionTime"] = self._api.time()
            self._condition(status, "Complete", True, "CompletionsReached", "Reached expected number of succeeded pods")
        elif job["spec"].get("suspend"):
            self._remove(active)
            status.pop("startTime", None)
            self._condition(status, "Suspended", True, "JobSuspended", "Job suspended")
        else:
            if "startTime" not in status:
                status["startTime"] = self._api.time()
            if has_condition(job, "Suspended"):
                self._condition(status, "Suspended", False, "JobResumed", "Job resumed")
            self._scale(job, status, active, pods)
        refused, self._refused = self._refused, None
        self._observe(job, status)
        if refused is not None:
            raise refused  # tried again after a pause

    def _count_finished(self, job: Object, status: Object) -> list[Object]:
        """Counts pods that ended, each once (the finalizer says whether it was counted); answers all pods."""
        completed = parse_indexes(status.get("completedIndexes", ""))
        for pod in children(self._api, job, PODS):
            phase = (pod.get("status") or {}).get("phase")
            if phase not in ("Succeeded", "Failed") or TRACKING not in (pod["metadata"].get("finalizers") or ()):
                continue
            if job["spec"]["completionMode"] == "Indexed" and phase == "Succeeded":
                completed.add(index_of(pod))
                status["succeeded"] = len(completed)
            else:
                name = phase.lower()
                status[name] = status.get(name, 0) + 1
            self._untrack(pod)
        if completed:
            status["completedIndexes"] = spelled_indexes(completed)
        return children(self._api, job, PODS)

    def _is_complete(self, job: Object, status: Object, active: Sequence[Object]) -> bool:
        completions, succeeded = job["spec"].get("completions"), status.get("succeeded", 0)
        if completions is None:
            return bool(succeeded) and not active
        return bool(succeeded >= completions)

    def _scale(self, job: Object, status: Object, active: list[Object], pods: list[Object]) -> None:
        """Makes or removes pods until as many run as should."""
        spec, succeeded = job["spec"], status.get("succeeded", 0)
        if spec.get("completions") is None:
            wanted = len(active) if succeeded else spec["parallelism"]
        else:
            wanted = min(spec["parallelism"], spec["completions"] - succeeded)
        occupied = len(active)
        if spec.get("podReplacementPolicy") == "Failed":
            occupied += sum(1 for pod in pods if _is_terminating(pod))
        if len(active) > wanted:
            self._remove(sorted(active, key=_removed_first)[wanted:])
        elif occupied < wanted:
            self._make(job, status, active, wanted - occupied)

    def _make(self, job: Object, status: Object, active: Sequence[Object], count: int) -> None:
        if job["spec"]["completionMode"] != "Indexed":
            for _ in range(count):
                self._create_pod(job, None)
            return
        taken = parse_indexes(status.get("completedIndexes", "")) | {index_of(pod) for pod in active}
        free = [index for index in range(job["spec"]["completions"]) if index not in taken]
        for index in free[:count]:
            self._create_pod(job, index)

    def _create_pod(self, job: Object, index: int | None) -> None:
        template = copied(job["spec"]["template"])
        metadata = template.get("metadata") or {}
        suffix = "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        number = "" if index is None else f"-{index}"
        marks = {} if index is None else {INDEX: str(index)}
        pod = {
            "metadata": {
                "name": f"{job['metadata']['name']}{number}-{suffix}",
                "labels": {**(metadata.get("labels") or {}), **marks},
                "annotations": {**(metadata.get("annotations") or {}), **marks},
                "ownerReferences": [owner_reference(job)],
                "finalizers": [TRACKING],
            },
            "spec": template["spec"],
        }
        try:
            self._api.create(PODS, job["metadata"]["namespace"], pod, manager=_MANAGER)
        except ApiError as error:
            self._refused = error

    def _remove(self, pods: Iterable[Object]) -> None:
        """Ends pods without counting them."""
        for pod in pods:
            self._untrack(pod)
            self._api.delete(PODS, *key_of(pod))

    def _untrack(self, pod: Object) -> None:
        if TRACKING in (pod["metadata"].get("finalizers") or ()):
            self._api.update(PODS, pod, without_finalizer(pod, TRACKING), manager=_MANAGER)

    def _condition(self, status: Object, kind: str, value: bool, reason: str, message: str) -> None:
        status["conditions"] = with_condition(status["conditions"], kind, value, reason, message, self._api.time())

    def _observe(self, job: Object, status: Object) -> None:
        pods = children(self._api, job, PODS)
        active = [pod for pod in pods if _is_active(pod)]
        status["active"] = len(active)
        status["ready"] = sum(1 for pod in active if is_true(pod, "Ready"))
        status["terminating"] = sum(1 for pod in pods if _is_terminating(pod))
        latest = self._api.peek(JOBS, *key_of(job))
        if latest is not None:
            write_status(self._api, JOBS, latest, status, _MANAGER)


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_active(pod: Object) -> bool:
    return not _has_ended(pod) and not pod["metadata"].get("deletionTimestamp")


def _is_terminating(pod: Object) -> bool:
    return not _has_ended(pod) and bool(pod["metadata"].get("deletionTimestamp"))


def _removed_first(pod: Object) -> tuple[bool, int, str]:
    """Pods that run and have low indexes stay."""
    return (not is_true(pod, "Ready"), index_of(pod), pod["metadata"]["name"])


def index_of(pod: Object) -> int:
    """The completion index of a pod; 0 for pods of Jobs that are not Indexed."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, "0"))


def parse_indexes(text: str) -> set[int]:
    """`0-2,5` as {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def spelled_indexes(indexes: Iterable[int]) -> str:
    """{0, 1, 2, 5} as `0-2,5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
