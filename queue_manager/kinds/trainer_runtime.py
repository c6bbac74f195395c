"""From a TrainJob and its runtime to the JobSet spec that Trainer will make of them, per generation of its API."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import yaml

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Object,
)
from queue_manager.kinds.fields import View, identity, is_controlled_by
from queue_manager.kinds.kind import MANAGER, Lookup, Unresolvable
from queue_manager.kinds.merge import strategic_merge
from queue_manager.kinds.trainer_api import Generation

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"
NODE = "node"
"""Name of the job and of the container that Trainer treats as the training node."""
ANCESTORS = (TRAINER, "dataset-initializer", "model-initializer")
SNAPSHOT_SUFFIX = "-runtime-snapshot"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime a TrainJob is built from: its content, what to call it in messages, and its identity."""

    view: View
    name: str
    identity: str
    snapshot: bool = False


def find_runtime(obj: Object, api: Generation, lookup: Lookup) -> Runtime:
    """The snapshot that the controller took, where it takes one, else the live runtime. Raises Unresolvable."""
    reference = View(obj).at("spec", "runtimeRef")
    group = reference["apiGroup"].text() or TRAIN_JOBS.group
    kind = reference["kind"].text() or CLUSTER_TRAINING_RUNTIMES.kind
    name = reference["name"].text()
    resource = {item.kind: item for item in (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES)}.get(kind)
    if resource is None or group != TRAIN_JOBS.group:
        message = f"{reference.path}: Trainer knows no runtime of kind {kind} in {group}"
        raise Unresolvable("UnknownRuntimeKind", f"{reference.path}.kind", message)
    snapshot = _snapshot(obj, lookup) if api.snapshots else None
    if snapshot is not None:
        return snapshot
    found = lookup.get(resource, obj["metadata"].get("namespace", "") if resource.namespaced else "", name)
    if found is None:
        path = f"{reference.path}.name"
        raise Unresolvable("RuntimeNotFound", path, f"{path}: there is no {kind} {name!r}")
    label = f"{kind}/{name}"
    return Runtime(View(found, f"{label}: "), label, identity(found))


