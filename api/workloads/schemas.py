"""Workloads as the API shows them. Amounts are in base units: milli-CPU, bytes, counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from queue_manager.config.durations import parse_duration
from queue_manager.store.records import CheckState, State

from ..schema import ApiModel, Reason, StorableText


class Topology(ApiModel):
    """How strictly one domain of a level is wanted."""

    mode: str
    level: str


class Domain(ApiModel):
    """Pods planned in one domain; `values` are the label values of the levels."""

    values: list[str]
    count: int


class PodSet(ApiModel):
    """Equal pods. `flavors` and `domains` are there while it is admitted."""

    name: str
    count: int
    requests: dict[str, int] = Field(description="Of one pod")
    stages: tuple[int, int]
    reclaimed: int = 0
    min_count: int | None = None
    node_selector: dict[str, str] = Field(default_factory=dict)
    topology: Topology | None = None
    flavors: dict[str, str] = Field(default_factory=dict)
    domains: list[Domain] | None = None


class PodGroup(ApiModel):
    """Pod sets that start together (gang) or are only counted together (basic)."""

    name: str
    policy: str
    minimum: int | None = None
    topology: Topology | None = None
    pod_sets: list[PodSet]


class Check(ApiModel):
    """What one check of its queue says of a workload. `needed` is there while it is admitted: whether its flavors ask
    for the check. `requeue_after` are the seconds that a Retry asked for."""

    name: str
    state: CheckState
    message: str = ""
    at: datetime | None = None
    by: str = ""
    needed: bool | None = None
    requeue_after: int | None = None


def pause(value: object) -> int | None:
    """Seconds of a pause. Before the types are looked at: they would take true for 1, and name each type as a field of
    its own."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a whole number of seconds, or a duration such as 5m")
    seconds = parse_duration(value) // 1_000_000 if isinstance(value, str) else value
    if not 0 <= seconds <= 366 * 86400:
        raise ValueError("must be from 0 seconds to a year")
    return seconds


class CheckAnswer(ApiModel):
    """The answer of a check. `requeueAfter`, only with Retry: seconds, or a duration such as 5m; without it the pause
    grows with each Retry, as the settings of the backoff say."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    state: Literal["Ready", "Retry", "Rejected"]
    message: StorableText = Field(default="", max_length=2000)
    requeue_after: int | str | None = None

    @field_validator("requeue_after", mode="before")
    @classmethod
    def _seconds(cls, value: object, info: ValidationInfo) -> int | None:
        seconds = pause(value)
        if seconds is not None and info.data.get("state") != "Retry":
            raise ValueError("has a meaning with state Retry only")
        return seconds


class ActionRequest(ApiModel):
    """Why somebody does it; kept in the audit log and told to the job's user."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    reason: Reason = Field(min_length=1, max_length=2000)


class MoveRequest(ActionRequest):
    """`queue`: a local queue of the job's namespace, or a queue by name or path. `force`: also where it would be over a
    limit."""

    queue: StorableText = Field(min_length=1, max_length=600)
    force: StrictBool = False


class ReprioritiseRequest(ActionRequest):
    """`priorityClass`: the name of one of the configuration."""

    priority_class: StorableText = Field(min_length=1, max_length=253)


class EvictRequest(ActionRequest):
    """`requeueAfter`: how long it stays out of its queue, in seconds or as a duration such as 10m."""

    requeue_after: int | str | None = None

    @field_validator("requeue_after", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> int | None:
        return pause(value)


class Requeue(ApiModel):
    """`count`: evictions because of readiness so far; `since`: the eviction that counts for its place, if one does;
    `at`: when it is tried again, while it backs off."""

    count: int
    since: datetime | None
    at: datetime | None


class Ready(ApiModel):
    """`at`: when all its pods were ready first; `lost_at`: since when some are not; `by`: when they have to be."""

    at: datetime | None
    lost_at: datetime | None
    by: datetime | None


class RunTime(ApiModel):
    """Seconds that it has been allowed to run, over all its admissions; `limit` by its annotation, `until` when that
    is reached."""

    limit: float | None
    used: float
    until: datetime | None


class Workload(ApiModel):
    """One job."""

    namespace: str
    name: str
    kind: str
    uid: str
    queue: str
    path: str = Field(description="Path of its queue in the tree")
    cohort: str
    local_queue: str
    user: str
    priority: int
    priority_class: str
    state: State
    reason: str
    message: str
    created: datetime
    admitted: datetime | None
    finished: datetime | None
    attempt: int = Field(description="Number of its admissions so far")
    after_drain: State | None = Field(default=None, description="What it will be when its last pod is gone")
    requeue: Requeue
    ready: Ready | None = Field(default=None, description="While it is admitted")
    run_time: RunTime
    checks: list[Check] = Field(default_factory=list)
    topology: Topology | None = None
    pod_groups: list[PodGroup]


class Holder(ApiModel):
    """A workload that holds something: how much of what is missing (base units; None where that is not counted), since
    when, and until when at the latest (None without a maximum run time)."""

    namespace: str
    name: str
    kind: str
    queue: str
    user: str
    priority: int
    state: State
    amount: int | None
    since: datetime
    until: datetime | None


class Blocker(ApiModel):
    """One thing in the way. `holders` are workloads (namespace/name) that hold what is missing, largest first, and
    `held` says more of those that still do; the end of those in `enough` would do. `waysOut` are what
    could do away with it, each for itself."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    type: str
    message: str = ""
    node: str = ""
    flavor: str = ""
    resource: str = ""
    requested: int = 0
    available: int = 0
    missing: int = 0
    holders: list[str] = Field(default_factory=list)
    enough: list[str] = Field(default_factory=list)
    held: list[Holder] = Field(default_factory=list)
    ways_out: list[str] = Field(default_factory=list)


class Explanation(ApiModel):
    """Why a workload waits. `position`, `estimatedStart` and blockers are there only while it does. `since` is when it
    was created, `waitingSince` when it began to wait this time, `queued` how many wait in its queue."""

    state: State
    reason: str
    message: str
    position: int | None = None
    queued: int | None = None
    since: datetime
    waiting_since: datetime | None = None
    as_of: datetime | None = None
    estimated_start: datetime | None = None
    blockers: list[Blocker] = Field(default_factory=list)


class AdmissionEntry(ApiModel):
    """One admission. `queue` is what it was charged to first (moves are actions), `checked` when all its checks were
    ready, `cause` and `underlying_cause` are why it ended early."""

    attempt: int
    queue: str
    admitted: datetime
    checked: datetime | None
    started: datetime | None
    ready: datetime | None
    evicted: datetime | None
    ended: datetime | None
    cause: str
    underlying_cause: str
    message: str
    by: str = Field(description="The workload it had to give way to, by uid")


class ActionEntry(ApiModel):
    """What somebody asked of it."""

    at: datetime
    who: str
    action: str
    reason: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class History(ApiModel):
    """Everything it was given and what people did to it, oldest first. `evictions` counts causes."""

    admissions: list[AdmissionEntry]
    actions: list[ActionEntry]
    evictions: dict[str, int]
