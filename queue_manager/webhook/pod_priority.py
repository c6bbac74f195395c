"""Pods of new Jobs and JobSets get one priority of Kubernetes, so that kube-scheduler preempts none of them for another
(`Settings.podPriority`). A TrainJob's pods get that of its runtime's templates: it has no field for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.kinds.annotations import pod_priority_class


def normalised(obj: Object, wanted: str) -> tuple[list[Object], str]:
    """Operations that give all pod templates the class, and the class that the user had given, "" for none."""
    patch: list[Object] = []
    given = ""
    for path, spec in _pod_specs(obj):
        present = spec.get("priorityClassName") or ""
        if present == wanted:
            continue
        given = given or present
        patch.append({"op": "add", "path": f"{path}/priorityClassName", "value": wanted})
        # They have to be those of the class: the API server fills them in.
        patch += [{"op": "remove", "path": f"{path}/{key}"} for key in ("priority", "preemptionPolicy") if key in spec]
    return patch, given or (pod_priority_class(obj) if not patch else "")


def _pod_specs(obj: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod specs of a Job or JobSet with their JSON Pointers; nothing of what can't be read."""
    spec = _at(obj, "spec")
    if obj.get("kind") == JOBS.kind:
        yield from _template("/spec/template", _at(spec, "template"))
    elif obj.get("kind") == JOB_SETS.kind:
        jobs = spec.get("replicatedJobs")
        for index, job in enumerate(jobs if isinstance(jobs, list) else ()):
            path = f"/spec/replicatedJobs/{index}/template/spec/template"
            yield from _template(path, _at(_at(_at(job, "template"), "spec"), "template"))


def _template(path: str, template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(template.get("spec"), dict):
        yield f"{path}/spec", template["spec"]


def _at(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
