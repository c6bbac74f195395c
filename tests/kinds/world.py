"""A lookup over plain objects, JSON Patch as the API server does it, and makers of the objects that tests use."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    TRAIN_JOBS,
    Object,
    PatchType,
    Resource,
)
from queue_manager.kinds.fields import is_controlled_by
from queue_manager.kinds.kind import Done, Kind, Placement, Step, Wait, Write

NAMESPACE = "team"
_serial = itertools.count(1)


class World:
    """Objects by collection; it is the lookup of the kinds and takes their writes."""

    def __init__(
        self, *objects: tuple[Resource, Object], schema: Object | None = None, kueue_keys: bool = False
    ) -> None:
        self.kueue_keys = kueue_keys
        self.objects: dict[tuple[Resource, str, str], Object] = {}
        self.train_job_schema = schema
        self.writes: list[Write] = []
        for resource, obj in objects:
            self.add(resource, obj)

    def add(self, resource: Resource, obj: Object) -> Object:
        metadata = obj.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{next(_serial)}")
        metadata.setdefault("resourceVersion", "1")
        if resource.namespaced:
            metadata.setdefault("namespace", NAMESPACE)
        self.objects[(resource, metadata.get("namespace", ""), metadata["name"])] = obj
        return obj

    def drop(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> None:
        del self.objects[(resource, namespace if resource.namespaced else "", name)]

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self.objects.get((resource, namespace, name))

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        return [obj for (kind, space, _), obj in self.objects.items() if kind == resource and space == namespace]

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        return [obj for (kind, _, _), obj in self.objects.items() if kind == resource and is_controlled_by(obj, uid)]

    def schema(self, resource: Resource) -> Object | None:
        return self.train_job_schema if resource == TRAIN_JOBS else None

    def perform(self, write: Write) -> Object | None:
        """Does one write; a patch with a failing test raises AssertionError."""
        self.writes.append(write)
        key = (write.resource, write.namespace, write.name)
        if write.verb == "delete":
            assert self.objects[key]["metadata"]["uid"] == write.uid
            del self.objects[key]
            return None
        obj = copy.deepcopy(self.objects[key])
        if write.patch_type is PatchType.JSON:
            obj = json_patch(obj, write.body)
        else:
            assert write.patch_type is PatchType.MERGE
            merge_patch(obj, write.body)
        obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
        self.objects[key] = obj
        return obj

    def start(self, kind: Kind, name: str, placement: Placement, *, refused: str = "") -> Step:
        """The next step of a start, not performed."""
        return kind.next_start(self.objects[(kind.resource, NAMESPACE, name)], placement, self, refused=refused)

    def run_start(self, kind: Kind, name: str, placement: Placement, limit: int = 10) -> list[Write]:
        """Performs steps until Done or Wait; the writes."""
        writes = []
        for _ in range(limit):
            step = self.start(kind, name, placement)
            if not isinstance(step, Write):
                assert isinstance(step, Done | Wait)
                return writes
            writes.append(step)
            self.perform(step)
        raise AssertionError(f"the start does not end: {[write.says for write in writes]}")

    def run_stop(self, kind: Kind, name: str, *, drained: bool = True, limit: int = 10) -> list[Write]:
        """The same for a stop."""
        writes = []
        for _ in range(limit):
            obj = self.objects[(kind.resource, NAMESPACE, name)]
            step = kind.next_stop(obj, self, drained=drained)
            if not isinstance(step, Write):
                return writes
            writes.append(step)
            self.perform(step)
        raise AssertionError(f"the stop does not end: {[write.says for write in writes]}")


def json_patch(obj: Object, operations: list[Any]) -> Object:
    """RFC 6902 for the operations we use."""
    result = copy.deepcopy(obj)
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent: Any = result
        for part in parts[:-1]:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        last: Any = parts[-1]
        if isinstance(parent, list):
            last = len(parent) if last == "-" else int(last)
        if operation["op"] == "test":
            found = parent[last] if isinstance(parent, list) else parent.get(last)
            assert found == operation["value"], f"test failed at {operation['path']}: {found!r}"
        elif operation["op"] == "remove":
            del parent[last]
        elif isinstance(parent, list):
            parent.insert(last, copy.deepcopy(operation["value"]))
        else:
            parent[last] = copy.deepcopy(operation["value"])
    return result


def merge_patch(obj: Any, patch: Any) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            obj.pop(key, None)
        elif isinstance(value, dict) and isinstance(obj.get(key), dict):
            merge_patch(obj[key], value)
        else:
            obj[key] = value


def container(name: str, requests: Any = None, limits: Any = None, **more: Any) -> Any:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": name, "image": f"example.org/{name}:1", **({"resources": resources} if resources else {}), **more}


def pod_template(*containers: Any, metadata: Any = None, **spec: Any) -> Any:
    return {**({"metadata": metadata} if metadata else {}), "spec": {"containers": list(containers), **spec}}


def replicated_job(
    name: str,
    template: Any,
    *,
    ancestor: str = "",
    depends_on: Sequence[tuple[str, str]] = (),
    replicas: int | None = None,
    **job: Any,
) -> Any:
    found: Any = {"name": name, "template": {"spec": {"template": template, **job}}}
    if ancestor:
        found["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": ancestor}}
    if depends_on:
        found["dependsOn"] = [{"name": on, "status": status} for on, status in depends_on]
    if replicas is not None:
        found["replicas"] = replicas
    return found


def runtime(name: str, *jobs: Any, policy: Any = None, metadata: Any = None, **spec: Any) -> tuple[Resource, Object]:
    """A ClusterTrainingRuntime; `policy` is its mlPolicy."""
    return CLUSTER_TRAINING_RUNTIMES, {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "generation": 1, **(metadata or {})},
        "spec": {
            **({"mlPolicy": policy} if policy is not None else {}),
            "template": {"spec": {"replicatedJobs": list(jobs), **spec.pop("job_set", {})}},
            **spec,
        },
    }


def train_job(runtime_name: str, *, name: str = "job", metadata: Any = None, **spec: Any) -> tuple[Resource, Object]:
    """A suspended TrainJob."""
    return TRAIN_JOBS, {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE, **(metadata or {})},
        "spec": {"runtimeRef": {"name": runtime_name}, "suspend": True, **spec},
    }


def job_set(*jobs: Any, name: str = "set", metadata: Any = None, **spec: Any) -> tuple[Resource, Object]:
    """A suspended JobSet."""
    return JOB_SETS, {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, **(metadata or {})},
        "spec": {"suspend": True, "replicatedJobs": list(jobs), **spec},
    }


def job(template: Any, *, name: str = "job", metadata: Any = None, status: Any = None, **spec: Any) -> Any:
    """A suspended Job."""
    return JOBS, {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, **(metadata or {})},
        "spec": {"suspend": True, "template": template, **spec},
        **({"status": status} if status else {}),
    }


def owned(obj: Object, owner: Object) -> Object:
    """The object with `owner` as its controller."""
    obj["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    return obj


def schema(version: str) -> Object:
    """The part of a TrainJob CRD's schema that tells its generation."""
    anything = {"type": "object"}
    pod = {"properties": {"containers": anything, "nodeSelector": anything, "tolerations": anything}}
    if version == "v2.3":
        pod["properties"]["terminationGracePeriodSeconds"] = {"type": "integer"}
    patch = {"properties": {"spec": {"properties": {"template": {"properties": {"spec": pod}}}}}}
    jobs = {"items": {"properties": {"name": {"type": "string"}, "template": patch}}}
    template = {"properties": {"spec": {"properties": {"replicatedJobs": jobs}}}}
    keyed = {
        "items": {"properties": {"manager": anything, "trainingRuntimeSpec": {"properties": {"template": template}}}}
    }
    field = {
        "v2.0": {"podSpecOverrides": anything},
        "v2.1": {"podTemplateOverrides": anything},
        "v2.2": {"runtimePatches": keyed},
        "v2.3": {"runtimePatches": keyed},
    }[version]
    return {"properties": {"spec": {"properties": {"runtimeRef": anything, "suspend": anything, **field}}}}


VERSIONS = ("v2.0", "v2.1", "v2.2", "v2.3")
