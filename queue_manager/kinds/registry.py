"""All job kinds, and who looks after a job that another job made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from queue_manager.cluster.port import Object, Resource
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.annotation_faults import Finding, Severity
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.fields import controller_of
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import QUEUE_LABEL, Kind, Lookup, Unresolvable
from queue_manager.kinds.plain_pods import LONE_PODS, PLAIN_GROUPS, PlainPods
from queue_manager.kinds.trainjob import TrainJobKind

JOB_KINDS: tuple[Kind, ...] = (TrainJobKind(), JobSetKind(), JobKind())
"""Every kind of job, owners before what they own."""

KINDS: tuple[Kind, ...] = (*JOB_KINDS, PlainPods(PLAIN_GROUPS), PlainPods(LONE_PODS))
"""Every kind of workload."""

BY_RESOURCE: Mapping[Resource, Kind] = {kind.resource: kind for kind in KINDS}


def kind_of(obj: Object) -> Kind | None:
    """The kind of an object by its group and kind, in whatever version; None for others."""
    return _kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))


def _kind(api_version: str, name: str) -> Kind | None:
    group = api_version.rpartition("/")[0]
    return next((kind for kind in KINDS if (kind.resource.group, kind.resource.kind) == (group, name)), None)


def has_queue(obj: Object) -> bool:
    """Whether the object names a queue itself."""
    return bool(((obj.get("metadata") or {}).get("labels") or {}).get(QUEUE_LABEL))


def managed_ancestor(obj: Object, lookup: Lookup, managed: Callable[[Object], bool] = has_queue) -> Object | None:
    """The nearest job in the controller-owner chain that is managed: then this one is left alone (D10).

    `managed` decides for one object (its label, or its namespace). An owner of our kinds that the caches don't show, or
    show with another uid, counts as managed: it is seen soon or gone soon, and a child suspended on its own would hang
    (kueue#2612). It comes back as its name and uid alone.
    """
    current, seen = obj, set()
    while (owner := controller_of(current)) is not None:
        kind = _kind(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
        uid = owner.get("uid")
        if kind is None or uid in seen:
            return None
        seen.add(uid)
        namespace = (obj.get("metadata") or {}).get("namespace", "")
        found = lookup.get(kind.resource, namespace, str(owner.get("name", "")))
        if found is None or found["metadata"].get("uid") != uid:
            metadata = {"name": owner.get("name"), "namespace": namespace, "uid": uid}
            return {"apiVersion": owner.get("apiVersion"), "kind": owner.get("kind"), "metadata": metadata}
        if managed(found):
            return found
        current = found
    return None


def validate(obj: Object, lookup: Lookup) -> list[Finding]:
    """What is wrong with a job: its labels and annotations (errors to refuse it for), and why its pod sets can't be
    told yet (a warning: a runtime may come later). Never raises."""
    findings = kueue_keys.validate(obj, lookup)
    kind = kind_of(obj)
    if kind is None or any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    try:
        resolved = kind.resolve(obj, lookup)
    except Unresolvable as error:
        return [*findings, Finding(error.field, error.message, Severity.WARNING)]
    return [*findings, *(Finding("", message, Severity.WARNING) for message in resolved.messages)]
