"""Tokens as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from queue_manager.config.names import check_name

from ..schema import ApiModel, StorableText

RoleName = Literal["viewer", "operator", "queue-admin", "platform-admin"]


def _is_name(text: str) -> str:
    if problem := check_name(text):
        raise ValueError(problem)
    return text


NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
TokenName = Annotated[StorableText, AfterValidator(_is_name)]


def _lasting(value: object) -> object:
    """Before the types are looked at: they would take true for 1, and name each type as a field of its own."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
        raise ValueError("must be a whole number of seconds, or a duration such as 90d")
    return value


Lasting = Annotated[int | str | None, BeforeValidator(_lasting)]


class TokenScope(ApiModel):
    """A role in the subtree of a queue or cohort, by name or path; without `node` in the whole tree."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    role: RoleName
    node: StorableText = Field(default="", max_length=600)


class TokenRequest(ApiModel):
    """A token to be made. `expiresIn`: seconds, or a duration such as 90d; without it it does not expire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    name: TokenName = Field(min_length=1, max_length=63, json_schema_extra={"pattern": NAME_PATTERN})
    scopes: list[TokenScope] = Field(min_length=1, max_length=50)
    expires_in: Lasting = None
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
