"""Answers about the configuration."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from ..schema import ApiModel


class Finding(ApiModel):
    """Something wrong or doubtful: where it is, what it is, what would be right."""

    file: str = ""
    line: int = 0
    kind: str = ""
    name: str = ""
    field: str = ""
    message: str
    hint: str = ""


class ObjectChange(ApiModel):
    """What happened to one object."""

    action: Literal["created", "changed", "deleted"]
    kind: str
    namespace: str
    name: str


class FieldChange(ApiModel):
    """One field that differs; null where it is not there."""

    field: str
    before: Any = None
    after: Any = None


class DescribedChange(ObjectChange):
    """What happens to one object, field by field."""

    fields: list[FieldChange]


class Difference(ApiModel):
    """What an apply would change."""

    revision: int = Field(description="The revision that is compared with")
    changes: list[DescribedChange]
    warnings: list[Finding]


class Plan(Difference):
    """What an apply would change, and whom it hurts or helps, by the live state of the moment.

    Lists hold `namespace/name` of workloads that are touched by the change; what was so before is not told.
    """

    hash: str = Field(description="Of the changes and everything they do; `ifPlan` applies only what has this hash")
    over_quota: list[str] = Field(description="Running ones that would use more than the quota of their queue")
    preemptible: list[str] = Field(description="Running ones that others could preempt, or would at once")
    would_stop: list[str] = Field(description="Running ones that would be evicted at once")
    would_start: list[str] = Field(description="Waiting ones that would start")
    never_start: list[str] = Field(description="Waiting ones that could not start even with everything to themselves")
    limits: list[str] = Field(description="What was not looked at, in sentences; empty: nothing was left out")


class Applied(ApiModel):
    """The outcome of an apply. Without changes there is no new revision."""

    revision: int = Field(description="The newest revision afterwards")
    changes: list[ObjectChange]
    warnings: list[Finding]


class RevisionEntry(ApiModel):
    """One change of the configuration; `diff` has each object before and after, `changes` the fields that differ."""

    number: int
    author: str
    at: datetime
    reason: str
    diff: list[dict[str, Any]]
    changes: list[DescribedChange]


class Document(ApiModel):
    """A configuration object, as in a file."""

    api_version: str
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]
