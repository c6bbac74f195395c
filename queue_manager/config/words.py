"""What pydantic finds wrong, in words of ours: what is wrong with a value, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from queue_manager.config.fields import describe
from queue_manager.config.problem import nearest
from queue_manager.config.source import Numeral

TYPES: Mapping[str, str] = {
    "string": "text",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "bool": "true or false",
    "int": "a whole number",
    "int_from_float": "a whole number",
    "float": "a number",
    "literal": "text",
}
"""What a type of pydantic's is to people; the names of its errors are these with `_type` or `_parsing` behind."""
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "{value} is too small, at least {bound} is allowed"),
    "greater_than": ("gt", "{value} is too small, more than {bound} is needed"),
    "less_than_equal": ("le", "{value} is too large, at most {bound} is allowed"),
    "less_than": ("lt", "{value} is too large, less than {bound} is needed"),
}
_SAID = "Value error, "
"""What pydantic puts before the text of a ValueError."""


def worded(kind: str, value: Any, context: Mapping[str, Any], message: str) -> tuple[str, str]:
    """What is wrong and what would be right, of an error of pydantic: its type, the value that was given, its `ctx`,
    its own message. The message stands where there is nothing better to say."""
    base = kind.removesuffix("_type").removesuffix("_parsing")
    if kind == "wrong":
        return context["text"], context["hint"]
    if kind == "value_error":
        return message.removeprefix(_SAID), ""
    if kind == "missing":
        return "is missing", ""
    if kind in ("literal_error", "enum"):
        return _choice(value, re.findall(r"'([^']*)'", str(context["expected"])))
    if kind in ("int_type", "int_parsing_size"):
        digits = value.text if isinstance(value, Numeral) else str(value)
        if (digits := digits.lstrip("+-")).isdigit():
            return f"a number of {len(digits)} digits is out of bounds", "write one of at most 18 digits"
    if kind in _BOUNDS:
        bound, text = _BOUNDS[kind]
        return text.format(value=value, bound=context[bound]), ""
    if kind in ("too_short", "string_too_short", "too_long", "string_too_long"):
        return _length(kind, value, context)
    if kind == "json_invalid":
        return f"the body is not JSON: {context.get('error', message)}", ""
    if base in TYPES:
        return f"must be {TYPES[base]}, is {describe(value)}", ""
    return message, ""


def needed(field: FieldInfo) -> str:
    """What a field that is missing wants."""
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    schema = TypeAdapter(annotation).json_schema()
    if "properties" in schema:
        return f"a mapping is needed, with {', '.join(schema.get('required') or schema['properties'])}"
    if choices := schema.get("enum"):
        return f"one of {', '.join(choices)}"
    if described := schema.get("description"):
        return f"write one: {described.partition(': ')[2] or described}"
    return f"{SCHEMA_TYPES[schema['type']]} is needed"


SCHEMA_TYPES = {"string": "text", "array": "a list", "object": "a mapping", "integer": "a whole number"}


def _choice(value: Any, known: list[str]) -> tuple[str, str]:
    text = value if isinstance(value, str) else None
    near = nearest(text, known) if text else ""
    named = ", ".join(each or '""' for each in known)
    what = f"is {describe(value)}" if text is None else f"{text[:60]!r} is not allowed here"
    return what, (f"one of {named}" if len(known) > 1 else f"write {named}") + (f"; {near}" if near else "")


def _length(kind: str, value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    things = "characters" if kind.startswith("string") else "items"
    if kind.endswith("long"):
        has = context.get("actual_length", len(value) if isinstance(value, str | list) else "too many")
        return f"has {has} {things}, at most {context['max_length']} are allowed", ""
    least = context["min_length"]
    return "must not be empty", "" if least <= 1 else f"at least {least} {things} are needed"
