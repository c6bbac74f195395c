"""A gang over several racks, each pod pinned to the node of its rank, against the same pods without us."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.timeline import Timeline
from benchmarks.world import World, world
from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, POD, RACK, TOPOLOGY, TRAIN_JOB, job, queue, train_job, wait_for

FLEETS = {"full": (10, 64, 512), "small": (2, 8, 12)}
"""Racks, nodes in each, pods of the gang: one pod of 8 GPUs a node."""
RUNS = 3
PREFERRED = {"queue-manager.io/preferred-topology": RACK}
Object = dict[str, Any]


def run(size: str, keep: Path | None) -> list[Report]:
    """One report for each kind."""
    racks, hosts, pods = FLEETS[size]
    kinds: dict[str, tuple[str, Callable[[str], Object]]] = {
        "Job": (JOB, lambda name: job(name, "team", parallelism=pods, gpus=8, completionMode="Indexed")),
        "TrainJob (Trainer v2.0)": (TRAIN_JOB, lambda name: train_job(name, "team", nodes=pods)),
    }
    reports = []
    with world(keep) as made:
        made.cluster.create_nodes(gpu_fleet(1, racks, hosts), timeout=180)
        alone = {name: [_alone(made, kind, make, pods) for _ in range(RUNS)] for name, (kind, make) in kinds.items()}
        with made.product.running() as product:
            product.configure(TOPOLOGY, FLAVOR, queue("team", 8 * pods))
            wait_for(lambda: "queue_manager_leader 1.0" in product.metrics(), "leads")
            time.sleep(5)
            for name, (kind, make) in kinds.items():
                pinned = [_pinned(made, kind, make, pods) for _ in range(RUNS)]
                reports.append(_report(name, racks * hosts, pods, alone[name], pinned))
    return reports


def _report(name: str, nodes: int, pods: int, alone: list[float], pinned: list[float]) -> Report:
    report = Report(f"pinned: {name} of {pods} pods with 8 GPUs each over the racks of {nodes} nodes")
    report.value("without us: created -> all pods bound", _times(alone))
    report.value("with us: admission -> all pods bound", _times(pinned))
    ratio = statistics.median(pinned) / statistics.median(alone)
    report.value("ratio of the medians", f"{ratio:.2f}", "<= 1.5")
    return report


def _times(seconds: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in sorted(seconds)) + " s"


def _alone(made: World, kind: str, make: Callable[[str], Object], pods: int) -> float:
    """Seconds from the request that creates it until the last pod is bound; nothing of ours runs."""
    namespace = made.cluster.new_namespace("bench")
    obj = make("gang")
    obj["metadata"] = {"name": "gang"}
    bound = Timeline(made.cluster.client, POD, namespace)
    began = time.perf_counter()
    made.cluster.client.create(obj, namespace)
    ended = bound.wait(_all_bound(pods), 300).at
    _delete(made, kind, namespace)
    return ended - began


def _pinned(made: World, kind: str, make: Callable[[str], Object], pods: int) -> float:
    """Seconds from the moment of its admission until the last pod is bound, each where it was planned."""
    namespace = made.cluster.new_namespace("bench")
    obj = make("gang")
    obj["metadata"]["annotations"] = PREFERRED
    bound = Timeline(made.cluster.client, POD, namespace)
    offset = time.time() - time.perf_counter()
    made.cluster.client.create(obj, namespace)
    ended = bound.wait(_all_bound(pods), 300).at
    row = made.product.wait_state(namespace, "gang", State.RUNNING)
    assert row.admission is not None
    [pod_set] = row.admission.admission.pod_sets
    assert pod_set.pinned, "the gang lies in one rack: the figure would be of something else"
    places = [domain.values[-1] for domain in pod_set.domains or () for _ in range(domain.count)]
    found = sorted(pod["spec"]["nodeName"] for pod in made.cluster.pods(namespace))
    assert found == sorted(places), "pods are not where they were planned"
    admitted = row.admission.admitted_at.timestamp() - offset
    _delete(made, kind, namespace)
    made.product.wait_state(namespace, "gang", State.FINISHED, timeout=120)
    return ended - admitted


def _all_bound(pods: int) -> Callable[[Object], bool]:
    names: set[str] = set()

    def check(pod: Object) -> bool:
        if pod["spec"].get("nodeName"):
            names.add(pod["metadata"]["name"])
        return len(names) == pods

    return check


def _delete(made: World, kind: str, namespace: str) -> None:
    made.cluster.client.delete(kind, "gang", namespace, propagation="Background")
    made.cluster.wait_no_pods(namespace, timeout=180)
