"""Native objects for scenarios, in as few words as a test needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from queue_manager.simulate.outcome import Outcome, outcome
from queue_manager.simulate.run import Simulation
from queue_manager.simulate.scenario import read_scenario
from queue_manager.simulate.semantics import Semantics

KUEUE = "kueue.x-k8s.io/v1beta2"
Object = dict[str, Any]


def flavor(name: str = "default", **spec: Any) -> Object:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def groups(quota: dict[str, dict[str, Any]]) -> list[Object]:
    """`{"default": {"cpu": 4}}`; an amount may be a dict with limits."""

    def cell(resource: str, amount: Any) -> Object:
        return {"name": resource, **(amount if isinstance(amount, dict) else {"nominalQuota": amount})}

    return [
        {
            "coveredResources": list(next(iter(quota.values()))),
            "flavors": [{"name": f, "resources": [cell(r, a) for r, a in cells.items()]} for f, cells in quota.items()],
        }
    ]


def queue(name: str, quota: dict[str, dict[str, Any]] | None = None, **spec: Any) -> Object:
    whole = {"namespaceSelector": {}, "resourceGroups": groups(quota or {"default": {"cpu": 4}}), **spec}
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": whole}


def local_queue(name: str, target: str = "", namespace: str = "default", **spec: Any) -> Object:
    whole = {"clusterQueue": target or name, **spec}
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": whole,
    }


def pod_set(name: str = "main", count: int = 1, requests: dict[str, Any] | None = None, **more: Any) -> Object:
    spec = {"containers": [{"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}]}
    return {"name": name, "count": count, "template": {"spec": {**spec, **more.pop("pod", {})}}, **more}


def at(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def workload(name: str, queue: str = "q", *, cpu: int = 1, created: int = 0, **more: Any) -> Object:
    metadata = {"name": name, "namespace": more.pop("namespace", "default"), "creationTimestamp": at(created)}
    status = more.pop("status", None)
    pod_sets = more.pop("podSets", None) or [pod_set(requests={"cpu": str(cpu)})]
    found = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {**metadata, "uid": name, **more.pop("metadata", {})},
        "spec": {"queueName": queue, "podSets": pod_sets, "priority": 0, **more},
    }
    return found if status is None else {**found, "status": status}


def condition(kind: str, status: str = "True", seconds: int = 0, reason: str = "Test") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at(seconds)}


def admitted(queue: str = "q", *, cpu: int = 1, seconds: int = 0, flavor: str = "default", **assignment: Any) -> Object:
    """The status of a workload that runs."""
    whole = {"name": "main", "count": 1, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": str(cpu)}, **assignment}
    return {
        "admission": {"clusterQueue": queue, "podSetAssignments": [whole]},
        "conditions": [condition("QuotaReserved", seconds=seconds), condition("Admitted", seconds=seconds)],
    }


def node(name: str, labels: dict[str, str] | None = None, **allocatable: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "allocatable": {"cpu": "8", "pods": "110", **{k: str(v) for k, v in allocatable.items()}},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def scenario(*objects: Object, **more: Any) -> Object:
    return {"name": "s", "description": "d", "fairSharing": False, "objects": list(objects), **more}


def write(path: Path, *objects: Object, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(scenario(*objects, **more)))
    return path


def play(*objects: Object, semantics: Semantics = Semantics.OWN, **more: Any) -> Outcome:
    return outcome(Simulation(read_scenario(scenario(*objects, **more), semantics)).run())


def ran(found: Outcome) -> list[str]:
    """Names of the admitted."""
    return sorted(name.split("/")[1] for name in found["admitted"])


def reasons(found: Outcome) -> dict[str, str]:
    """Reason by name of who waits."""
    return {name.split("/")[1]: why["reason"] for name, why in found["pending"].items()}
