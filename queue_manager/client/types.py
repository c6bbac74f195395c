"""What the API answers with: JSON as it is, so that a field that a newer server adds is there too.

Amounts are in base units (milli-CPU, bytes, counts), times RFC 3339 text.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

State = Literal["waiting", "reserved", "held", "starting", "running", "draining", "finished", "failed", "deactivated"]


class Topology(TypedDict):
    """How strictly one domain of a level is wanted."""

    mode: str
    level: str


class Domain(TypedDict):
    """Pods planned in one domain."""

    values: list[str]
    count: int


class PodSet(TypedDict):
    """Equal pods; `requests` of one of them."""

    name: str
    count: int
    requests: dict[str, int]
    reclaimed: int
    minCount: int | None
    nodeSelector: dict[str, str]
    topology: Topology | None
    flavors: dict[str, str]
    domains: list[Domain] | None


class PodGroup(TypedDict):
    """Pod sets that start together."""

    name: str
    policy: str
    minimum: int | None
    topology: Topology | None
    podSets: list[PodSet]


class Check(TypedDict):
    """What one check of its queue says of a workload."""

    name: str
    state: str
    message: str
    at: str | None
    by: str
    needed: bool | None
    requeueAfter: int | None


class Requeue(TypedDict):
    """Evictions because of readiness, and when it is tried again."""

    count: int
    since: str | None
    at: str | None


class RunTime(TypedDict):
    """Seconds that it may run and has run."""

    limit: float | None
    used: float
    until: str | None


class Workload(TypedDict):
    """One job."""

    namespace: str
    name: str
    kind: str
    uid: str
    queue: str
    path: str
    cohort: str
    localQueue: str
    user: str
    priority: int
    priorityClass: str
    state: State
    reason: str
    message: str
    created: str
    admitted: str | None
    finished: str | None
    attempt: int
    afterDrain: State | None
    requeue: Requeue
    runTime: RunTime
    checks: list[Check]
    topology: Topology | None
    podGroups: list[PodGroup]


class Holder(TypedDict):
    """A workload that holds something; `amount` of what is missing, None where that is not counted."""

    namespace: str
    name: str
    kind: str
    queue: str
    user: str
    priority: int
    state: State
    amount: int | None
    since: str
    until: str | None


class Blocker(TypedDict):
    """One thing in the way. `holders` are workloads (namespace/name) that hold what is missing, largest first, `held`
    says more of them; the end of those in `enough` would do, as would each of `waysOut`."""

    type: str
    message: str
    node: str
    flavor: str
    resource: str
    requested: int
    available: int
    missing: int
    holders: list[str]
    enough: list[str]
    held: list[Holder]
    waysOut: list[str]


class Explanation(TypedDict):
    """Why a workload waits."""

    state: State
    reason: str
    message: str
    position: int | None
    queued: int | None
    since: str
    waitingSince: str | None
    asOf: str | None
    estimatedStart: str | None
    blockers: list[Blocker]


class AdmissionEntry(TypedDict):
    """One admission, and how it ended."""

    attempt: int
    queue: str
    admitted: str
    checked: str | None
    started: str | None
    ready: str | None
    evicted: str | None
    ended: str | None
    cause: str
    underlyingCause: str
    message: str
    by: str


class ActionEntry(TypedDict):
    """What somebody asked of it."""

    at: str
    who: str
    action: str
    reason: str
    arguments: dict[str, Any]


class History(TypedDict):
    """Everything a workload was given and what people did to it, oldest first."""

    admissions: list[AdmissionEntry]
    actions: list[ActionEntry]
    evictions: dict[str, int]


class Stop(TypedDict):
    """What somebody has stopped by hand. `effective` is what counts: with what its configuration says."""

    kind: str
    namespace: str
    name: str
    policy: str
    effective: str
    by: str
    at: str | None
    reason: str
    authority: str | None
    message: str


class Cell(TypedDict):
    """One resource of one flavor at a queue or cohort."""

    flavor: str
    resource: str
    nominal: int
    own: int
    used: int
    borrowed: int
    lent: int
    draining: int
    waiting: int
    borrowingLimit: int | None
    lendingLimit: int | None


class NodeUsage(TypedDict):
    """A queue or cohort with its usage."""

    kind: str
    name: str
    path: str
    parent: str
    weight: float
    stopPolicy: str
    inactive: str
    configured: bool
    workloads: dict[str, int]
    cells: list[Cell]


class TreeNode(NodeUsage):
    """A node with everything below it."""

    children: list[TreeNode]


class Tree(TypedDict):
    """The whole queue tree."""

    revision: int
    items: list[TreeNode]


class UsageEntry(TypedDict):
    """What a group was charged from `start` to before `end`: `usedSeconds` is the amount times seconds, `average` the
    amount, `nominalSeconds` the quota times seconds where the group has one. What it is not grouped by is None."""

    start: str
    end: str
    queue: str | None
    cohort: str | None
    namespace: str | None
    user: str | None
    flavor: str | None
    resource: str
    kind: str | None
    priorityClass: str | None
    usedSeconds: int
    average: float
    nominalSeconds: int | None


UsageOverTime = TypedDict(
    "UsageOverTime",
    {
        "from": str,
        "to": str,
        "step": str,
        "by": list[str],
        "keptSince": str | None,
        "items": list[UsageEntry],
        "next": str | None,
    },
)
"""Usage of a span of time, by group and bucket. What ended before `keptSince` is not known any more."""


class Finding(TypedDict):
    """Something wrong or doubtful: where it is, what it is, what would be right."""

    message: str
    file: NotRequired[str]
    line: NotRequired[int]
    kind: NotRequired[str]
    name: NotRequired[str]
    field: NotRequired[str]
    hint: NotRequired[str]


class FieldChange(TypedDict):
    """One field that differs; None where it is not there."""

    field: str
    before: Any
    after: Any


class ObjectChange(TypedDict):
    """What happened to one object."""

    action: Literal["created", "changed", "deleted"]
    kind: str
    namespace: str
    name: str


class DescribedChange(ObjectChange):
    """What happens to one object, field by field."""

    fields: list[FieldChange]


class Difference(TypedDict):
    """What an apply would change."""

    revision: int
    changes: list[DescribedChange]
    warnings: list[Finding]


class Plan(Difference):
    """What an apply would change, and whom (namespace/name) it hurts or helps at this moment."""

    hash: str
    overQuota: list[str]
    preemptible: list[str]
    wouldStop: list[str]
    wouldStart: list[str]
    neverStart: list[str]
    limits: list[str]


class Applied(TypedDict):
    """The outcome of an apply."""

    revision: int
    changes: list[ObjectChange]
    warnings: list[Finding]


class Revision(TypedDict):
    """One change of the configuration."""

    number: int
    author: str
    at: str
    reason: str
    diff: list[dict[str, Any]]
    changes: list[DescribedChange]


class Document(TypedDict):
    """A configuration object, as in a file."""

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]


class TokenScope(TypedDict):
    """A role in the subtree of a queue or cohort; an empty node is the whole tree."""

    role: str
    node: str


class Token(TypedDict):
    """A token, without itself."""

    id: int
    name: str
    scopes: list[TokenScope]
    created: str
    createdBy: str
    expires: str | None
    used: str | None
    revoked: str | None
    revokedBy: str


class NewToken(Token):
    """The only answer that holds the token itself."""

    token: str


class AuditLine(TypedDict):
    """Who did what, when, from where and why."""

    id: int
    at: str
    who: str
    action: str
    object: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    source: str
    address: str
    reason: str
