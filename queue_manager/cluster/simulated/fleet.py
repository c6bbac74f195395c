"""The demo fleet, and three teams that submit TrainJobs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from queue_manager.cluster.port import CLUSTER_TRAINING_RUNTIMES, NAMESPACES, Object
from queue_manager.cluster.simulated.cluster import SimulatedCluster
from queue_manager.cluster.simulated.kubelet import RUN_TIME
from queue_manager.cluster.simulated.runtimes import all_runtimes
from queue_manager.engine.configuration import HOSTNAME

BLOCK_LABEL = "topology.queue-manager.io/block"
RACK_LABEL = "topology.queue-manager.io/rack"
GPU = "nvidia.com/gpu"
GPU_MODEL_LABEL = "nvidia.com/gpu.product"
TEAMS = ("research", "vision", "language")
"""Namespaces of the demo; each team's queue has its name."""

_PREFIX = "queue-manager.io/"
_SIZES = (1, 1, 1, 2, 2, 4, 4, 8)


def demo_nodes(blocks: int = 2, racks: int = 4, nodes: int = 8, gpus: int = 8) -> list[Object]:
    """Blocks of racks of equal GPU nodes."""
    return [
        gpu_node(f"b{block}-r{rack}-n{number}", f"block-{block}", f"block-{block}-rack-{rack}", gpus)
        for block in range(1, blocks + 1)
        for rack in range(1, racks + 1)
        for number in range(1, nodes + 1)
    ]


def gpu_node(name: str, block: str, rack: str, gpus: int = 8) -> Object:
    """One node of the fleet."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    labels = {BLOCK_LABEL: block, RACK_LABEL: rack, HOSTNAME: name, GPU_MODEL_LABEL: "H100"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def install(
    cluster: SimulatedCluster, nodes: list[Object] | None = None, *, keep_finished: float | None = 600.0
) -> None:
    """Puts the demo's nodes, runtimes and namespaces into an empty simulated cluster.

    Jobs are deleted `keep_finished` seconds after their end, or the demo would grow for ever.
    """
    cluster.retention.finished = keep_finished
    for node in demo_nodes() if nodes is None else nodes:
        cluster.add_node(node)
    for runtime in all_runtimes():
        cluster.state.create(CLUSTER_TRAINING_RUNTIMES, "", runtime, manager="kubectl")
    for team in TEAMS:
        labels = {f"{_PREFIX}managed": "true"}
        cluster.state.create(NAMESPACES, "", {"metadata": {"name": team, "labels": labels}}, manager="kubectl")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A TrainJob and how many seconds after the start it is submitted."""

    after: float
    namespace: str
    user: str
    job: Object


def train_job(
    name: str,
    *,
    queue: str,
    nodes: int,
    seconds: int,
    runtime: str = "torch-distributed",
    priority: str = "",
    gpus: int = 8,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A TrainJob whose pods run for `seconds` once they are ready."""
    labels = {f"{_PREFIX}queue": queue, **({f"{_PREFIX}priority-class": priority} if priority else {})}
    resources = {"requests": {"cpu": str(gpus * 10), "memory": f"{gpus * 100}Gi"}, "limits": {GPU: str(gpus)}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": labels, "annotations": {RUN_TIME: f"{seconds}s", **(annotations or {})}},
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {"numNodes": nodes, "resourcesPerNode": resources},
        },
    }


def demo_jobs(random: Random) -> Iterator[Arrival]:
    """Jobs without end. The first minute is written down, so that everything can be seen in it; then chance rules."""
    yield from _overture()
    after, number = 60.0, 0
    while True:
        after += random.expovariate(1 / 4.0)
        number += 1
        yield _chance(random, after, number)


def _overture() -> list[Arrival]:
    """Language fills the fleet, also with what it borrows; the owners come and take theirs back."""
    rack, block = {f"{_PREFIX}required-topology": RACK_LABEL}, {f"{_PREFIX}required-topology": BLOCK_LABEL}

    def arrival(
        after: float,
        team: str,
        name: str,
        nodes: int,
        seconds: int,
        priority: str = "",
        topology: Mapping[str, str] | None = None,
        runtime: str = "torch-distributed",
    ) -> Arrival:
        job = train_job(
            name,
            queue=team,
            nodes=nodes,
            seconds=seconds,
            priority=priority,
            annotations=topology,
            runtime=runtime,
        )
        return Arrival(after, team, f"{team}-1", job)

    pretraining = [arrival(1 + n, "language", f"pretrain-{n}", 8, 90, "low", rack) for n in range(1, 7)]
    return [
        arrival(0, "research", "ablation-1", 4, 40, "", rack),
        arrival(1, "vision", "segmentation-1", 8, 50, "", rack),
        *pretraining,
        arrival(9, "vision", "finetune-1", 2, 30, "", rack, "torchtune"),
        arrival(12, "language", "evaluate-1", 1, 20, "high"),
        arrival(15, "research", "sweep-1", 2, 30),
        arrival(18, "research", "release-1", 8, 45, "high", block),
        arrival(24, "vision", "detector-1", 8, 40, "", rack),
        arrival(30, "research", "deepspeed-1", 4, 30, "", rack, "deepspeed-distributed"),
        arrival(36, "vision", "hotfix-1", 8, 30, "high", rack),
        arrival(44, "language", "align-1", 4, 30, "", block),
        arrival(52, "research", "sweep-2", 1, 20),
    ]


def _chance(random: Random, after: float, number: int) -> Arrival:
    team = random.choice(TEAMS)
    nodes = random.choice(_SIZES)
    topology: dict[str, str] = {}
    if nodes > 1:
        level = random.choice((RACK_LABEL, RACK_LABEL, BLOCK_LABEL, ""))
        topology = {f"{_PREFIX}required-topology": level} if level else {}
    job = train_job(
        f"{random.choice(('train', 'tune', 'sweep', 'eval'))}-{number}",
        queue=team,
        nodes=nodes,
        seconds=random.randrange(15, 75, 5),
        runtime=random.choice(("torch-distributed", "torch-distributed", "torchtune", "deepspeed-distributed")),
        priority=random.choice(("low", "", "", "", "high")),
        annotations=topology,
    )
    return Arrival(after, team, f"{team}-{random.randrange(1, 4)}", job)
