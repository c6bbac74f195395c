"""The kubelets of all nodes, and the collector of pods whose node went away."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from queue_manager.cluster.cache import controller_of, key_of
from queue_manager.cluster.clock import Clock, jittered, parse_rfc3339, rfc3339
from queue_manager.cluster.port import NODES, PODS, EventType, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.objects import is_true, with_condition, write_status
from queue_manager.cluster.simulated.storage import Change

RUN_TIME = "simulated.queue-manager.io/run-time"
"""Annotation of a pod, or of an owner up to the top: how long the pod runs before it succeeds (`45s`, `2m`, `1h`)."""

OUTCOME = "simulated.queue-manager.io/outcome"
"""Annotation like it: `Failed` makes the pod fail at the end of its run time."""

TERMINATION_TIME = "simulated.queue-manager.io/termination-time"
"""Annotation like it: how long the pod takes to end when it is deleted, at most its grace period."""

READY_AFTER = "simulated.queue-manager.io/ready-after"
"""Annotation like it: how long a running pod takes to be ready, or `never`. Without it: at once."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
NEVER = float("-inf")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that things take on a node. `node_loss` is how long pods of a deleted node are still shown, `collection`
    how long those that are deleted before they were bound."""

    start: float = 1.0
    termination: float = 1.0
    node_loss: float = 5.0
    collection: float = 10.0
    spread: float = 0.0


class Kubelet:
    """Starts bound pods, lets them run for their time, and ends deleted ones."""

    def __init__(self, api: ApiState, clock: Clock, random: Random, pace: Pace) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._pace = pace
        self._until: dict[tuple[str, str], float] = {}

    def keys(self, change: Change) -> Iterable[Key]:
        """Bound pods, and all pods of a node that goes, falls silent or comes back."""
        if change.resource == PODS:
            if change.type is EventType.DELETED:
                for what in ("start", "ready", "end", "kill", "lose", "collect"):
                    self._until.pop((what, change.new["metadata"]["uid"]), None)
            elif change.new["spec"].get("nodeName") or change.new["metadata"].get("deletionTimestamp"):
                yield key_of(change.new)
        elif change.resource == NODES and _came_or_went(change):
            for pod in self._api.storage.all(PODS):
                if pod["spec"].get("nodeName") == change.new["metadata"]["name"]:
                    yield key_of(pod)

    def reconcile(self, key: Key) -> float | None:
        """One step in a pod's life; answers how long until the next."""
        pod = self._api.peek(PODS, key[0], key[1])
        if pod is None:
            return None
        if not pod["spec"].get("nodeName"):
            return self._collect(pod) if pod["metadata"].get("deletionTimestamp") else None
        phase = pod["status"]["phase"]
        if phase in ("Succeeded", "Failed"):
            if pod["metadata"].get("deletionTimestamp"):
                self._api.delete(PODS, *key_of(pod), grace=0)
            return None
        if self._api.peek(NODES, "", pod["spec"]["nodeName"]) is None:
            return self._lose(pod)
        if not is_true(self._api.get(NODES, "", pod["spec"]["nodeName"]), "Ready"):
            return None  # its kubelet is silent; the node's return brings the pods back here
        if pod["metadata"].get("deletionTimestamp"):
            return self._kill(pod)
        if phase == "Pending":
            return self._start(pod)
        waits = [seconds for seconds in (self._get_ready(pod), self._run(pod)) if seconds is not None]
        return min(waits, default=None)

    def _start(self, pod: Object) -> float | None:
        if (left := self._wait("start", pod, jittered(self._pace.start, self._random, self._pace.spread))) > 0:
            return left
        now, ready = self._api.time(), not self._setting(pod, READY_AFTER)
        known = pod["status"].get("conditions") or []
        conditions = with_condition(known, "Ready", ready, "PodReady" if ready else "ContainersNotReady", "", now)
        self._write(pod, {**pod["status"], "phase": "Running", "startTime": now, "conditions": conditions})
        return None

    def _get_ready(self, pod: Object) -> float | None:
        """Once only: a pod that loses its readiness later stays so."""
        key = ("ready", pod["metadata"]["uid"])
        if (seconds := span(self._setting(pod, READY_AFTER))) is None or self._until.get(key) == NEVER:
            return None
        if (left := self._wait("ready", pod, seconds)) > 0:
            return left
        known = pod["status"].get("conditions") or []
        self._until[key] = NEVER
        conditions = with_condition(known, "Ready", True, "PodReady", "", self._api.time())
        self._write(pod, {**pod["status"], "conditions": conditions})
        return None

    def _run(self, pod: Object) -> float | None:
        seconds = span(self._setting(pod, RUN_TIME))
        if seconds is None or pod["spec"].get("restartPolicy") == "Always":
            return None
        started = parse_rfc3339(pod["status"].get("startTime") or self._api.time())
        left = seconds - (self._clock.now() - started).total_seconds()
        if (left := self._wait("end", pod, left)) > 0:
            return left
        self._finish(pod, "Failed" if self._setting(pod, OUTCOME) == "Failed" else "Succeeded")
        return None

    def _kill(self, pod: Object) -> float | None:
        """Ends a deleted pod after its termination time; a finalizer may keep the object longer."""
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        wanted = span(self._setting(pod, TERMINATION_TIME))
        seconds = min(grace, wanted if wanted is not None else self._pace.termination)
        if (left := self._wait("kill", pod, seconds)) > 0:
            return left
        self._finish(pod, "Failed")
        self._api.delete(PODS, *key_of(pod), grace=0)
        return None

    def _lose(self, pod: Object) -> float | None:
        """The node is gone: some time later so are its pods."""
        if (left := self._wait("lose", pod, self._pace.node_loss)) > 0:
            return left
        message = "PodGC: node no longer exists"
        conditions = with_condition(
            pod["status"].get("conditions") or [],
            "DisruptionTarget",
            True,
            "DeletionByPodGC",
            message,
            self._api.time(),
        )
        self._finish({**pod, "status": {**pod["status"], "conditions": conditions}}, "Failed")
        self._api.delete(PODS, *key_of(pod), grace=0)
        return None

    def _collect(self, pod: Object) -> float | None:
        """The pod garbage collector ends pods that are deleted before they were bound, which a finalizer keeps."""
        if (left := self._wait("collect", pod, self._pace.collection)) > 0:
            return left
        self._finish(pod, "Failed")
        self._api.delete(PODS, *key_of(pod), grace=0)
        return None

    def _finish(self, pod: Object, phase: str) -> None:
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        known = pod["status"].get("conditions") or []
        conditions = with_condition(known, "Ready", False, reason, "", self._api.time())
        self._write(pod, {**pod["status"], "phase": phase, "conditions": conditions})

    def _write(self, pod: Object, status: Object) -> None:
        current = self._api.peek(PODS, *key_of(pod))
        if current is not None:
            write_status(self._api, PODS, current, status, "kubelet")

    def _wait(self, what: str, pod: Object, seconds: float) -> float:
        """Seconds that are left of a span that began when it was first asked for."""
        key, now = (what, pod["metadata"]["uid"]), self._clock.monotonic()
        return self._until.setdefault(key, now + seconds) - now

    def _setting(self, pod: Object, name: str) -> str:
        """The annotation of the pod, or of its nearest owner that has it."""
        obj: Object | None = pod
        while obj is not None:
            if found := (obj["metadata"].get("annotations") or {}).get(name):
                return str(found)
            owner = controller_of(obj)
            stored = self._api.storage.by_uid(owner["uid"]) if owner is not None else None
            obj = stored[1] if stored is not None else None
        return ""


def _came_or_went(change: Change) -> bool:
    if change.type is EventType.DELETED or change.old is None:
        return True
    return is_true(change.old, "Ready") is not is_true(change.new, "Ready")


def span(text: str) -> float | None:
    """`1m30s` as 90.0; None for nothing, or for what is no span."""
    parts = _SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def ready_condition(clock: Clock, ready: bool = True) -> Object:
    """The Ready condition of a node."""
    status, reason = ("True", "KubeletReady") if ready else ("Unknown", "NodeStatusUnknown")
    return {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": rfc3339(clock.now())}
