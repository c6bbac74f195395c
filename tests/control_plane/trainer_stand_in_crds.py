"""CRDs of the stand-in for Trainer: written by us, with the fields that a queue manager reads or writes.

Names, list keys, defaults and immutability rules are those of the real API; whatever isn't listed is dropped by the
API server, as there. Environments, volumes, affinities and security contexts are not described in depth.
"""

from __future__ import annotations

from typing import Literal

from tests.control_plane.client import Object, Objects

Generation = Literal["v2.1", "v2.3", "v2.4"]

GROUP = "trainer.kubeflow.org"
IMMUTABLE = [{"rule": "self == oldSelf", "message": "field is immutable"}]
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def crds(generation: str) -> Objects:
    """TrainJob (with the patch field of the generation), TrainingRuntime and ClusterTrainingRuntime."""
    runtime = _object({"spec": _open(scheduling=_scheduling()) if generation == "v2.4" else _open()})
    if generation == "v2.4":
        runtime["properties"]["spec"].pop("required")
    return [
        _crd("TrainJob", "trainjobs", "Namespaced", _train_job(generation), status=True),
        _crd("TrainingRuntime", "trainingruntimes", "Namespaced", runtime),
        _crd("ClusterTrainingRuntime", "clustertrainingruntimes", "Cluster", runtime),
    ]


def _train_job(generation: str) -> Object:
    spec = {
        "runtimeRef": _object(
            {
                "name": _string(minLength=1, maxLength=253),
                "apiGroup": _string(default=GROUP, maxLength=253),
                "kind": _string(default="ClusterTrainingRuntime", maxLength=253),
            },
            required=["name"],
            **_immutable(),
        ),
        "initializer": _object({"dataset": _initializer(), "model": _initializer()}, **_immutable()),
        "trainer": _object(
            {
                "image": _string(maxLength=500),
                "command": _list(_string(maxLength=1048576), 128),
                "args": _list(_string(maxLength=1048576), 128),
                "env": _environment(),
                "numNodes": _integer(minimum=0),
                "numProcPerNode": _integer(minimum=1),
                "resourcesPerNode": _object({"requests": _quantities(), "limits": _quantities()}),
            },
            # From v2.4 on numNodes may change, but not that of a gang: the webhook sees to that.
            **({} if generation == "v2.4" else _immutable()),
        ),
        "suspend": {"type": "boolean", "default": False},
        "activeDeadlineSeconds": _integer(minimum=1, **_immutable()),
        "managedBy": _string(
            default=CONTROLLER,
            maxLength=253,
            **{
                "x-kubernetes-validations": [
                    {
                        "rule": f"self in ['{CONTROLLER}', '{MULTIKUEUE}']",
                        "message": f"ManagedBy must be {CONTROLLER} or {MULTIKUEUE} if set",
                    },
                    *IMMUTABLE,
                ]
            },
        ),
    }
    if generation == "v2.1":
        spec["podTemplateOverrides"] = _pod_template_overrides()
    else:
        spec["runtimePatches"] = _runtime_patches()
    return {
        **_object(
            {
                "spec": _object(spec, required=["runtimeRef"]),
                "status": _object({"conditions": _conditions(), "jobsStatus": _jobs_status()}, minProperties=1),
            }
        ),
        "x-kubernetes-validations": [
            {
                "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "message": "metadata.name must match RFC 1035 DNS label format",
            },
            {
                "rule": "size(self.metadata.name) <= 63",
                "message": "metadata.name must be no more than 63 characters",
            },
        ],
    }


def _scheduling() -> Object:
    """``spec.scheduling`` of a runtime (v2.4, KEP-3015)."""
    empty = _object({})
    claim = {name: _string() for name in ("name", "resourceClaimName", "resourceClaimTemplateName")}
    level = {
        "schedulingPolicy": _object({"basic": empty, "gang": _object({"minCount": _integer()})}),
        "schedulingConstraints": _object({"topology": _list(_object({"key": _string()}), 1)}),
        "disruptionMode": _object({"single": empty, "all": empty}),
    }
    job = _object({**level, "resourceClaims": _list(_object(claim), 4)})
    targets = _list(_string(maxLength=253), 8)
    # What the real rules refuse is let through where a test wants to see what we say of it.
    return _object(
        {**level, "replicatedJobs": _list(_object({**level, "targetReplicatedJobs": targets, "job": job}), 16)}
    )


