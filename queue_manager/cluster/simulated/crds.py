"""CustomResourceDefinitions of our own, short writing: the fields that we use, and pruning by them."""

from __future__ import annotations

from typing import Any

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Object,
    Resource,
)

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_BOOLEAN: Schema = {"type": "boolean"}
_ANY: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRINGS: Schema = {"type": "object", "additionalProperties": _STRING}
_METADATA: Schema = {"type": "object", "properties": {"labels": _STRINGS, "annotations": _STRINGS}}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _list(items: Schema, key: str = "") -> Schema:
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"type": "array", "items": items, **keyed}


_NAMED = _object(name=_STRING) | {"x-kubernetes-preserve-unknown-fields": True}
_POD_SPEC_PATCH = _object(
    serviceAccountName=_STRING,
    nodeSelector=_STRINGS,
    affinity=_ANY,
    tolerations=_list(_ANY),
    schedulingGates=_list(_object(name=_STRING), "name"),
    volumes=_list(_NAMED, "name"),
    initContainers=_list(_NAMED, "name"),
    containers=_list(_NAMED, "name"),
    imagePullSecrets=_list(_NAMED, "name"),
    securityContext=_ANY,
    terminationGracePeriodSeconds=_INTEGER,
)
_JOB_PATCH = _object(metadata=_METADATA, spec=_object(template=_object(metadata=_METADATA, spec=_POD_SPEC_PATCH)))
_RUNTIME_PATCH = _object(
    manager=_STRING,
    time=_STRING,
    trainingRuntimeSpec=_object(
        template=_object(
            metadata=_METADATA,
            spec=_object(replicatedJobs=_list(_object(name=_STRING, template=_JOB_PATCH), "name")),
        )
    ),
)
_TRAINER = _object(
    image=_STRING,
    command=_list(_STRING),
    args=_list(_STRING),
    env=_list(_NAMED, "name"),
    numNodes=_INTEGER,
    resourcesPerNode=_ANY,
    numProcPerNode=_ANY,
)
TRAIN_JOB_SPEC = _object(
    runtimeRef=_object(name=_STRING, apiGroup=_STRING, kind=_STRING),
    initializer=_ANY,
    trainer=_TRAINER,
    runtimePatches=_list(_RUNTIME_PATCH, "manager"),
    suspend=_BOOLEAN,
    activeDeadlineSeconds=_INTEGER,
    managedBy=_STRING,
)
_JOBS_STATUS = _list(
    _object(name=_STRING, ready=_INTEGER, succeeded=_INTEGER, failed=_INTEGER, active=_INTEGER, suspended=_INTEGER),
    "name",
)
_TRAIN_JOB = _object(spec=TRAIN_JOB_SPEC, status=_object(conditions=_list(_ANY, "type"), jobsStatus=_JOBS_STATUS))
_RUNTIME = _object(spec=_object(mlPolicy=_ANY, podGroupPolicy=_ANY, template=_ANY))
_JOB_SET = _object(spec=_ANY, status=_ANY)


def definition(resource: Resource, schema: Schema, *, status: bool = True) -> Object:
    """A CustomResourceDefinition that serves one version."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", **schema}},
        "subresources": {"status": {}} if status else {},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def definitions() -> list[Object]:
    """TrainJob with its runtimes (the generation with `runtimePatches`) and JobSet."""
    return [
        definition(TRAIN_JOBS, _TRAIN_JOB),
        definition(TRAINING_RUNTIMES, _RUNTIME, status=False),
        definition(CLUSTER_TRAINING_RUNTIMES, _RUNTIME, status=False),
        definition(JOB_SETS, _JOB_SET),
    ]


def pruned(value: Any, schema: Schema) -> Any:
    """The value without fields that the schema doesn't know; the API server drops them without a word."""
    if isinstance(value, dict):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return value
        known, extra = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            name: pruned(item, known.get(name) or extra or {})
            for name, item in value.items()
            if name in known or extra is not None
        }
    if isinstance(value, list):
        return [pruned(item, schema.get("items", {})) for item in value]
    return value


def pruned_object(obj: Object, schema: Schema) -> Object:
    """A whole object pruned; its type and metadata stay as they are."""
    kept = {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
    rest = {name: value for name, value in obj.items() if name not in kept}
    return {**kept, **pruned(rest, schema)}
