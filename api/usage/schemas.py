"""Answers about usage. Amounts are in base units: milli-CPU, bytes, counts."""

from __future__ import annotations

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
