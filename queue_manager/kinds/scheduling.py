"""Which pods are one pod group, by `spec.scheduling` of a training runtime (KEP-3015), a JobSet (KEP-969) or a Job
(KEP-5547); reference/workloads.md, 1.8, 3.1 and 4.5.

Three levels: the whole job, groups of its replicated jobs, each child Job. Whoever has no such field in its API has
none in its objects either: the API server drops what a schema lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queue_manager.engine.workload import DisruptionMode, GroupPolicy, TopologyMode, TopologyRequest
from queue_manager.kinds.annotations import is_label_key
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import Unresolvable

MOST_GROUPS = 8
"""Templates that a Kubernetes Workload can hold."""
CONFLICT = "SchedulingConflict"
TOO_MANY_GROUPS = "TooManyPodGroups"
PER_REPLICA = "PodGroupPerReplica"
MINIMUM_GIVEN = "MinimumGiven"
SIZE = "spec.trainer.numNodes"
"""Key in `Resolved.inputs`: what the size of a TrainJob's gang was computed from."""

_ONE_LEVEL: Mapping[str, Any] = {
    "schedulingPolicy": {"basic": {}, "gang": {"minCount": None}},
    "schedulingConstraints": {"topology": [{"key": None}]},
    "disruptionMode": {"single": {}, "all": {}},
    "resourceClaims": [{"name": None, "resourceClaimName": None, "resourceClaimTemplateName": None}],
}
_FIELDS: Mapping[str, Any] = {
    **_ONE_LEVEL,
    "replicatedJobs": [{**_ONE_LEVEL, "targetReplicatedJobs": None, "job": _ONE_LEVEL}],
}
_DISRUPTION_WORDS = {"Pod": DisruptionMode.SINGLE, "PodGroup": DisruptionMode.ALL}
"""How Kubernetes 1.36 says it (scheduling.k8s.io/v1alpha2)."""


class Dialect(StrEnum):
    """Whose rules hold for the field."""

    TRAINER = "Trainer"
    JOB_SET = "JobSet"


