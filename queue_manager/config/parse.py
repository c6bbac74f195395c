"""From YAML text to configuration objects: every problem of every object, not the first."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from queue_manager.config import kueue
from queue_manager.config.fields import describe
from queue_manager.config.models import API_VERSION, KINDS, ConfigObject, Source
from queue_manager.config.names import check_name, check_text
from queue_manager.config.problem import Problem, nearest_or_list
from queue_manager.config.source import Document, LinedDict, LinedList, line_of, read_documents
from queue_manager.config.words import needed, worded

Path = Sequence[str | int]

ALIASES = {
    "Queue": {"cohortName": "cohort"},
    "Cohort": {"parentName": "parent"},
    "LocalQueue": {"clusterQueue": "queue"},
}
"""Kueue's names of spec fields that have a better one here; both are read."""


@dataclass(frozen=True, slots=True)
class ParseResult:
    """`objects` are those without errors. `broken` are keys of the others, as far as they can be told, and `partial`
    these others without their wrong fields (a wrong name stays), so that what else is wrong with them can be told at
    once."""

    objects: tuple[ConfigObject, ...] = ()
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    broken: frozenset[tuple[str, str, str]] = frozenset()
    partial: tuple[ConfigObject, ...] = ()


@dataclass(slots=True)
class _Collector:
    objects: list[ConfigObject] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    broken: set[tuple[str, str, str]] = field(default_factory=set)
    partial: list[ConfigObject] = field(default_factory=list)
    any_name: bool = False

    def result(self) -> ParseResult:
        return ParseResult(
            tuple(self.objects), tuple(self.errors), tuple(self.warnings), frozenset(self.broken), tuple(self.partial)
        )


def parse(text: str, file: str = "") -> ParseResult:
    """Reads all objects of a YAML or JSON text. `file` is only for messages."""
    documents, problems = read_documents(text, file)
    collector = _Collector(errors=problems)
    for document in documents:
        _read(document, collector)
    _refuse_duplicates(collector)
    return collector.result()


def parse_objects(contents: Iterable[Any], file: str = "", *, any_name: bool = False) -> ParseResult:
    """The same for objects that are decoded already (a JSON body, rows of the store, objects of a scenario).

    With `any_name` a name may be any text: what is only thought of need not fit into a cluster.
    """
    collector = _Collector(any_name=any_name)
    for content in contents:
        _read(Document(file, 0, _with_lines(content)), collector)
    _refuse_duplicates(collector)
    return collector.result()


def _with_lines(value: Any) -> Any:
    if isinstance(value, dict):
        mapping = LinedDict()
        mapping.update((str(key), _with_lines(item)) for key, item in value.items())
        return mapping
    if isinstance(value, list | tuple):
        items = LinedList()
        items.extend(_with_lines(item) for item in value)
        items.lines = [0] * len(items)
        return items
    return value


def _read(document: Document, collector: _Collector) -> None:
    content = document.content
    if not isinstance(content, LinedDict):
        collector.errors.append(
            _problem(document, (), f"must be an object, is {describe(content)}", "start with apiVersion")
        )
        return
    if content.get("kind") == "List" and isinstance(content.get("items"), LinedList):
        for item in content["items"]:
            _read(Document(document.file, getattr(item, "line", document.line), item), collector)
        return
    unstorable = list(_unstorable(content))
    if unstorable:
        hint = "remove it: no database keeps it"
        collector.errors.extend(_problem(document, path, message, hint) for path, message in unstorable)
        collector.broken.add(_key(content) if "kind" in content else ("", "", ""))
        return
    _drop_nulls(content)
    foreign = kueue.is_kueue(content.get("apiVersion"))
    if not _recognise(document, collector):
        return
    kind = content["kind"]
    _rename_aliases(document, collector)
    try:
        model = KINDS[kind].model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        collector.errors.extend(_explain(document, KINDS[kind], detail) for detail in details)
        collector.broken.add(_key(content))
        if partial := _what_is_well(KINDS[kind], content, details):
            partial.with_source(Source(document.file, content, foreign))
            collector.partial.append(partial)
        return
    model.with_source(Source(document.file, content, foreign))
    problems = list(_check_identity(model, collector.any_name))
    collector.errors.extend(_problem(document, path, message, hint) for path, message, hint in problems)
    if problems:
        collector.broken.add(model.key)
        if model.name and model.namespaced == bool(model.metadata.namespace):
            collector.partial.append(model)
    else:
        collector.objects.append(model)


