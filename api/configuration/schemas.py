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


class Applied(ApiModel):
    """The outcome of an apply. Without changes there is no new revision."""

    revision: int = Field(description="The newest revision afterwards")
    changes: list[ObjectChange]
    warnings: list[Finding]


class RevisionEntry(ApiModel):
    """One change of the configuration; `diff` has each object before and after."""

    number: int
    author: str
    at: datetime
    reason: str
    diff: list[dict[str, Any]]


class Document(ApiModel):
    """A configuration object, as in a file."""

    api_version: str
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]