@dataclass(frozen=True, slots=True)
class Target:
    """What grouping needs to know of a replicated job: `replicas` child Jobs of `pods_per_job` pods."""

    name: str
    replicas: int
    pods_per_job: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What one pod group asks for. `minimum` is the given minCount; a gang without one needs all its pods."""

    policy: GroupPolicy = GroupPolicy.GANG
    minimum: int | None = None
    topology: TopologyRequest | None = None
    disruption: DisruptionMode = DisruptionMode.SINGLE
    claims: View = field(default_factory=lambda: View(None))


@dataclass(frozen=True, slots=True)
class Grouping:
    """The replicated jobs of one pod group, or with `each_job` of one for each of their child Jobs."""

    name: str
    jobs: tuple[str, ...]
    terms: Terms
    pods: int
    each_job: bool = False

    @property
    def minimum(self) -> int | None:
        """How many pods of a group have to start together, None where each may start alone."""
        if self.terms.policy is GroupPolicy.BASIC:
            return None
        return self.pods if self.terms.minimum is None else self.terms.minimum


def groupings(
    scheduling: View, targets: Sequence[Target], dialect: Dialect, whole: str, *, sequenced: bool
) -> tuple[Grouping, ...]:
    """The pod groups of a `scheduling` field over replicated jobs, `whole` being the name of the one of level 1.

    With jobs that start one after another (`sequenced`) a gang of all of them could never form: each replicated job
    then is a group. Raises Unresolvable on what the controller would refuse, or could never do.
    """
    entries = list(scheduling["replicatedJobs"].items())
    own = next((scheduling[name] for name in _ONE_LEVEL if scheduling[name].given), None)
    if entries and own is not None:
        raise _conflict(own, f"can't stand beside {scheduling['replicatedJobs'].path}: the levels exclude each other")
    if entries:
        found = _of_entries(scheduling["replicatedJobs"], entries, targets, dialect)
    else:
        found = _of_all(scheduling, targets, dialect, whole, sequenced=sequenced)
    count = sum(_replicas(grouping, targets) for grouping in found)
    if count > MOST_GROUPS:
        path = scheduling.path
        message = (
            f"{path} makes {count} pod groups, and a Kubernetes Workload holds at most {MOST_GROUPS}: let several "
            "replicated jobs share a group"
        )
        raise Unresolvable(TOO_MANY_GROUPS, path, message)
    return found


def _of_all(
    scheduling: View, targets: Sequence[Target], dialect: Dialect, whole: str, *, sequenced: bool
) -> tuple[Grouping, ...]:
    terms = read_terms(scheduling)
    if terms.minimum is not None:
        field = scheduling.at("schedulingPolicy", "gang", "minCount")
        if dialect is Dialect.TRAINER:
            raise _minimum_given(field)
        if sequenced:
            what = "can't be met: its replicated jobs start one after another, so each is a group of its own"
            raise _conflict(field, what)
    if sequenced and len(targets) > 1:
        return tuple(_grouping(target.name, [target], terms) for target in targets)
    check_minimum(scheduling, terms, sum(target.replicas * target.pods_per_job for target in targets))
    return (_grouping(whole, targets, terms),)


def _of_entries(
    field: View, entries: Sequence[View], targets: Sequence[Target], dialect: Dialect
) -> tuple[Grouping, ...]:
    known = {target.name: target for target in targets}
    taken: dict[str, str] = {}
    found = []
    for entry in entries:
        names = [name.text() for name in entry["targetReplicatedJobs"].items()]
        path = entry["targetReplicatedJobs"].path
        if not names:
            raise entry["targetReplicatedJobs"].malformed("a list with the name of a replicated job")
        for name in names:
            if name not in known:
                message = f"{path}: there is no replicated job {name!r}"
                raise Unresolvable("UnknownReplicatedJob", path, message)
            if name in taken:
                raise Unresolvable(CONFLICT, path, f"{path}: {name} is a target of {taken[name]} already")
            taken[name] = path
        found.append(_of_entry(entry, [known[name] for name in names], dialect))
    left = [name for name in known if name not in taken]
    if left:
        message = f"{field.path}: {', '.join(left)} is the target of no entry; each replicated job must be of one"
        raise Unresolvable(CONFLICT, field.path, message)
    return tuple(found)


def _of_entry(entry: View, targets: Sequence[Target], dialect: Dialect) -> Grouping:
    name = "-".join(target.name for target in targets)
    job = entry["job"]
    where = job if job.given else entry
    terms = read_terms(where)
    if terms.minimum is not None and dialect is Dialect.TRAINER:
        raise _minimum_given(where.at("schedulingPolicy", "gang", "minCount"))
    if not job.given:
        check_minimum(entry, terms, sum(target.replicas * target.pods_per_job for target in targets))
        return _grouping(name, targets, terms)
    own = next((entry[key] for key in _ONE_LEVEL if entry[key].given), None)
    if own is not None:
        raise _conflict(own, f"can't stand beside {job.path}: the levels exclude each other")
    if len(targets) > 1:
        raise _conflict(job, "needs one target: each child Job of a replicated job is a group of its own")
    (target,) = targets
    if target.replicas > 1 and dialect is Dialect.TRAINER:
        message = (
            f"{job.path} makes one pod group of each of the {target.replicas} replicas of {target.name}, which Trainer "
            "can't before Kubernetes 1.38: give the replicated job one replica, or take "
            "queue-manager.io/slice-topology and queue-manager.io/slice-size on its pod template"
        )
        raise Unresolvable(PER_REPLICA, job.path, message)
    check_minimum(job, terms, target.pods_per_job)
    return Grouping(name, (target.name,), terms, target.pods_per_job, each_job=True)


def _grouping(name: str, targets: Sequence[Target], terms: Terms) -> Grouping:
    pods = sum(target.replicas * target.pods_per_job for target in targets)
    return Grouping(name, tuple(target.name for target in targets), terms, pods)


def _replicas(grouping: Grouping, targets: Sequence[Target]) -> int:
    """How many pod groups Kubernetes will have of it."""
    if not grouping.each_job:
        return 1
    return sum(target.replicas for target in targets if target.name in grouping.jobs)


def read_terms(level: View, default: GroupPolicy = GroupPolicy.GANG) -> Terms:
    """Policy, topology key, disruption mode and claims that are said at one level. Raises Unresolvable."""
    policy, minimum = _policy(level["schedulingPolicy"], default)
    disruption = _disruption(level["disruptionMode"])
    if policy is GroupPolicy.BASIC and disruption is DisruptionMode.ALL:
        raise _conflict(level["disruptionMode"], "can't be all in a basic pod group: only a gang is disrupted whole")
    return Terms(policy, minimum, _topology(level["schedulingConstraints"]), disruption, level["resourceClaims"])


def _policy(field: View, default: GroupPolicy) -> tuple[GroupPolicy, int | None]:
    if not field.given:
        return default, None
    given = [name for name in ("basic", "gang") if field[name].given]
    if len(given) != 1:
        raise field.malformed("one of basic and gang")
    field[given[0]].mapping()
    if given[0] == "basic":
        return GroupPolicy.BASIC, None
    minimum = field["gang"]["minCount"]
    if not minimum.given:
        return GroupPolicy.GANG, None
    if minimum.count(1) < 1:
        raise minimum.malformed("at least 1")
    return GroupPolicy.GANG, minimum.count(1)


def _topology(field: View) -> TopologyRequest | None:
    entries = list(field["topology"].items())
    if not entries:
        return None
    if len(entries) > 1:
        raise field["topology"].malformed("a list of one key: a pod group lies in one domain")
    key = entries[0]["key"]
    if not is_label_key(key.text()):
        raise key.malformed("a node label key such as topology.kubernetes.io/rack")
    return TopologyRequest(TopologyMode.REQUIRED, key.text())


def _disruption(field: View) -> DisruptionMode:
    if isinstance(field.value, str):
        if field.value not in _DISRUPTION_WORDS:
            raise field.malformed("Pod or PodGroup")
        return _DISRUPTION_WORDS[field.value]
    given = [mode for mode in DisruptionMode if field[mode.value].given]
    if field.given and len(given) != 1:
        raise field.malformed("one of single and all")
    return given[0] if given else DisruptionMode.SINGLE


def check_minimum(level: View, terms: Terms, pods: int) -> None:
    """Raises Unresolvable where the given minimum is more than the pods of the group."""
    field = level.at("schedulingPolicy", "gang", "minCount")
    if terms.minimum is not None and terms.minimum > pods:
        message = f"{field.path} is {terms.minimum}, but the group has {pods} pods: it could never start"
        raise Unresolvable("PodGroupNeverForms", field.path, message)


def _minimum_given(field: View) -> Unresolvable:
    message = f"{field.path} must not be given: Trainer computes it from numNodes"
    return Unresolvable(MINIMUM_GIVEN, field.path, message)


def _conflict(field: View, what: str) -> Unresolvable:
    return Unresolvable(CONFLICT, field.path, f"{field.path} {what}")


def refuse_beside(scheduling: View, *others: View) -> None:
    """Raises Unresolvable where one of `others` is given: each of them makes pod groups in a way of its own."""
    for other in others:
        if other.given:
            message = f"{other.path} can't stand beside {scheduling.path}: both say what the pod groups are"
            raise Unresolvable(CONFLICT, other.path, message)


def unknown_fields(scheduling: View) -> tuple[str, ...]:
    """Warnings that name the fields of a `scheduling` that nothing here knows: they are not acted on."""
    return tuple(f"{path} is not known, it is not acted on" for path in _unknown(scheduling, _FIELDS))


def _unknown(view: View, known: Any) -> Iterator[str]:
    if known is None:
        return
    if isinstance(known, list):
        for item in view.items():
            yield from _unknown(item, known[0])
    elif isinstance(view.value, dict):
        for key in view.value:
            if key in known:
                yield from _unknown(view[key], known[key])
            else:
                yield view[key].path
