"""Training runtimes and JobSets of the tests, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.e2e.product import Object, container

JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def of(job_set: str, replicated_job: str = "") -> str:
    """The label selector of the pods of a JobSet, or of one replicated job of it."""
    return f"{JOB_SET_NAME}={job_set}" + (f",{REPLICATED_JOB}={replicated_job}" if replicated_job else "")


def replicated_job(
    name: str,
    gpus: int,
    *,
    ancestor: str = "",
    after: Iterable[str] = (),
    replicas: int = 1,
    parallelism: int = 1,
    completions: int = 0,
    labels: Mapping[str, str] | None = None,
    **pod: Any,
) -> Object:
    """A replicated job whose container (called as Trainer wants it) asks for GPUs; `pod` is added to its pod spec.

    `after`: replicated jobs that have to be complete first.
    """
    main = "node" if ancestor in ("", "trainer") else ancestor
    found: Object = {
        "name": name,
        "template": {
            "spec": {
                "parallelism": parallelism,
                "completions": completions or parallelism,
                "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container(main, gpus)], **pod}},
            }
        },
    }
    if labels:
        found["template"]["spec"]["template"]["metadata"] = {"labels": dict(labels)}
    if ancestor:
        # Trainer takes the place of the counts.
        found["template"]["metadata"] = {"labels": {ANCESTOR: ancestor}}
        del found["template"]["spec"]["parallelism"], found["template"]["spec"]["completions"]
    else:
        found["replicas"] = replicas
    if after:
        found["dependsOn"] = [{"name": other, "status": "Complete"} for other in after]
    return found


def runtime(name: str, *jobs: Object, annotations: Mapping[str, str] | None = None) -> Object:
    """A ClusterTrainingRuntime of these replicated jobs, with torch's way of counting."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {
            "name": name,
            "labels": {"trainer.kubeflow.org/framework": "torch"},
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
            "template": {"spec": {"replicatedJobs": list(jobs)}},
        },
    }


def job_set(
    name: str,
    queue: str,
    *jobs: Object,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A JobSet of these replicated jobs."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "labels": {"queue-manager.io/queue": queue, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"replicatedJobs": list(jobs), **spec},
    }