def _what_is_well(model: type[ConfigObject], content: LinedDict, details: Sequence[Any]) -> ConfigObject | None:
    """A broken object without the fields of its spec that are wrong, for what only others can tell of the rest; None
    where more than the spec is wrong. Limits of quota mean something only beside the name of the cohort."""
    wrong = {str(detail["loc"][1]) for detail in details if len(detail["loc"]) > 1 and detail["loc"][0] == "spec"}
    if len([detail for detail in details if len(detail["loc"]) > 1 and detail["loc"][0] == "spec"]) < len(details):
        return None
    wrong |= {"resourceGroups"} if wrong & {"cohort", "parent"} else set()
    try:
        return model.model_validate({**content, "spec": {k: v for k, v in content["spec"].items() if k not in wrong}})
    except ValidationError:
        return None


def _recognise(document: Document, collector: _Collector) -> bool:
    """Whether the object is ours; one of Kueue's is one of ours afterwards."""
    content = document.content
    version, kind = content.get("apiVersion"), content.get("kind")
    if kueue.is_kueue(version):
        if isinstance(kind, str) and (kind in kueue.NO_COUNTERPART or kind in kueue.NOT_CONFIGURATION):
            message = f"Kueue's {kind} has no counterpart here ({kueue.NOT_CONFIGURATION.get(kind, 'skipped')})"
            collector.warnings.append(_problem(document, ("kind",), message))
            return False
        if kind in kueue.known_kinds():
            for path, message in kueue.translate(content):
                collector.warnings.append(_problem(document, path, message))
            return True
        known: Iterable[str] = kueue.known_kinds()
    elif version == API_VERSION:
        if isinstance(kind, str) and kind in KINDS:
            return True
        known = KINDS
    else:
        said = describe(version) if "apiVersion" in content else "missing"
        hint = f"write {API_VERSION}; Kueue's own objects are read too"
        collector.errors.append(_problem(document, ("apiVersion",), f"the apiVersion is {said}", hint))
        return False
    if not isinstance(kind, str):
        message = f"the kind is {describe(kind) if 'kind' in content else 'missing'}"
        collector.errors.append(_problem(document, ("kind",), message, "one of " + ", ".join(known)))
    else:
        hint = nearest_or_list(kind, known, "kind")
        collector.errors.append(_problem(document, ("kind",), f"unknown kind {kind!r}", hint))
    return False