def _snapshot(obj: Object, lookup: Lookup) -> Runtime | None:
    """The runtime as the controller saved it. That of an earlier TrainJob of this name is not ours to use."""
    name = obj["metadata"]["name"] + SNAPSHOT_SUFFIX
    found = lookup.get(CONFIG_MAPS, obj["metadata"].get("namespace", ""), name)
    if found is None or not is_controlled_by(found, obj["metadata"].get("uid", "")):
        return None
    field = View(found, f"ConfigMap/{name}: ").at("data", "runtime")
    try:
        content = yaml.load(field.text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise field.malformed("a runtime as YAML") from error
    return Runtime(View(content, f"ConfigMap/{name}: runtime: "), f"ConfigMap/{name}", identity(found), snapshot=True)


def has_snapshot(obj: Object, lookup: Lookup) -> bool:
    """Whether the controller works from a snapshot, so that it goes on without the live runtime."""
    name = obj["metadata"]["name"] + SNAPSHOT_SUFFIX
    found = lookup.get(CONFIG_MAPS, obj["metadata"].get("namespace", ""), name)
    return found is not None and is_controlled_by(found, obj["metadata"].get("uid", ""))


def may_have_changed(runtime: Runtime, job_set: Object) -> bool:
    """Whether the live runtime may have been edited, or made anew, after the JobSet was made from it.

    The generation counts edits; their time stands only in `managedFields`, which a cache may have dropped.
    """
    if runtime.snapshot:
        return False
    metadata = runtime.view["metadata"]
    made = str(job_set["metadata"].get("creationTimestamp") or "")
    if metadata["generation"].integer(1) <= 1:
        return metadata["creationTimestamp"].text() > made
    times = [entry["time"].text() for entry in metadata["managedFields"].items() if not entry["subresource"].given]
    return not times or max(times) >= made


def differs(obj: Object, spec: View, job_set: Object) -> bool:
    """Whether an existing JobSet differs from what Trainer would make now in something that JobSet won't let it change:
    jobs, counts, container images and resources."""
    return _fixed_part(spec, View(obj).at("spec", "trainer", "image").text()) != _fixed_part(View(job_set)["spec"], "")


def _fixed_part(spec: View, image: str) -> list[Any]:
    """The compared part of a JobSet spec; `image` is the TrainJob's own for the trainer's node container."""
    jobs: list[Any] = []
    for job in spec["replicatedJobs"].items():
        job_spec = job.at("template", "spec")
        pod = job_spec.at("template", "spec")
        containers = [
            (
                container["name"].text(),
                image
                if image and ancestor(job) == TRAINER and container["name"].text() == NODE
                else container["image"].text(),
                container.at("resources", "requests").amounts(),
                container.at("resources", "limits").amounts(),
            )
            for container in pod["containers"].items()
        ]
        jobs.append((job["name"].text(), job["replicas"].integer(1), job_spec["parallelism"].integer(1), containers))
    return jobs


def job_set_spec(obj: Object, runtime: Runtime, api: Generation, *, without_ours: tuple[Any, ...] = ()) -> View:
    """The JobSet spec that Trainer builds, as a view whose paths lie in the runtime. Raises Unresolvable.

    Our own entry never counts: in `runtimePatches` it is known by its manager, in the older lists by `without_ours`.
    """
    template = runtime.view.at("spec", "template", "spec")
    spec = copy.deepcopy(dict(template.mapping()))
    view = View(spec, template.path)
    for job in view["replicatedJobs"].items():
        job.mapping()
    trainer = View(obj).at("spec", "trainer")
    _apply_patches(view, View(obj).at("spec", api.field), api, without_ours)
    _set_counts(view, runtime.view.at("spec", "mlPolicy"), trainer, api)
    _set_resources(view, runtime.view.at("spec", "mlPolicy"), trainer, api)
    _add_plugin_containers(view, runtime.view.at("spec", "mlPolicy"))
    return view


def _apply_patches(spec: View, patches: View, api: Generation, without: tuple[Any, ...]) -> None:
    content: Any = spec.value
    remaining = list(without)
    for entry in patches.items():
        if entry.value in remaining:
            remaining.remove(entry.value)
        elif not api.keyed:
            _apply_override(content, entry, api)
        elif entry["manager"].text() != MANAGER:
            patch = entry.at("trainingRuntimeSpec", "template", "spec")
            known = {job["name"].text() for job in spec["replicatedJobs"].items()}
            for job in patch["replicatedJobs"].items():
                _refuse_unknown(job["name"], known)
            content.update(strategic_merge(content, patch.mapping()))


def _apply_override(content: Any, entry: View, api: Generation) -> None:
    """One entry of the lists before v2.2: the same pod patch for several jobs."""
    jobs = {job.get("name"): job for job in content.get("replicatedJobs") or []}
    if api.pod_metadata:
        patch = {key: value for key, value in entry.mapping().items() if key in ("metadata", "spec")}
    else:
        patch = {"spec": {key: value for key, value in entry.mapping().items() if key != "targetJobs"}}
    for target in entry["targetJobs"].items():
        _refuse_unknown(target["name"], jobs)
        job = jobs[target["name"].text()]
        job.update(strategic_merge(job, {"template": {"spec": {"template": patch}}}))


def _refuse_unknown(name: View, known: Any) -> None:
    if name.text() not in known:
        raise Unresolvable("UnknownReplicatedJob", name.path, f"{name.path}: the runtime has no job {name.text()!r}")


def _set_counts(spec: View, policy: View, trainer: View, api: Generation) -> None:
    """Parallelism and completions of every job, and one replica for the jobs that carry an ancestor label."""
    jobs = list(spec["replicatedJobs"].items())
    counts = [
        max(1, policy["numNodes"].count(1))
        if ancestor(job) == TRAINER and policy.given
        else max(1, job.at("template", "spec", "parallelism").count(1))
        for job in jobs
    ]
    trainers = [index for index, job in enumerate(jobs) if ancestor(job) == TRAINER]
    num_nodes = trainer["numNodes"].count(0) if trainer["numNodes"].given else None
    if num_nodes is not None:
        # MPI counts the job *named* node; every other policy the first job with the trainer label.
        mpi = policy["mpi"]
        nodes = [index for index, job in enumerate(jobs) if job["name"].text() == NODE] if mpi.given else trainers
        if nodes:
            launcher = mpi.given and mpi["runLauncherAsNode"].boolean()
            counts[nodes[0]] = max(num_nodes - 1, 1) if launcher else num_nodes
    if api.shares_count:
        for index in trainers:
            counts[index] = counts[trainers[0]]
    for job, count in zip(jobs, counts, strict=True):
        job_spec = _object(job, "template", "spec")
        job_spec["parallelism"] = job_spec["completions"] = count
        if ancestor(job) in ANCESTORS:
            _object(job)["replicas"] = 1


def _set_resources(spec: View, policy: View, trainer: View, api: Generation) -> None:
    """`resourcesPerNode` goes to the container named node of the trainer's jobs; other names are silently left out."""
    wanted = {key: trainer.at("resourcesPerNode", key) for key in ("requests", "limits")}
    wanted = {key: value for key, value in wanted.items() if value.given}
    if not wanted or (api.merges_resources and not policy.given):
        return
    launcher = api.launcher_node_resources and policy.at("mpi", "runLauncherAsNode").boolean()
    for job in spec["replicatedJobs"].items():
        if ancestor(job) != TRAINER and not (launcher and job["name"].text() == NODE):
            continue
        for container in job.at("template", "spec", "template", "spec", "containers").items():
            if container["name"].text() != NODE:
                continue
            resources = container["resources"]
            kept = {key: resources[key].mapping() for key in ("requests", "limits")} if api.merges_resources else {}
            merged = {key: {**kept.get(key, {}), **value.mapping()} for key, value in wanted.items()}
            _object(container)["resources"] = {**kept, **merged}


def _add_plugin_containers(spec: View, policy: View) -> None:
    """Flux puts an init container without resources into the job node: a LimitRange's defaults reach it."""
    if not policy["flux"].given:
        return
    for job in spec["replicatedJobs"].items():
        if job["name"].text() == NODE:
            pod = _object(job, "template", "spec", "template", "spec")
            pod["initContainers"] = [*(pod.get("initContainers") or []), {"name": "flux-installer"}]


def ancestor(job: View) -> str:
    """The step of the TrainJob that a replicated job stands for, "" for none."""
    return job.at("template", "metadata", "labels")[ANCESTOR_LABEL].text()


def _object(view: View, *path: str) -> dict[str, Any]:
    """The object at a path of our own copy, made where it is missing."""
    view.at(*path).mapping()
    found: dict[str, Any] = view.value
    for key in path:
        if found.get(key) is None:
            found[key] = {}
        found = found[key]
    return found
