"""Applies and exports the configuration: everything of a request or nothing, with every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from queue_manager.config.export import export
from queue_manager.config.models import ConfigObject
from queue_manager.config.parse import ParseResult, parse
from queue_manager.config.problem import Problem
from queue_manager.config.validate import advise, validate
from queue_manager.store import records
from queue_manager.store.records import StaleConfiguration

from ..context import Context, Loaded
from ..paging import Page
from ..problems import ProblemError, not_found
from .schemas import Applied, Document, Finding, ObjectChange, RevisionEntry

T = TypeVar("T")
Key = tuple[str, str, str]
"""(kind, namespace, name)."""

_TRIES = 5
ANONYMOUS = "local"
"""Who acts while there is no authentication."""


def export_text(context: Context) -> tuple[int, str]:
    """The revision and the whole configuration as YAML."""
    loaded = context.configuration()
    return loaded.revision, export(loaded.objects)


def apply_text(
    context: Context,
    text: str,
    *,
    file: str = "",
    owner: str = "",
    prune: bool = False,
    reason: str = "",
    expected: int | None = None,
) -> Applied:
    """Creates and changes the objects of a YAML text; with `prune` deletes the owner's objects that it lacks."""
    if prune and not owner:
        raise ProblemError(422, "Prune needs an owner", "say by `owner` whose objects may be deleted")
    result = parse(text, file)
    wanted = {item.key for item in result.objects}

    def attempt(loaded: Loaded) -> Applied:
        if expected is not None and expected != loaded.revision:
            raise stale(f"the configuration is at revision {loaded.revision}, not {expected}")
        gone = [_key(row) for row in loaded.stored if prune and row.owner == owner and _key(row) not in wanted]
        return _write(context, loaded, result, gone, owner, reason)

    return _change(context, attempt)


def _change(context: Context, attempt: Callable[[Loaded], T]) -> T:
    """Tries on the newest revision until nobody else (another process) has changed it meanwhile; conditions of the
    request are looked at anew each time."""
    with context.writing:
        for _ in range(_TRIES):
            try:
                return attempt(context.configuration())
            except StaleConfiguration:
                continue
    raise ProblemError(409, "Configuration changes too fast", "try again", headers={"Retry-After": "1"})


def _write(
    context: Context, loaded: Loaded, result: ParseResult, gone: Collection[Key], owner: str, reason: str
) -> Applied:
    merged = {item.key: item for item in loaded.objects if item.key not in gone}
    merged.update((item.key, item) for item in result.objects)
    objects = list(merged.values())
    problems = [*result.errors, *validate(objects, result.broken)]
    if problems:
        raise invalid(problems)
    owners = {_key(row): row.owner for row in loaded.stored}
    revision = context.store.apply_configuration(
        [_record(item, owner or owners.get(item.key, "")) for item in result.objects],
        delete=gone,
        author=ANONYMOUS,
        reason=reason,
        now=context.now(),
        expected_revision=loaded.revision,
        source="api",
    )
    mine = {item.key for item in result.objects}
    advice = [*result.warnings, *(each for each in advise(objects) if _key_of(each) in mine)]
    return Applied(
        revision=revision.number,
        changes=_changes(revision) if revision.number != loaded.revision else [],
        warnings=[Finding(**each.as_dict()) for each in advice],
    )


def _key_of(problem: Problem) -> Key:
    namespace, _, name = problem.name.rpartition("/") if problem.kind == "LocalQueue" else ("", "", problem.name)
    return problem.kind, namespace, name


def _changes(revision: records.Revision) -> list[ObjectChange]:
    actions = {(False, True): "created", (True, True): "changed", (True, False): "deleted"}
    return [
        ObjectChange(
            action=actions[entry["before"] is not None, entry["after"] is not None],  # type: ignore[arg-type]
            kind=entry["kind"],
            namespace=entry["namespace"],
            name=entry["name"],
        )
        for entry in revision.diff
    ]


def invalid(problems: Iterable[Problem]) -> ProblemError:
    """422 with every problem."""
    errors = [each.as_dict() for each in sorted(problems, key=lambda problem: (problem.file, problem.line))]
    title = "Configuration is not valid"
    return ProblemError(422, title, f"{len(errors)} problem(s) found; nothing was changed", errors=errors)


def stale(detail: str) -> ProblemError:
    """412: what the request was made for is not what is there."""
    return ProblemError(412, "Changed in between", f"{detail}; read it again")


