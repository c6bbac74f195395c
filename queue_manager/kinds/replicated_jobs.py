"""Replicated jobs of a JobSet spec, given by the user or resolved from a runtime: pod sets, stages, status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queue_manager.cluster.port import JOBS, Object
from queue_manager.engine.workload import PodGroup, PodSet, SliceLayer, TopologyMode, TopologyRequest
from queue_manager.kinds import pod_template, stages
from queue_manager.kinds.fields import View, condition, is_controlled_by, status_of, told
from queue_manager.kinds.kind import Lookup, Placement, PodPlacement, Resolved, Unresolvable
from queue_manager.kinds.limit_ranges import Defaults
from queue_manager.kinds.names import REPLICATED_JOB_NAME
from queue_manager.kinds.pod_rules import PodLabels, pod_rules
from queue_manager.kinds.scheduling import CONFLICT, Dialect, Grouping, Target, Terms, refuse_beside
from queue_manager.kinds.scheduling import groupings as scheduling_groupings
from queue_manager.kinds.wishes import Wishes, with_wishes

GROUP = "main"
"""Name of the one pod group of a workload that says nothing else."""


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One entry of `spec.replicatedJobs`: `replicas` child Jobs of `pods_per_job` pods at a time."""

    view: View
    name: str
    replicas: int
    pods_per_job: int
    depends_on: tuple[stages.Dependency, ...]

    @property
    def count(self) -> int:
        """Its pods at a time."""
        return self.replicas * self.pods_per_job

    @property
    def scheduling(self) -> View:
        """What each child Job says of its pod group."""
        return self.view.at("template", "spec", "scheduling")

    @property
    def template(self) -> View:
        """Its pod template."""
        return self.view.at("template", "spec", "template")


def replicated_jobs(spec: View) -> tuple[ReplicatedJob, ...]:
    """The replicated jobs of a JobSet spec. Raises Unresolvable on malformed, missing or doubled ones."""
    jobs = tuple(_replicated_job(view) for view in spec["replicatedJobs"].items())
    if not jobs:
        raise Unresolvable("NoReplicatedJobs", spec["replicatedJobs"].path, f"{spec['replicatedJobs'].path} is empty")
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            path = job.view["name"].path
            raise Unresolvable("DuplicateName", path, f"{path}: {job.name} is there twice")
        seen.add(job.name)
    return jobs


def _replicated_job(view: View) -> ReplicatedJob:
    name = view["name"].text()
    if not name:
        raise view["name"].malformed("given")
    job = view.at("template", "spec")
    parallelism = job["parallelism"].count(1)
    # A Job without completions is a work queue: its parallelism says how many pods run.
    pods = min(parallelism, job["completions"].count(parallelism))
    return ReplicatedJob(view, name, view["replicas"].count(1), pods, stages.dependencies(view))


def in_order(spec: View) -> bool:
    """Whether the replicated jobs start one after another (each runs on beside the next)."""
    return spec.at("startupPolicy", "startupPolicyOrder").text() == "InOrder"


def sequenced(spec: View) -> bool:
    """Whether some replicated jobs wait for others."""
    jobs = replicated_jobs(spec)
    return len(jobs) > 1 and (in_order(spec) or any(job.depends_on for job in jobs))


def groupings(spec: View, scheduling: View, dialect: Dialect) -> tuple[Grouping, ...]:
    """The pod groups that a `scheduling` field makes of the replicated jobs of a JobSet spec, () where it is not given.
    Raises Unresolvable."""
    if not scheduling.given:
        return ()
    jobs = replicated_jobs(spec)
    refuse_beside(scheduling, *(other for job in jobs for other in (job.scheduling, _pod_group_name(job.template))))
    targets = [Target(job.name, job.replicas, job.pods_per_job) for job in jobs]
    return scheduling_groupings(scheduling, targets, dialect, GROUP, sequenced=sequenced(spec))


def _pod_group_name(template: View) -> View:
    return template.at("spec", "schedulingGroup")


def resolve(
    spec: View,
    defaults: Defaults,
    reclaimed: Mapping[str, int],
    wishes: Wishes,
    inputs: Mapping[str, str],
    groups: tuple[Grouping, ...] = (),
    name: str = "",
) -> Resolved:
    """Pod sets and pod groups of a JobSet spec, one gang of all without `groups`; `wishes` are those of the whole job,
    `inputs` objects it was made from, `name` that of the JobSet. Raises Unresolvable."""
    jobs = replicated_jobs(spec)
    groups = groups or (Grouping(GROUP, tuple(job.name for job in jobs), Terms(), 0),)
    spans = stages.intervals({job.name: job.depends_on for job in jobs}, spec["replicatedJobs"].path)
    of_job = {name: group for group in groups for name in group.jobs}
    shapes = {job.name: _shape(job, of_job[job.name], defaults) for job in jobs}
    labels = {job.name: PodLabels.of_replicated_job(job.template, name, job.name, job.replicas) for job in jobs}
    messages: list[str] = []
    pod_sets: dict[str, PodSet] = {}
    for job in jobs:
        others = {other: found for other, found in labels.items() if other != job.name}
        rules = pod_rules(job.template["spec"], defaults.namespace, job.name, labels[job.name], others)
        messages += rules.messages
        counted = pod_template.with_count(shapes[job.name], job.count, spans[job.name], reclaimed.get(job.name, 0))
        metadata = job.template["metadata"], job.view.at("template", "metadata")
        pod_sets[job.name] = replace(with_wishes(counted, job.pods_per_job, wishes, *metadata), rules=rules.rules)
    return Resolved(
        pod_groups=tuple(_pod_group(group, jobs, pod_sets) for group in groups),
        topology=wishes.topology,
        inputs={**inputs, **defaults.inputs},
        pod_priority_class=next((shape.priority_class for shape in shapes.values() if shape.priority_class), ""),
        pod_priority_classes={job: shape.priority_class for job, shape in shapes.items()},
        messages=tuple(messages),
    )


