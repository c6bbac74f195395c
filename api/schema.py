"""Base of the response models."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from queue_manager.config.names import check_text


class ApiModel(BaseModel):
    """camelCase in JSON, snake_case in Python."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def _storable(text: str) -> str:
    if problem := check_text(text):
        raise ValueError(f"{problem}: remove it")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


StorableText = Annotated[str, AfterValidator(_storable)]
"""Text that a database keeps: no NUL."""
Reason = Annotated[StorableText, AfterValidator(_not_blank)]
"""Text that says something."""