def _runtime_patches() -> Object:
    """``spec.runtimePatches`` (v2.2 and later): a map keyed by manager."""
    pod_spec = _object(
        {
            "nodeSelector": _strings(),
            "affinity": _open(),
            "tolerations": _list(_toleration(), 128),
            "schedulingGates": _keyed(_object({"name": _string()}, required=["name"]), 16),
            "serviceAccountName": _string(maxLength=253, **_immutable()),
            "volumes": _keyed(_open(name=_string(maxLength=253)), 128),
            "initContainers": _keyed(_container(), 64),
            "containers": _keyed(_container(), 64),
            "imagePullSecrets": _keyed(_object({"name": _string(maxLength=253)}, required=["name"]), 64),
            "securityContext": _open(),
            "terminationGracePeriodSeconds": _integer(minimum=0, **_immutable()),
        }
    )
    pod_template = _object({"metadata": _metadata(), "spec": pod_spec})
    job_template = _object({"metadata": _metadata(), "spec": _object({"template": pod_template})})
    replicated_job = _object({"name": _string(minLength=1, maxLength=253), "template": job_template}, required=["name"])
    job_set_template = _object(
        {"metadata": _metadata(), "spec": _object({"replicatedJobs": _keyed(replicated_job, 100)})}
    )
    patch = _object(
        {
            "manager": _string(minLength=1, maxLength=253, **_immutable()),
            "time": _string(format="date-time"),
            "trainingRuntimeSpec": _object({"template": job_set_template}),
        },
        required=["manager"],
    )
    return _keyed(patch, 16, key="manager")


def _pod_template_overrides() -> Object:
    """``spec.podTemplateOverrides`` (v2.1): a list without keys."""
    pod_spec = _object(
        {
            "nodeSelector": _strings(),
            "affinity": _open(),
            "tolerations": _list(_toleration(), 128),
            "schedulingGates": _keyed(_object({"name": _string()}, required=["name"]), 16),
            "serviceAccountName": _string(maxLength=253),
            "volumes": _keyed(_open(name=_string(maxLength=253)), 128),
            "initContainers": _keyed(_container(), 64),
            "containers": _keyed(_container(), 64),
            "imagePullSecrets": _keyed(_object({"name": _string(maxLength=253)}, required=["name"]), 64),
        }
    )
    target = _object({"name": _string(minLength=1)}, required=["name"])
    override = _object(
        {"targetJobs": _list(target, 100), "metadata": _metadata(), "spec": pod_spec}, required=["targetJobs"]
    )
    return _list(override, 100)


def _conditions() -> Object:
    condition = _object(
        {
            "type": _string(maxLength=316),
            "status": _string(enum=["True", "False", "Unknown"]),
            "reason": _string(minLength=1, maxLength=1024),
            "message": _string(maxLength=32768),
            "lastTransitionTime": _string(format="date-time"),
            "observedGeneration": _integer(minimum=0),
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    )
    return _keyed(condition, 8, key="type")


def _jobs_status() -> Object:
    counts = {name: _integer(minimum=0) for name in ("ready", "succeeded", "failed", "active", "suspended")}
    return _keyed(_object({"name": _string(minLength=1), **counts}, required=["name", *counts]), 100)


def _initializer() -> Object:
    return _object(
        {
            "storageUri": _string(maxLength=2048),
            "env": _environment(),
            "secretRef": _object({"name": _string(maxLength=253)}),
        }
    )


def _container() -> Object:
    return _object(
        {
            "name": _string(minLength=1, maxLength=253),
            "env": _environment(),
            "volumeMounts": _list(_open(), 128),
            "securityContext": _open(),
        },
        required=["name"],
    )


def _environment() -> Object:
    return _keyed(_object({"name": _string(maxLength=253), "value": _string(), "valueFrom": _open()}, ["name"]), 128)


def _toleration() -> Object:
    texts = {name: _string() for name in ("key", "operator", "value", "effect")}
    return _object({**texts, "tolerationSeconds": _integer()})


def _metadata() -> Object:
    return _object(
        {
            "labels": _strings(),
            "annotations": _strings(),
            "finalizers": {"type": "array", "items": _string()},
            "name": _string(),
            "namespace": _string(),
        }
    )


def _quantities() -> Object:
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return {"type": "object", "additionalProperties": quantity}


def _object(properties: Object, required: list[str] | None = None, **more: object) -> Object:
    return {"type": "object", "properties": properties, **({"required": required} if required else {}), **more}


def _open(**properties: Object) -> Object:
    """An object of which only the given properties are described; the rest is kept as it is."""
    described: Object = {"properties": properties, "required": list(properties)} if properties else {}
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **described}


def _keyed(items: Object, maximum: int, *, key: str = "name") -> Object:
    return {
        **_list(items, maximum),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }


def _list(items: Object, maximum: int) -> Object:
    return {"type": "array", "items": items, "maxItems": maximum, "x-kubernetes-list-type": "atomic"}


def _strings() -> Object:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _string(**more: object) -> Object:
    return {"type": "string", **more}


def _integer(**more: object) -> Object:
    return {"type": "integer", "format": "int64", **more}


def _immutable() -> Object:
    return {"x-kubernetes-validations": IMMUTABLE}


def _crd(kind: str, plural: str, scope: str, schema: Object, *, status: bool = False) -> Object:
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                **schema,
                "properties": {
                    "apiVersion": _string(),
                    "kind": _string(),
                    "metadata": {"type": "object"},
                    **schema["properties"],
                },
            }
        },
        **({"subresources": {"status": {}}} if status else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [version],
        },
    }