def _shape(job: ReplicatedJob, group: Grouping, defaults: Defaults) -> pod_template.PodShape:
    """Pods share the claims of their group: those of each child Job, or one for all of the group."""
    claims, copies = group.terms.claims, job.replicas if group.each_job else 1
    if not claims.given:
        claims, copies = job.scheduling["resourceClaims"], job.replicas
    return pod_template.pod_shape(job.template, job.name, defaults, claims, copies)


def _pod_group(group: Grouping, jobs: Sequence[ReplicatedJob], pod_sets: Mapping[str, PodSet]) -> PodGroup:
    members = [job for job in jobs if job.name in group.jobs]
    topology = group.terms.topology
    found = tuple(pod_sets[job.name] for job in members)
    if topology is not None and group.each_job and members[0].replicas > 1:
        # Each child Job is a group in a domain of its own choice: slices of its pods say the same.
        found = tuple(_each_job_in_one(pod_set, topology.level, members[0].pods_per_job) for pod_set in found)
        topology = None
    minimum = group.minimum if group.pods else None
    return PodGroup(group.name, found, group.terms.policy, minimum, topology, group.terms.disruption)


def _each_job_in_one(pod_set: PodSet, level: str, pods: int) -> PodSet:
    own = pod_set.topology or TopologyRequest(TopologyMode.UNCONSTRAINED)
    if own.slices and pods % own.slices[0].size:
        message = (
            f"{pod_set.name}: its slices of {own.slices[0].size} pods do not divide the {pods} pods of a child Job, "
            f"which lie in one {level}"
        )
        raise Unresolvable(CONFLICT, "", message)
    return replace(pod_set, topology=replace(own, slices=(SliceLayer(level, pods), *own.slices)))


def statuses(job_set: Object) -> dict[str, Mapping[str, Any]]:
    """`status.replicatedJobsStatus` by name; its order there is not defined."""
    entries = status_of(job_set).get("replicatedJobsStatus")
    named = [entry for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict)]
    return {entry["name"]: entry for entry in named if isinstance(entry.get("name"), str)}


def reclaimable(job_set: Object) -> dict[str, int]:
    """Pods of child Jobs that have succeeded. Nothing while a restart may be on its way: it runs them again (D11)."""
    found = statuses(job_set)
    if condition(job_set, "RestartingJobSet") or any(told(entry, "failed") for entry in found.values()):
        return {}
    pods = {}
    for job in replicated_jobs(View(job_set)["spec"]):
        succeeded = min(told(found.get(job.name), "succeeded"), job.replicas)
        if succeeded and job.pods_per_job:
            pods[job.name] = succeeded * job.pods_per_job
    return pods


def is_active(job_set: Object) -> bool:
    """Whether a child Job has pods that are not being deleted."""
    return any(told(entry, "active") for entry in statuses(job_set).values())


def all_ready(job_set: Object) -> bool:
    """Whether every child Job that may run by now has all its pods ready or done.

    A replicated job whose `dependsOn` is not yet complete isn't waited for: its turn has not come.
    """
    found = statuses(job_set)
    jobs = replicated_jobs(View(job_set)["spec"])
    done = {job.name: told(found.get(job.name), "succeeded") >= job.replicas for job in jobs}
    started = [job for job in jobs if all(done.get(entry.on, False) for entry in job.depends_on if entry.complete)]
    return bool(found) and all(
        told(found.get(job.name), "ready") + told(found.get(job.name), "succeeded") >= job.replicas for job in started
    )


def unfinished_jobs(job_set: Object, lookup: Lookup) -> list[Object]:
    """Child Jobs that are neither complete nor failed, in order of name."""
    uid = job_set["metadata"].get("uid", "")
    jobs = [job for job in lookup.owned_by(JOBS, uid) if is_controlled_by(job, uid)]
    jobs = [job for job in jobs if not condition(job, "Complete") and not condition(job, "Failed")]
    return sorted(jobs, key=lambda job: str(job["metadata"].get("name")))


def stale_children(job_set: Object, spec: View, placement: Placement, lookup: Lookup) -> list[Object]:
    """Unfinished child Jobs with a node selector key or a gate that neither the template nor the placement has.

    `spec` is the JobSet spec without placement. JobSet merges these into a child on resume and never takes one away.
    """
    templates = {job.name: job.template["spec"] for job in replicated_jobs(spec)}
    stale = []
    for job in unfinished_jobs(job_set, lookup):
        name = (job["metadata"].get("labels") or {}).get(REPLICATED_JOB_NAME, "")
        if name not in templates:
            continue
        pod = View(job).at("spec", "template", "spec")
        placed = placement.get(name, PodPlacement(0))
        keys = {*templates[name]["nodeSelector"].mapping(), *placed.node_selector}
        gates = {*_gates(templates[name]), *placed.gates}
        if not set(pod["nodeSelector"].mapping()) <= keys or not _gates(pod) <= gates:
            stale.append(job)
    return stale


def _gates(pod: View) -> set[str]:
    return {gate["name"].text() for gate in pod["schedulingGates"].items()}


def pod_set_of(pod: Object) -> str:
    """The replicated job's name, by the label that JobSet gives each pod."""
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(REPLICATED_JOB_NAME, ""))
