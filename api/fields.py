"""`fields`: answers with only what was asked for. `fields=name,state,podGroups.podSets.count` keeps these."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from fastapi import Query, Response
from pydantic import BaseModel

from queue_manager.config.problem import nearest_or_list

from .problems import ProblemError

Fields = Annotated[
    str,
    Query(
        max_length=2000,
        description="Only these fields of each object, comma separated; `a.b` is field b of a",
        examples=["name,state,podGroups.podSets.count"],
    ),
]
Selection = dict[str, "Selection | None"]
"""Names that are kept, each with what is kept below it; None: everything."""


def select(fields: str, model: type[BaseModel]) -> Selection | None:
    """What `fields` asks of a model's JSON; None for everything. 400 names what is not a field, and the nearest."""
    chosen: Selection = {}
    for path in filter(None, (each.strip() for each in fields.split(","))):
        _add(chosen, path, model)
    return chosen or None


def _add(chosen: Selection, path: str, model: type[BaseModel]) -> None:
    here: Selection = chosen
    *above, last = steps = path.split(".")
    _check(steps, model)
    for step in above:
        below = here.setdefault(step, {})
        if below is None:
            return  # all of it is wanted already
        here = below
    here[last] = None


def _check(steps: Sequence[str], model: type[BaseModel]) -> None:
    known: type[BaseModel] | None = model
    for depth, step in enumerate(steps):
        assert known is not None
        names = {field.serialization_alias or name: field for name, field in known.model_fields.items()}
        if step not in names:
            where = f" of {'.'.join(steps[:depth])}" if depth else ""
            hint = nearest_or_list(step, names, "field")
            raise ProblemError(400, "Unknown field", f"fields: there is no field {step!r}{where}; {hint}")
        known, free = _below(names[step].annotation)
        if known is None:
            if not free and depth + 1 < len(steps):
                path = ".".join(steps[: depth + 1])
                raise ProblemError(400, "Unknown field", f"fields: {path} has no fields of its own")
            return


def _below(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a field holds, or a list of, or perhaps; and whether it holds names that are nowhere listed."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType, list, Sequence, tuple, Annotated):
        found = [_below(each) for each in get_args(annotation)]
        return next((model for model, _ in found if model is not None), None), any(free for _, free in found)
    return None, origin in (dict, Mapping) or annotation in (dict, Any)


def project(value: Any, selection: Selection | None) -> Any:
    """The chosen part of a JSON value; lists are gone through."""
    if selection is None:
        return value
    if isinstance(value, list):
        return [project(item, selection) for item in value]
    if isinstance(value, dict):
        return {name: project(value[name], below) for name, below in selection.items() if name in value}
    return value


def json_response(content: bytes | str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer whose JSON is there already."""
    return Response(content, status, headers, "application/json")


def answer(value: BaseModel, selection: Selection | None, headers: Mapping[str, str] | None = None) -> Response:
    """One object, or what was asked for of it."""
    encoded = value.model_dump_json(by_alias=True)
    if selection is not None:
        return json_response(msgspec.json.encode(project(msgspec.json.decode(encoded), selection)), headers=headers)
    return json_response(encoded, headers=headers)


def answer_with_items(value: BaseModel, selection: Selection | None) -> Response:
    """An object that holds a list, or what was asked for of each of its items."""
    encoded = value.model_dump_json(by_alias=True)
    if selection is None:
        return json_response(encoded)
    decoded = msgspec.json.decode(encoded)
    return json_response(msgspec.json.encode({**decoded, "items": project(decoded["items"], selection)}))


def page(items: Sequence[bytes], following: str | None, selection: Selection | None) -> Response:
    """A page of objects that are JSON already, or what was asked for of each."""
    if selection is not None:
        items = [msgspec.json.encode(project(msgspec.json.decode(item), selection)) for item in items]
    return json_response(b'{"items":[' + b",".join(items) + b'],"next":' + msgspec.json.encode(following) + b"}")


def page_of(items: Sequence[BaseModel], following: str | None, selection: Selection | None) -> Response:
    """A page of models, or what was asked for of each."""
    return page([item.model_dump_json(by_alias=True).encode() for item in items], following, selection)
