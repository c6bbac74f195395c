"""`/api/v1/audit`: who did what, when, from where and why."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from queue_manager.store.audits import AuditEntry, Place, Wanted

from ..context import Ctx
from ..fields import Fields, page_of, select
from ..moments import From, To, span
from ..paging import Cursor, Limit, Page, bad_cursor
from ..schema import ApiModel

router = APIRouter(prefix="/audit", tags=["audit"])

Word = Annotated[str, Query(max_length=600)]
Prefix = Annotated[
    str, Query(max_length=600, description="Beginning of an object's name: workload/team/, Queue/nlp, token/ ...")
]


class AuditLine(ApiModel):
    """`source` says how somebody proved who they are, `address` where the request came from."""

    id: int
    at: datetime
    who: str
    action: str
    object: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    source: str
    address: str
    reason: str


FIELDS = tuple(AuditLine.model_fields)


@router.get("", response_model=Page[AuditLine])
def search_audit(
    context: Ctx,
    who: Word = "",
    action: Word = "",
    object: Prefix = "",
    since: From = "",
    until: To = "",
    sort: Annotated[Literal["at", "-at"], Query(description="With `-` the newest first")] = "-at",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """Lines of the audit log, newest first unless `sort` says otherwise; every filter narrows the list."""
    selection = select(fields, AuditLine)
    wanted = Wanted(who, action, object, *span(since, until, context.now()), oldest_first=sort == "at")
    found = context.store.access.audit_page(wanted, _place(cursor), limit + 1)
    page = found[:limit]
    following = f"{page[-1].at.astimezone(UTC).isoformat()}~{page[-1].id}" if len(found) > limit else None
    return page_of([_line(entry) for entry in page], following, selection)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}, "text/csv": {}}}},
)
def export_audit(
    context: Ctx,
    format: Literal["ndjson", "csv"] = "ndjson",
    who: Word = "",
    action: Word = "",
    object: Prefix = "",
    since: From = "",
    until: To = "",
) -> StreamingResponse:
    """The same as a file, as long as it may be: a line of JSON, or a row of CSV, for each line."""
    entries = context.store.access.audit_all(Wanted(who, action, object, *span(since, until, context.now())))
    lines = _csv(entries) if format == "csv" else _ndjson(entries)
    media = "text/csv; charset=utf-8" if format == "csv" else "application/x-ndjson"
    name = f"audit.{format}"
    return StreamingResponse(lines, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _line(entry: AuditEntry) -> AuditLine:
    return AuditLine.model_validate(entry, from_attributes=True)


def _ndjson(entries: Iterable[AuditEntry]) -> Iterator[str]:
    return (_line(entry).model_dump_json(by_alias=True) + "\n" for entry in entries)


def _csv(entries: Iterable[AuditEntry]) -> Iterator[str]:
    yield _row(FIELDS)
    for entry in entries:
        yield _row([_cell(getattr(entry, name)) for name in FIELDS])


def _row(cells: Iterable[object]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value  # spreadsheets would run it
    return "" if value is None else value


def _place(cursor: str) -> Place | None:
    if not cursor:
        return None
    at, _, number = cursor.partition("~")
    try:
        place = datetime.fromisoformat(at), int(number)
        if place[0].tzinfo is None or not 0 <= place[1] < 2**63:
            raise ValueError
    except ValueError:
        raise bad_cursor() from None
    return place
