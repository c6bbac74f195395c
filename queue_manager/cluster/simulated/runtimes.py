"""Training runtimes like the ones that Trainer ships, in our own writing: the shapes count, the images don't run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queue_manager.cluster.port import Object

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def container(name: str, image: str, resources: Mapping[str, Any] | None = None) -> Object:
    """A container that asks for nothing unless told."""
    return {"name": name, "image": image, **({"resources": dict(resources)} if resources else {})}


def replicated_job(
    name: str,
    containers: list[Object],
    *,
    step: str = "",
    depends_on: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    job: Mapping[str, Any] | None = None,
) -> Object:
    """One replicated job of a runtime; `depends_on` maps names to Ready or Complete."""
    made: Object = {"name": name}
    if depends_on:
        made["dependsOn"] = [{"name": other, "status": status} for other, status in depends_on.items()]
    pod: Object = {"spec": {"containers": containers}}
    if annotations:
        pod["metadata"] = {"annotations": dict(annotations)}
    made["template"] = {"spec": {**(job or {}), "template": pod}}
    if step:
        made["template"]["metadata"] = {"labels": {STEP: step}}
    return made


def runtime(name: str, policy: Object, jobs: list[Object], **job_set: Any) -> Object:
    """A ClusterTrainingRuntime (or TrainingRuntime) of the given jobs; `job_set` are further fields of the JobSet."""
    spec = {"mlPolicy": policy, "template": {"spec": {**job_set, "replicatedJobs": jobs}}}
    return {"metadata": {"name": name}, "spec": spec}


def torch_distributed(name: str = "torch-distributed") -> Object:
    """One job of equal nodes."""
    jobs = [replicated_job("node", [container("node", "example.com/torch")], step="trainer")]
    return runtime(name, {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}, jobs)


def deepspeed_distributed(name: str = "deepspeed-distributed", *, dependent: bool = False) -> Object:
    """MPI: a launcher that is a node too, and nodes that run until the launcher is done.

    `dependent`: the launcher starts when the nodes are ready, as newer releases have it.
    """
    policy = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI", "numProcPerNode": 8, "runLauncherAsNode": True}}
    launcher = replicated_job(
        "launcher",
        [container("node", "example.com/deepspeed")],
        step="trainer",
        depends_on={"node": "Ready"} if dependent else None,
    )
    # The nodes have no end of their own: the annotation keeps a run time of the TrainJob from them.
    forever = {"simulated.queue-manager.io/run-time": "never"}
    node = replicated_job("node", [container("node", "example.com/deepspeed")], annotations=forever)
    jobs = [node, launcher] if dependent else [launcher, node]
    success = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    return runtime(name, policy, jobs, successPolicy=success)


def torchtune(name: str = "torchtune", *, seconds: int = 5) -> Object:
    """Initialisers of data and model, one after the other, then the nodes."""
    takes = {"simulated.queue-manager.io/run-time": f"{seconds}s"}
    small = {"requests": {"cpu": "2", "memory": "8Gi"}}
    jobs = [
        replicated_job(
            "dataset-initializer",
            [container("dataset-initializer", "example.com/dataset", small)],
            step="dataset-initializer",
            annotations=takes,
        ),
        replicated_job(
            "model-initializer",
            [container("model-initializer", "example.com/model", small)],
            step="model-initializer",
            depends_on={"dataset-initializer": "Complete"},
            annotations=takes,
        ),
        replicated_job(
            "node",
            [container("node", "example.com/torchtune")],
            step="trainer",
            depends_on={"model-initializer": "Complete"},
        ),
    ]
    return runtime(name, {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}, jobs)


def all_runtimes() -> list[Object]:
    """Every runtime of the demo fleet."""
    return [torch_distributed(), deepspeed_distributed(), torchtune()]
