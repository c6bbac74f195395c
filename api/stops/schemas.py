"""Stops as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..schema import ApiModel, Reason

Policy = Literal["None", "Hold", "HoldAndDrain"]


class StopQuestion(ApiModel):
    """`policy`: Hold admits nothing new, HoldAndDrain also evicts what runs, None ends what was stopped by hand."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    policy: Policy


class StopRequest(StopQuestion):
    """A stop, and why."""

    reason: Reason = Field(min_length=1, max_length=2000)


class Stop(ApiModel):
    """What somebody has stopped by hand, and why. `policy` None: nobody has. `effective` is what counts for it, with
    its configuration and the cohorts above it."""

    kind: Literal["Queue", "Cohort", "LocalQueue", "Flavor"]
    namespace: str = ""
    name: str
    policy: Policy
    effective: Policy
    by: str = ""
    at: datetime | None = None
    reason: str = ""
    authority: str | None = Field(
        None,
        description="The node from which it was set (Cohort/NAME, Queue/NAME; empty: the whole tree): a role below "
        "that alone does not end it. Null where nobody has stopped it, or before this was kept",
    )
    message: str = Field("", description="Why it is stopped although nobody has stopped it by hand, or is not there")
