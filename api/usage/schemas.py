"""Answers about usage. Amounts are in base units: milli-CPU, bytes, counts."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from ..schema import ApiModel


class CellUsage(ApiModel):
    """One resource of one flavor at a queue or cohort."""

    flavor: str
    resource: str
    nominal: int = Field(description="Guaranteed: own quota, and of a cohort also that of everything below")
    own: int = Field(description="Own quota of this node alone")
    used: int = Field(description="Charged, draining included")
    borrowed: int = Field(description="Used beyond nominal")
    lent: int = Field(description="Nominal quota that others use now")
    draining: int = Field(description="Charged to workloads on their way out")
    waiting: int = Field(description="Wanted by waiting workloads, at the flavor that is tried first")
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class NodeUsage(ApiModel):
    """A queue or cohort with its usage. `configured` is false for a queue that was deleted and is still charged."""

    kind: str
    name: str
    path: str
    parent: str
    weight: float
    stop_policy: str = "None"
    stopped: str = Field("", description="Who has stopped it by hand, since when and why")
    inactive: str = Field("", description="Why a queue admits nothing, or empty")
    configured: bool = True
    workloads: dict[str, int] = Field(description="Workloads that have not ended, by state")
    cells: list[CellUsage]


class TreeNode(NodeUsage):
    """A node with everything below it."""

    children: list[TreeNode] = Field(default_factory=list)


class TreeUsage(ApiModel):
    """The whole queue tree."""

    revision: int
    items: list[TreeNode]


class UsageEntry(ApiModel):
    """What a group was charged in a bucket, [start, end). Of what it is not grouped by it says null.

    `usedSeconds` is the amount in base units times seconds (GPU-seconds, milli-CPU-seconds, byte-seconds), draining
    included: exact, rounded down once to whole ones.
    """

    FIELD_OF: ClassVar[dict[str, str]] = {
        **{name: name for name in ("queue", "cohort", "namespace", "user", "flavor", "resource", "kind")},
        "priorityClass": "priority_class",
    }

    start: datetime
    end: datetime
    queue: str | None = Field(None, description="Its name, also where it was deleted since")
    cohort: str | None = Field(None, description="That the queue hangs on now, or the one above at `level`; or empty")
    namespace: str | None = None
    user: str | None = None
    flavor: str | None = None
    resource: str
    kind: str | None = None
    priority_class: str | None = Field(None, description="That it had then")
    used_seconds: int
    average: float = Field(description="In base units, over the bucket")
    nominal_seconds: int | None = Field(
        None, description="Nominal quota of the group times seconds, as it was then; null where it has none of its own"
    )


class UsageOverTime(ApiModel):
    """Usage of [from, to), which is cut at now. What was neither used nor quota is left out."""

    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    step: str
    by: list[str]
    kept_since: datetime | None = Field(description="What ended before this is not known any more")
    items: list[UsageEntry]
    next: str | None = Field(None, description="Goes into `cursor` to read on; null on the last page")
