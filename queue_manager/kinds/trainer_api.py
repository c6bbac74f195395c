"""The generations of the TrainJob API and how each one's controller behaves.

Read from the sources of kubeflow/trainer v2.0.0, v2.1.0, v2.2.0, v2.2.1 and v2.3.0 (reference/workloads.md, section 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queue_manager.cluster.port import TRAIN_JOBS
from queue_manager.kinds.kind import Lookup, Unresolvable

CRD = "CustomResourceDefinition/trainjobs.trainer.kubeflow.org"


@dataclass(frozen=True, slots=True)
class Generation:
    """What a Trainer version does.

    `field`: list of the TrainJob spec that takes patches. `keyed`: its entries are known by a manager.
    `merges_resources`: `resourcesPerNode` is laid over the container's resources key by key, else it replaces them.
    `launcher_node_resources`: with `runLauncherAsNode` the job `node` gets `resourcesPerNode` too.
    `shares_count`: every trainer-labelled job gets the count of the first one.
    `snapshots`: the runtime is kept in a ConfigMap from the first reconcile on.
    `one_target`: a replicated job may be the target of one list entry only.
    `one_write`: patches may change in the same write that unsuspends (v2.2.0 refuses it, then two are made).
    """

    name: str
    field: str
    keyed: bool = False
    pod_metadata: bool = True
    merges_resources: bool = False
    launcher_node_resources: bool = True
    shares_count: bool = False
    snapshots: bool = False
    one_target: bool = False
    one_write: bool = False


V2_0 = Generation(
    "v2.0",
    "podSpecOverrides",
    pod_metadata=False,
    launcher_node_resources=False,
    shares_count=True,
    one_target=True,
)
V2_1 = Generation("v2.1", "podTemplateOverrides")
V2_2 = Generation("v2.2", "runtimePatches", keyed=True, one_write=True)
V2_3 = Generation("v2.3", "runtimePatches", keyed=True, merges_resources=True, snapshots=True, one_write=True)


def generation(lookup: Lookup) -> Generation:
    """The generation that the CRD's schema shows. Raises Unresolvable where it can't be told: a field that the API
    server does not know is dropped silently, and pods would start unplaced (kueue#11931)."""
    schema = lookup.schema(TRAIN_JOBS)
    spec = _properties(schema or {}, "spec")
    if "runtimePatches" in spec:
        return V2_2 if _is_v2_2(spec["runtimePatches"]) else V2_3
    for known in (V2_1, V2_0):
        if known.field in spec:
            return known
    what = "is not there" if schema is None else "has none of runtimePatches, podTemplateOverrides, podSpecOverrides"
    raise Unresolvable("TrainJobApiUnknown", f"{CRD}: spec", f"{CRD} {what}; the TrainJob can't be placed")


def _is_v2_2(patches: Mapping[str, Any]) -> bool:
    """v2.2 and v2.3 share the field; a pod patch has `terminationGracePeriodSeconds` from v2.3 on."""
    fields = _properties(patches.get("items") or {}, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
    pod = _properties(fields.get("template") or {}, "spec", "template", "spec") if fields else {}
    return "containers" in pod and "terminationGracePeriodSeconds" not in pod


def _properties(schema: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The properties below a path of a schema; lists are stepped into. {} where the schema does not say."""
    found: Any = schema
    for key in path:
        found = (found.get("properties") or {}).get(key) or {}
        found = found.get("items") or found
    return found.get("properties") or {}