def _unstorable(content: LinedDict) -> Iterable[tuple[Path, str]]:
    """Texts, keys too, with a NUL or half a surrogate pair."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), content)]
    for path, value in pending:
        if isinstance(value, str):
            if problem := check_text(value):
                yield path, problem
        elif isinstance(value, dict):
            for key, item in value.items():
                if problem := check_text(key):
                    yield path, f"the key {key!r} {problem}"
                else:
                    pending.append(((*path, key), item))
        elif isinstance(value, list):
            pending.extend(((*path, index), item) for index, item in enumerate(value))


def _drop_nulls(value: Any) -> None:
    # As in the Kubernetes API, a field without a value is a field left out.
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            _drop_nulls(item)
    elif isinstance(value, list):
        for item in value:
            _drop_nulls(item)


def _rename_aliases(document: Document, collector: _Collector) -> None:
    content = document.content
    if content["kind"] == "PriorityClass" and "spec" not in content:
        # Kueue has these beside `metadata`; both places are read.
        spec = LinedDict(content.line)
        for name in [name for name in content if name not in ("apiVersion", "kind", "metadata")]:
            spec.lines[name] = content.lines.get(name, content.line)
            spec[name] = content.pop(name)
        content["spec"] = spec
    spec = content.get("spec")
    if not isinstance(spec, LinedDict):
        return
    if content["kind"] == "Queue":
        kueue.join_checks(spec)
    for alias, name in ALIASES.get(content["kind"], {}).items():
        if alias not in spec:
            continue
        if name in spec:
            message = f"{alias} and {name} are two names of one field"
            collector.errors.append(_problem(document, ("spec", alias), message, f"keep {name}"))
            spec.pop(alias)
        else:
            spec.rename(alias, name)


def _check_identity(model: ConfigObject, any_name: bool) -> Iterable[tuple[Path, str, str]]:
    if not (any_name and model.name) and (problem := check_name(model.name, path=model.path_names)):
        yield ("metadata", "name"), problem, ""
    namespace = model.metadata.namespace
    if model.namespaced and not namespace:
        yield ("metadata", "namespace"), "is missing", f"a {model.kind} belongs to a namespace"
    elif model.namespaced and not any_name and (problem := check_name(namespace)):
        yield ("metadata", "namespace"), problem, ""
    elif namespace and not model.namespaced:
        yield ("metadata", "namespace"), f"a {model.kind} belongs to no namespace", "remove it"
    if model.kind == "Settings" and model.name != "default":
        yield ("metadata", "name"), f"there is only one Settings object, not {model.name!r}", "name it default"


def _refuse_duplicates(collector: _Collector) -> None:
    seen: dict[tuple[str, str, str], ConfigObject] = {}
    for model in [*collector.objects, *collector.partial]:
        first = seen.setdefault(model.key, model)
        if first is not model:
            line = line_of(first.source.content, ())
            hint = f"first in line {line}; remove one" if line else "remove one"
            document = Document(model.source.file, 0, model.source.content)
            collector.errors.append(_problem(document, ("metadata", "name"), "is given twice", hint))


def _key(content: LinedDict) -> tuple[str, str, str]:
    metadata = content.get("metadata")
    if not isinstance(metadata, LinedDict):
        return str(content.get("kind", "")), "", ""
    return str(content["kind"]), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _problem(document: Document, path: Path, message: str, hint: str = "") -> Problem:
    content = document.content
    kind, name = "", ""
    if isinstance(content, LinedDict):
        kind, namespace, name = _key(content) if "kind" in content else ("", "", "")
        name = f"{namespace}/{name}" if namespace else name
    return Problem(
        message,
        hint,
        file=document.file,
        line=line_of(content, path) or document.line,
        kind=kind[:80],
        name=name[:260],
        field=path_text(path),
    )


def path_text(path: Path) -> str:
    """`spec.resourceGroups[0].flavors[1].name` of a path."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"\w+", step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def _explain(document: Document, model: type[ConfigObject], detail: ErrorDetails) -> Problem:
    path = [step for step in detail["loc"] if step != "[key]"]
    message, hint = worded(detail["type"], detail["input"], detail.get("ctx", {}), detail["msg"])
    if detail["type"] == "missing":
        hint = needed(_fields_at(model, path[:-1])[str(path[-1])])
    elif detail["type"] == "extra_forbidden":
        message = f"unknown field {path[-1]!r}"
        hint = nearest_or_list(str(path[-1]), _fields_at(model, path[:-1]), "field")
    return _problem(document, path, message, hint)


def _fields_at(model: type[BaseModel], path: Path) -> dict[str, FieldInfo]:
    current: Any = model
    for step in path:
        if isinstance(step, int):
            continue
        fields = _named(current)
        found = _model_of(fields[step].annotation) if step in fields else None
        if found is None:
            return {}
        current = found
    return _named(current)


def _named(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        if found := _model_of(argument):
            return found
    return None
