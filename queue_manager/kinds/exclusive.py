"""JobSet's exclusive placement taken over: its annotation becomes ours, which means the same (workloads.md 3.7).

As long as JobSet's own annotation is there, its pod webhook gives leaders affinities and refuses followers until their
leader is scheduled: a domain that is taken meanwhile would keep an admitted gang waiting.
"""

from __future__ import annotations

from queue_manager.cluster.port import Object
from queue_manager.kinds.annotations import EXCLUSIVE_TOPOLOGY, JOB_SET_EXCLUSIVE, BadValue, parse_level
from queue_manager.kinds.fields import View
from queue_manager.kinds.patches import Operation, put, remove

BY_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""Beside it somebody else labels the nodes for each child Job: that is left as it is."""

Path = tuple[str | int, ...]
METADATA: Path = ("metadata",)
PATCH: Path = ("trainingRuntimeSpec", "template")


def take_over_of_job_set(obj: Object) -> list[Operation]:
    """For a user's JobSet at its creation: its own annotation, and those of its replicated jobs."""
    return [*_renamed(View(obj)["metadata"], METADATA), *_of_jobs(View(obj)["spec"], ("spec",))]


def take_over_of_train_job(obj: Object) -> list[Operation]:
    """For a TrainJob at its creation: what its patches would put on the JobSet is said on the TrainJob instead."""
    operations: list[Operation] = []
    said = dict(View(obj)["metadata"]["annotations"].mapping())
    for index, patch in enumerate(View(obj).at("spec", "runtimePatches").items()):
        path: Path = ("spec", "runtimePatches", index, *PATCH)
        template = patch.at(*(str(step) for step in PATCH))
        if level := _level(template["metadata"]):
            operations.append(remove(*path, "metadata", "annotations", JOB_SET_EXCLUSIVE))
            if EXCLUSIVE_TOPOLOGY not in said:
                key: Path = (*METADATA, "annotations")
                operations.append(
                    put(level, *key, EXCLUSIVE_TOPOLOGY) if said else put({EXCLUSIVE_TOPOLOGY: level}, *key)
                )
                said[EXCLUSIVE_TOPOLOGY] = level
        operations += _of_jobs(template["spec"], (*path, "spec"))
    return operations


def _of_jobs(spec: View, path: Path) -> list[Operation]:
    operations: list[Operation] = []
    for index, job in enumerate(spec["replicatedJobs"].items()):
        operations += _renamed(job.at("template", "metadata"), (*path, "replicatedJobs", index, "template", "metadata"))
    return operations


def _renamed(metadata: View, path: Path) -> list[Operation]:
    """Ours in the place of JobSet's; where both stand there ours counts."""
    level = _level(metadata)
    if not level:
        return []
    given = metadata["annotations"].mapping()
    ours = [] if EXCLUSIVE_TOPOLOGY in given else [put(level, *path, "annotations", EXCLUSIVE_TOPOLOGY)]
    return [remove(*path, "annotations", JOB_SET_EXCLUSIVE), *ours]


def _level(metadata: View) -> str:
    """The level of JobSet's annotation, "" where there is none to take over."""
    given = metadata["annotations"].mapping()
    level = given.get(JOB_SET_EXCLUSIVE)
    if not isinstance(level, str) or BY_NODE_SELECTOR in given:
        return ""
    try:
        return parse_level(level)
    except BadValue:
        return ""
