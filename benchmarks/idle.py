"""What the controller uses while nothing happens, with many nodes and finished Jobs in its caches."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import Meter, highest_resident, use_of
from benchmarks.report import Report
from benchmarks.world import BARE, World, create_all, world
from tests.control_plane.client import JOB, NODE
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, TOPOLOGY, Object, job, queue

SIZES = {"full": ((10, 25, 20), 5000, 60.0), "small": ((2, 5, 10), 100, 5.0)}
"""Blocks, racks in each, nodes in each; finished Jobs; seconds of measuring."""

KUBELET_REPORT = 300.0
"""A kubelet writes its node's status this often when nothing changed (nodeStatusReportFrequency), in seconds."""


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: first with nothing at all happening, then with the kubelets' reports."""
    fleet, jobs, seconds = SIZES[size]
    nodes = fleet[0] * fleet[1] * fleet[2]
    report = Report(f"idle: {nodes} nodes and {jobs} finished Jobs watched, {seconds:.0f} s each")
    names: list[str] = []

    def fill(cluster: ControlPlane) -> None:
        names.extend(node["metadata"]["name"] for node in create_all(cluster, gpu_fleet(*fleet)))
        _finished_jobs(cluster, jobs)

    with world(keep, fill, **BARE) as made:
        began = time.perf_counter()
        with made.product.running() as product:
            report.value("start until ready", f"{time.perf_counter() - began:.1f} s")
            product.configure(TOPOLOGY, FLAVOR, queue("team", 8 * nodes))
            time.sleep(min(30.0, seconds))
            _measure(report, made, "nothing happens", seconds, "<= 2 %")
            controller = made.processes()["our controller"][0]
            now, most = use_of([controller]).resident / 2**20, highest_resident(controller) / 2**20
            report.value("controller, memory (most ever)", f"{now:.0f} MiB ({most:.0f} MiB)", "<= 300 MB")
            webhook = use_of(made.processes()["our webhook"]).resident / 2**20
            report.value("webhook, memory", f"{webhook:.0f} MiB")
            rate = nodes / KUBELET_REPORT
            with _Kubelets(made, names, rate):
                _measure(report, made, f"kubelets report, {rate:.1f} a second", seconds)
    return [report]


def _measure(report: Report, made: World, what: str, seconds: float, wanted: str = "") -> None:
    parts = made.processes()
    meter = Meter({name: parts[name] for name in ("our controller", "our webhook", "postgres")})
    time.sleep(seconds)
    passed, spent = meter.read()
    controller = 100 * spent["our controller"] / passed
    others = ", ".join(
        f"{name} {100 * used / passed:.2f} %" for name, used in spent.items() if name != "our controller"
    )
    report.value(f"{what}: controller", f"{controller:.2f} % of a core ({others})", wanted)


def _finished_jobs(cluster: ControlPlane, count: int) -> None:
    """Managed Jobs with the status that the Job controller leaves behind."""
    namespace = cluster.new_namespace("bench")
    create_all(cluster, (job(f"done-{number:05}", "team") for number in range(count)), namespace)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"status": "True", "reason": "CompletionsReached", "lastProbeTime": now, "lastTransitionTime": now}
    status = {
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "conditions": [{"type": kind, **condition} for kind in ("SuccessCriteriaMet", "Complete")],
    }
    client = cluster.client
    for number in range(count):
        client.patch(JOB, f"done-{number:05}", {"status": status}, namespace, subresource="status")


class _Kubelets:
    """Writes node statuses in which nothing but the heartbeat differs, as kubelets do."""

    def __init__(self, made: World, names: list[str], rate: float) -> None:
        self._client, self._names, self._rate = made.cluster.client, names, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(1 / self._rate):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition: Object = {"type": "Ready", "lastHeartbeatTime": now}
            patch = {"status": {"conditions": [condition]}}
            self._client.patch(
                NODE, self._names[number % len(self._names)], patch, form="strategic", subresource="status"
            )
            number += 1