def _key(row: records.ConfigObject) -> Key:
    return row.kind, row.namespace, row.name


def _record(item: ConfigObject, owner: str) -> records.ConfigObject:
    kind, namespace, name = item.key
    return records.ConfigObject(kind, name, item.spec_document(), namespace, dict(item.metadata.labels), owner)


def list_objects(context: Context, kind: str, cursor: str, limit: int) -> Page[Document]:
    """Objects of a kind by namespace and name; the cursor is the last one's."""
    found = sorted((item for item in context.configuration().objects if item.kind == kind), key=_place)
    later = [item for item in found if _place(item) > tuple(cursor.split("\n"))] if cursor else found
    page = later[:limit]
    return Page(items=[_document(item) for item in page], next="\n".join(_place(page[-1])) if later[limit:] else None)


def _place(item: ConfigObject) -> tuple[str, ...]:
    return item.metadata.namespace, item.name


def _document(item: ConfigObject) -> Document:
    return Document.model_validate(item.document())


def get_object(context: Context, key: Key) -> tuple[int, Document]:
    """The revision of an object's last change, and the object."""
    loaded = context.configuration()
    row, item = _find(loaded, key)
    return row.revision, _document(item)


def _find(loaded: Loaded, key: Key) -> tuple[records.ConfigObject, ConfigObject]:
    row = next((row for row in loaded.stored if _key(row) == key), None)
    item = next((item for item in loaded.objects if item.key == key), None)
    if row is None or item is None:
        kind, namespace, name = key
        raise not_found(kind, f"{namespace}/{name}" if namespace else name)
    return row, item


def put_object(context: Context, key: Key, text: str, if_match: str, if_none_match: str) -> tuple[bool, int, Document]:
    """Creates or replaces one object: whether it is new, its revision, itself."""
    result = parse(text)
    _must_be(key, result)

    def attempt(loaded: Loaded) -> tuple[bool, int, Document]:
        row = next((row for row in loaded.stored if _key(row) == key), None)
        _check_match(row, if_match, if_none_match)
        _write(context, loaded, result, (), "", "")
        return row is None, *get_object(context, key)

    return _change(context, attempt)


def _must_be(key: Key, result: ParseResult) -> None:
    if result.errors:
        raise invalid(result.errors)
    if [item.key for item in result.objects] != [key]:
        kind, namespace, name = key
        what = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        raise ProblemError(422, "Another object", f"the body must be exactly one object, the {what} of the URL")


def delete_object(context: Context, key: Key, if_match: str) -> None:
    """Deletes one object; 422 with the reasons when others need it."""

    def attempt(loaded: Loaded) -> None:
        row, _ = _find(loaded, key)
        _check_match(row, if_match, "")
        _write(context, loaded, ParseResult(), (key,), "", "")

    _change(context, attempt)


def etag(revision: int) -> str:
    """Strong entity tag of a revision."""
    return f'"{revision}"'


def _check_match(row: records.ConfigObject | None, if_match: str, if_none_match: str) -> None:
    if if_none_match.strip() == "*" and row is not None:
        raise stale("it exists already")
    if if_match and (row is None or (if_match.strip() != "*" and etag(row.revision) not in _tags(if_match))):
        raise stale("it is at another revision" if row else "it does not exist")


def _tags(header: str) -> list[str]:
    return [tag.strip() for tag in header.split(",")]


def expected_revision(if_match: str) -> int | None:
    """The revision that an If-Match of the whole configuration names, None when it names none."""
    tag = if_match.strip()
    if not tag or tag == "*":
        return None
    number = tag.strip('"')
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise stale(f"{tag[:40]} is no revision")
    return int(number)


def list_revisions(context: Context, cursor: str, limit: int) -> Page[RevisionEntry]:
    """Revisions, newest first."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise ProblemError(400, "Bad cursor", "use `next` of the page before, as it was given")
    found: Sequence[records.Revision] = context.store.revisions(limit + 1, int(cursor) if cursor else None)
    page = found[:limit]
    items = [RevisionEntry(number=r.number, author=r.author, at=r.at, reason=r.reason, diff=_diff(r)) for r in page]
    return Page(items=items, next=str(page[-1].number) if len(found) > limit else None)


def _diff(revision: records.Revision) -> list[dict[str, Any]]:
    return [dict(entry) for entry in revision.diff]
