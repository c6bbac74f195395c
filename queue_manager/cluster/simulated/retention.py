"""Takes away what nobody looks at any more, so that a simulation can run for days."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.cluster.cache import controller_of, key_of
from queue_manager.cluster.clock import Clock, parse_rfc3339
from queue_manager.cluster.port import EVENTS, JOB_SETS, JOBS, TRAIN_JOBS, EventType, Object
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.machinery import Key
from queue_manager.cluster.simulated.storage import Change

EVENT_SECONDS = 3600.0
_JOBS = {resource.plural: resource for resource in (TRAIN_JOBS, JOB_SETS, JOBS)}
_ENDS = ("Complete", "Completed", "Failed")


class Retention:
    """Events end after an hour, as on a real API server; finished jobs of users after `finished` seconds, if set."""

    def __init__(self, api: ApiState, clock: Clock, finished: float | None = None) -> None:
        self._api = api
        self._clock = clock
        self.finished = finished

    def keys(self, change: Change) -> Iterable[Key]:
        """New events, and jobs of users that are done."""
        if change.resource == EVENTS and change.type is EventType.ADDED:
            yield (EVENTS.plural, *key_of(change.new))
        elif self.finished is not None and _is_done(change):
            yield (change.resource.plural, *key_of(change.new))

    def reconcile(self, key: Key) -> float | None:
        """Deletes the object, or answers how long it may stay."""
        resource = _JOBS.get(key[0], EVENTS)
        obj = self._api.peek(resource, key[1], key[2])
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        since = obj["metadata"]["creationTimestamp"] if resource == EVENTS else _ended_at(obj)
        keep = EVENT_SECONDS if resource == EVENTS else self.finished
        if not since or keep is None:
            return None
        left = keep - (self._clock.now() - parse_rfc3339(since)).total_seconds()
        if left > 0:
            return left
        self._api.delete(resource, key[1], key[2])
        return None


def _is_done(change: Change) -> bool:
    if change.resource.plural not in _JOBS or change.type is EventType.DELETED:
        return False
    return bool(_ended_at(change.new)) and controller_of(change.new) is None


def _ended_at(obj: Object) -> str:
    """When a job ended; "" while it has not."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] in _ENDS and condition["status"] == "True":
            return str(condition.get("lastTransitionTime") or "")
    return ""
