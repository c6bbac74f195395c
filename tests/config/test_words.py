"""Errors are told in words of ours: every field of every kind, wrong in every way."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from queue_manager.config.models import KINDS
from queue_manager.config.parse import parse_objects

PYDANTIC = re.compile(
    r"Input|should|String|Value error|Field required|Extra inputs|validation|valid (string|list|dict)"
)
"""Words of the validator's own messages."""
RIGHT = re.compile(
    r"must|needs|valid YAML|not JSON|there is no|at most|at least|allowed|write|needed|one of|mean|known|no .* yet"
    r"|takes? no|belongs|remove|more than|only"
)
"""What would be right is in the hint, or in the message itself."""
WRONG = (True, 3, 1.5, -(10**40), "", " ", "x y", "ü", "a" * 300, [], [1], {}, {"a": 1}, [[]], "\u0000")


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models(argument)


def smallest(model: type[BaseModel]) -> dict[str, Any]:
    """What has every field that is needed, each with a value of the right shape."""
    return {
        str(info.alias or name): value_of(info.annotation)
        for name, info in model.model_fields.items()
        if info.is_required()
    }


def value_of(annotation: Any) -> Any:
    if inner := next(models(annotation), None):
        return [smallest(inner)] if typing.get_origin(annotation) is list else smallest(inner)
    if typing.get_origin(annotation) is list:
        return ["a"]
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)[0]
    return {int: 1}.get(annotation, "a" if annotation is not Any else {})


def spots(model: type[BaseModel], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for name, info in model.model_fields.items():
        step = (*path, str(info.alias or name))
        yield step
        for inner in models(info.annotation):
            yield from spots(inner, (*step, 0) if "list[" in str(info.annotation) else step)


def with_value(kind: str, path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    document = {"apiVersion": "queue-manager.io/v1", **smallest(KINDS[kind]), "kind": kind}
    model: type[BaseModel] = KINDS[kind]
    here: Any = document
    for number, step in enumerate(path[:-1]):
        following = path[number + 1]
        if isinstance(step, str):
            fields = {str(info.alias or name): info for name, info in model.model_fields.items()}
            if inner := next(models(fields[step].annotation), None):
                model = inner
            here = here.setdefault(step, [smallest(model)] if following == 0 else smallest(model))
        else:
            here = here[step]
    if value is MISSING:
        here.pop(path[-1], None)
    else:
        here[path[-1]] = value
    return document


MISSING = object()


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_in_the_words_of_the_validator(kind: str):
    told = set()
    for path in spots(KINDS[kind]):
        for value in (*WRONG, MISSING):
            found = parse_objects([with_value(kind, path, value)])
            told |= {(problem.field, problem.message, problem.hint) for problem in found.errors}
    assert len(told) > 30
    assert [each for each in told if PYDANTIC.search(f"{each[1]} {each[2]}")] == []
    assert [each for each in told if not RIGHT.search(f"{each[1]} {each[2]}")] == []
