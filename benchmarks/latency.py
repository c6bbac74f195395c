"""How long a TrainJob waits for its start in an idle system."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.report import Report, percentile
from benchmarks.timeline import Seen, Timeline, writers
from benchmarks.world import World, world
from queue_manager.store.records import ENDED
from tests.control_plane.client import JOB, JOB_SET
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, RACK, TOPOLOGY, TRAIN_JOB, Product, queue, train_job, wait_for

SAMPLES = {"full": 120, "small": 5}
VARIANTS: dict[str, Any] = {
    "Trainer v2.0, the real controller (two writes)": True,
    "Trainer v2.3, our stand-in (one write)": "stand-in",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One TrainJob's times in seconds after its creation was asked for."""

    uid: str
    began: float
    wall: float
    created: float
    started: float
    states: tuple[Seen, ...]


def run(size: str, keep: Path | None) -> list[Report]:
    """One report for each generation of Trainer."""
    return [_variant(name, trainer, SAMPLES[size], keep) for name, trainer in VARIANTS.items()]


def _variant(name: str, trainer: Any, count: int, keep: Path | None) -> Report:
    report = Report(f"latency: TrainJob created -> suspend: false, idle system; {name}")
    with world(keep, trainer=trainer) as made, made.product.running() as product:
        samples = _measure(made, product, count)
        decided = {
            line["workload"]: _seconds(line["timestamp"])
            for line in product.log_lines()
            if line.get("event") == "admitted"
        }
    report.times("POST sent -> suspend: false seen", [s.started for s in samples], "p50 <= 150 ms, p99 <= 500 ms")
    report.times("of it: the POST (API server, both webhooks)", [s.created for s in samples])
    report.times(
        "of it: until the controller had decided", [decided[s.uid] - s.wall for s in samples if s.uid in decided]
    )
    report.note(made.floor())
    middle = percentile([s.started for s in samples], 50)
    report.note("the median one: " + _story(next(s for s in samples if s.started == middle)))
    return report


def _measure(made: World, product: Product, count: int) -> list[Sample]:
    made.cluster.create_nodes(gpu_fleet())
    product.configure(TOPOLOGY, FLAVOR, queue("team", 64))
    namespace = made.cluster.new_namespace("bench")
    timeline = Timeline(product.client, TRAIN_JOB, namespace)
    pause = Random(1)
    samples = []
    for number in range(-2, count):
        sample = _one(product, timeline, namespace, f"sample-{number + 2}")
        if number >= 0:  # the first two warm caches and connections up
            samples.append(sample)
        _clean(product, namespace, f"sample-{number + 2}")
        # Not in step with anything periodic.
        time.sleep(0.1 + pause.random() / 10)
    return samples


def _one(product: Product, timeline: Timeline, namespace: str, name: str) -> Sample:
    timeline.forget()
    body = train_job(name, "team", nodes=2, annotations={"queue-manager.io/required-topology": RACK})
    wall, began = time.time(), time.perf_counter()
    stored = product.client.create(body, namespace)
    created = time.perf_counter() - began
    found = timeline.wait(lambda obj: obj["metadata"]["name"] == name and not obj["spec"].get("suspend"))
    uid = stored["metadata"]["uid"]
    states = tuple(seen for seen in timeline.all() if seen.at <= found.at)
    return Sample(uid, began, wall, created, found.at - began, states)


def _clean(product: Product, namespace: str, name: str) -> None:
    """Deletes the job and waits until nothing is left of it, in the cluster and in the store."""
    product.cluster.wait_pods(namespace, 2)
    product.client.delete(TRAIN_JOB, name, namespace)

    def ended() -> bool:
        row = product.row(namespace, name)
        return row is not None and row.state in ENDED

    wait_for(ended, f"{name} ended", 60)
    product.cluster.wait_no_pods(namespace, timeout=60)
    wait_for(lambda: not any(product.client.list(kind, namespace) for kind in (JOB, JOB_SET)), "no children", 60)
    wait_for(lambda: not product.store.pending_outbox(), "an empty outbox", 60)


def _story(sample: Sample) -> str:
    """Every state the API server showed, when, and who had written it."""
    parts, old = [], None
    for seen in sample.states:
        suspended = bool(seen.object["spec"].get("suspend"))
        version = seen.object["metadata"]["resourceVersion"]
        what = f"rv {version} suspend={str(suspended).lower()} by {writers(seen.object, old)}"
        parts.append(f"{1000 * (seen.at - sample.began):.0f} ms {what}")
        old = seen.object
    return "; ".join(parts)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
