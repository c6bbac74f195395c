"""Field types of configuration objects: quantities, durations, labels; the base of all models."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from queue_manager.config.durations import parse_duration
from queue_manager.config.names import check_label_key, check_label_value
from queue_manager.config.source import Numeral
from queue_manager.engine import quantities

LARGEST_AMOUNT = 2**63 - 1


class Model(BaseModel):
    """Base of every part of a configuration object: camelCase on the outside, unknown fields refused, immutable."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True, validate_default=False)


def wrong(message: str, hint: str = "") -> PydanticCustomError:
    """An error of a field with a hint at what would be right."""
    # Braces would be taken for placeholders of pydantic's template.
    return PydanticCustomError("wrong", "{text}", {"text": message, "hint": hint})


def amount(resource: str, text: str) -> int:
    """A quantity in base units of its resource; raises a field error when it is none, negative or too large."""
    try:
        value = _parsed(resource, text)
    except ValueError as error:
        raise wrong(str(error), "write it like 8, 500m, 1.5 or 64Gi") from None
    if value > LARGEST_AMOUNT:
        raise wrong(f"{text} is too large", "at most 2^63 - 1 base units")
    return value


@lru_cache(maxsize=65_536)
def _parsed(resource: str, text: str) -> int:
    # The same few texts come again and again, and exact parsing is slow.
    return quantities.parse(resource, text)


def weight_milli(text: str) -> int:
    """A fair-sharing weight in thousandths."""
    return amount("cpu", text)


def _quantity_text(value: Any) -> Any:
    if isinstance(value, Numeral):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong(f"must be a quantity, is {describe(value)}", "write it like 8, 500m, 1.5 or 64Gi")
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)


def describe(value: Any) -> str:
    """What a value is, in words of YAML."""
    match value:
        case None:
            return "empty"
        case bool():
            return f"{str(value).lower()}"
        case int() | float():
            return f"the number {str(getattr(value, 'text', value))[:60]}"
        case str():
            return f"the text {value[:60]!r}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"


def _checked_duration(text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as error:
        raise wrong(str(error)) from None
    return text


def _duration_text(value: Any) -> Any:
    return "0" if type(value) is int and value == 0 else value


def factor(text: str) -> Fraction:
    """A quantity as an exact number, of any sign; raises a field error when it is none."""
    try:
        return quantities.exact(text)
    except ValueError as error:
        raise wrong(str(error), "write it like 1, 0.5, -2 or 10Gi") from None


def _checked_factor(text: str) -> str:
    factor(text)
    return text


def _checked_weight(text: str) -> str:
    hint = "write it like 1, 0.5 or 3"
    try:
        negative = quantities.exact(text) < 0
    except ValueError as error:
        raise wrong(str(error), hint) from None
    if negative:
        raise wrong(f"{text!r} is negative; a weight is at least 0", hint)
    weight_milli(text)
    return text


def _checked_key(key: str) -> str:
    if problem := check_label_key(key):
        raise wrong(problem)
    return key


def _checked_value(value: str) -> str:
    if problem := check_label_value(value):
        raise wrong(problem)
    return value


def _label_text(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        written = getattr(value, "text", str(value).lower())
        raise wrong(f"must be text, is {describe(value)}", f'put it in quotes: "{written[:60]}"')
    return value


Quantity = Annotated[
    str,
    BeforeValidator(_quantity_text),
    WithJsonSchema({"type": ["string", "number"], "description": "Quantity: 8, 500m, 1.5, 64Gi"}),
]
Factor = Annotated[Quantity, AfterValidator(_checked_factor)]
Weight = Annotated[Quantity, AfterValidator(_checked_weight)]
Duration = Annotated[
    str,
    BeforeValidator(_duration_text),
    AfterValidator(_checked_duration),
    WithJsonSchema({"type": "string", "description": "Duration: 90m, 36h, 1h30m"}),
]
Text = Annotated[str, BeforeValidator(_label_text)]
LabelKey = Annotated[str, AfterValidator(_checked_key)]
LabelValue = Annotated[str, BeforeValidator(_label_text), AfterValidator(_checked_value)]
Labels = dict[LabelKey, LabelValue]
Integer = StrictInt
Priority = Annotated[StrictInt, Field(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]
Boolean = StrictBool
