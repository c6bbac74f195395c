"""Workloads as the API shows them. Amounts are in base units: milli-CPU, bytes, counts."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from queue_manager.store.records import State

from ..schema import ApiModel


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
    topology: Topology | None = None
    pod_groups: list[PodGroup]


class Blocker(ApiModel):
    """One thing in the way. `holders` are workloads (namespace/name) that hold what is missing, largest first."""

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


class Explanation(ApiModel):
    """Why a workload waits. `position`, `estimatedStart` and blockers are there only while it does."""

    state: State
    reason: str
    message: str
    position: int | None = None
    since: datetime
    as_of: datetime | None = None
    estimated_start: datetime | None = None
    blockers: list[Blocker] = Field(default_factory=list)
