"""Single objects: lists, reading, replacing, merging, deleting; who changes one says which state of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_manager.config.models import ConfigObject
from queue_manager.config.parse import ParseResult, parse, parse_objects
from queue_manager.config.source import read_documents
from queue_manager.store import records

from ..context import Context, Loaded
from ..paging import Page, Place, page_by
from ..problems import ProblemError, not_found
from . import service
from .schemas import Document
from .service import Key


@dataclass(frozen=True, slots=True)
class Match:
    """What a request says of the object that it was made for: If-Match and If-None-Match."""

    tag: str = ""
    none: str = ""


def list_objects(context: Context, kind: str, sort: str, cursor: str, limit: int, text: str = "") -> Page[Document]:
    """Objects of a kind by namespace and name, of which a part is `text`."""
    loaded = context.configuration()
    access = context.access_by(loaded)
    found = (item for item in loaded.objects if item.kind == kind and access.sees_object(item))
    named = [item for item in found if text in "/".join(filter(None, _place(item)))]
    page, following = page_by(named, {"name": _place}, sort, cursor, limit)
    return Page(items=[_document(item) for item in page], next=following)


def _place(item: ConfigObject) -> Place:
    return item.metadata.namespace, item.name


def _document(item: ConfigObject) -> Document:
    return Document.model_validate(item.document())


def get_object(context: Context, key: Key) -> tuple[int, Document]:
    """The revision of an object's last change, and the object."""
    loaded = context.configuration()
    row, item = _find(loaded, key)
    return row.revision, _document(item)


def _find(loaded: Loaded, key: Key) -> tuple[records.ConfigObject, ConfigObject]:
    row = next((row for row in loaded.stored if service.key_of(row) == key), None)
    item = next((item for item in loaded.objects if item.key == key), None)
    if row is None or item is None:
        kind, namespace, name = key
        raise not_found(kind, f"{namespace}/{name}" if namespace else name)
    return row, item


def put_object(context: Context, key: Key, text: str, match: Match, reason: str = "") -> tuple[bool, int, Document]:
    """Creates or replaces one object: whether it is new, its revision, itself."""
    result = parse(text)
    _must_be(key, result)

    def attempt(loaded: Loaded) -> tuple[bool, int, Document]:
        row = next((row for row in loaded.stored if service.key_of(row) == key), None)
        _check(row, match)
        service.write(context, service.propose(context, loaded, result, (), ""), reason)
        return row is None, *get_object(context, key)

    return service.change(context, attempt)


def patch_object(context: Context, key: Key, text: str, match: Match, reason: str = "") -> tuple[int, Document]:
    """Merges fields into one object (RFC 7396: null takes a field away, a list replaces the list that was there)."""
    documents, problems = read_documents(text, "")
    if problems:
        raise service.invalid(problems)
    if len(documents) != 1 or not isinstance(documents[0].content, dict):
        raise ProblemError(422, "No patch", "the body must be one object that holds the fields to change")
    patch = documents[0].content

    def attempt(loaded: Loaded) -> tuple[int, Document]:
        row, item = _find(loaded, key)
        _check(row, match)
        result = parse_objects([merge_patch(item.document(), patch)])
        _must_be(key, result)
        service.write(context, service.propose(context, loaded, result, (), ""), reason)
        return get_object(context, key)

    return service.change(context, attempt)


def merge_patch(target: Any, patch: Any) -> Any:
    """The target after a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _must_be(key: Key, result: ParseResult) -> None:
    if result.errors:
        raise service.invalid(result.errors)
    if [item.key for item in result.objects] != [key]:
        kind, namespace, name = key
        what = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        raise ProblemError(422, "Another object", f"the body must be exactly one object, the {what} of the URL")


def delete_object(context: Context, key: Key, match: Match, reason: str = "") -> None:
    """Deletes one object; 422 with the reasons when others need it."""

    def attempt(loaded: Loaded) -> None:
        row, _ = _find(loaded, key)
        _check(row, match)
        service.write(context, service.propose(context, loaded, ParseResult(), (key,), ""), reason)

    service.change(context, attempt)


def _check(row: records.ConfigObject | None, match: Match) -> None:
    """412 where the object is not what the request was made for, 428 where the request does not say what that is."""
    if match.none.strip() == "*" and row is not None:
        raise service.stale("it exists already")
    if match.tag and (row is None or (match.tag.strip() != "*" and service.etag(row.revision) not in _tags(match.tag))):
        raise service.stale("it is at another revision" if row else "it does not exist")
    if row is not None and not match.tag:
        tag = service.etag(row.revision)
        hint = f"send If-Match with the ETag that you have read (now {tag}), or * for whatever is there"
        raise ProblemError(428, "If-Match needed", f"the object exists, and others may change it too: {hint}")


def _tags(header: str) -> list[str]:
    return [tag.strip() for tag in header.split(",")]
