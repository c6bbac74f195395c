"""Tokens as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..schema import ApiModel, StorableText

RoleName = Literal["viewer", "operator", "queue-admin", "platform-admin"]


class TokenScope(ApiModel):
    """A role in the subtree of a queue or cohort, by name or path; without `node` in the whole tree."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    role: RoleName
    node: StorableText = Field(default="", max_length=600)


class TokenRequest(ApiModel):
    """A token to be made. `expiresIn`: seconds, or a duration such as 90d; without it it does not expire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    name: StorableText = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    scopes: list[TokenScope] = Field(min_length=1, max_length=50)
    expires_in: int | str | None = None
    reason: StorableText = Field(default="", max_length=2000)


class Token(ApiModel):
    """A token, without itself: nobody keeps that. `used` is up to a minute old."""

    id: int
    name: str
    scopes: list[TokenScope]
    created: datetime
    created_by: str
    expires: datetime | None
    used: datetime | None
    revoked: datetime | None
    revoked_by: str


class NewToken(Token):
    """The only answer that holds the token itself."""

    token: str
