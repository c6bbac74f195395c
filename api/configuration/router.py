"""`/api/v1/config`, `/api/v1/revisions`, `/api/v1/schema` and the objects of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from queue_manager.config.json_schema import configuration_schema
from queue_manager.config.source import MAX_BYTES
from queue_manager.store.configurations import Chosen

from ..auth.decisions import KINDS
from ..context import Ctx
from ..fields import Fields, answer, page_of, select
from ..moments import From, To, span
from ..paging import SORTED, Cursor, Limit, Page
from ..planning import service as planning
from ..problems import MEDIA_TYPE, ProblemError
from . import examples, objects, service
from .schemas import Applied, Difference, Document, Plan, RevisionEntry

router = APIRouter(tags=["configuration"])

YAML = "application/yaml"
MERGE_PATCH = "application/merge-patch+json"
_TEXT_SCHEMA = {"type": "string", "description": "One or more documents; Kueue's own objects are read too"}


def _example(media_type: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {media_type: {"schema": schema, "example": example}}


def _takes(*contents: dict[str, Any]) -> dict[str, Any]:
    """A body for the OpenAPI document; what it is read as is decided here, not by FastAPI."""
    return {
        "requestBody": {"required": True, "content": {key: item for each in contents for key, item in each.items()}}
    }


def _answers(example: Any, *, status: int = 200, invalid: bool = True) -> dict[int | str, dict[str, Any]]:
    answers: dict[int | str, dict[str, Any]] = {status: {"content": {"application/json": {"example": example}}}}
    if invalid:
        answers[422] = {
            "description": "Not valid: every error, with file, line, object and field; nothing was changed",
            "content": {MEDIA_TYPE: {"example": examples.PROBLEM}},
        }
    return answers


_AS_YAML = _example(YAML, _TEXT_SCHEMA, examples.TEXT)
_AS_JSON = _example("application/json", {"type": "object"}, examples.OBJECTS["Cohort"])
_CONFIG = _takes(_AS_YAML, _AS_JSON)
STALE: dict[int | str, dict[str, Any]] = {412: {"description": "It has changed in between"}}
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is none"}}

IfMatch = Annotated[str, Header(max_length=1000)]
File = Annotated[str, Query(max_length=600, description="Name of the file, for messages")]
Name = Annotated[str, Query(max_length=600, description="Part of the name, or of `namespace/name`")]
Owner = Annotated[str, Query(max_length=253, description="Whose objects these are")]
Prune = Annotated[bool, Query(description="Delete objects of this owner that the body lacks")]
Why = Annotated[str, Query(max_length=2000, description="Why, for the revision")]
IfPlan = Annotated[
    str, Query(alias="ifPlan", max_length=100, description="Hash of a plan: apply only if that still is the plan")
]
Number = Annotated[int, Path(ge=0, le=2**62, description="Number of a revision; 0 is the empty configuration")]


async def body_text(request: Request) -> str:
    """The body as text, whatever its media type says: JSON is YAML too."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise ProblemError(413, "Body too large", f"at most {MAX_BYTES // 2**20} MiB are read")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(400, "Body is not UTF-8", f"at byte {error.start}") from None


Text = Annotated[str, Depends(body_text)]


@router.get(
    "/config", response_class=Response, responses={200: {"content": _example(YAML, _TEXT_SCHEMA, examples.TEXT)}}
)
def get_config(context: Ctx) -> Response:
    """The whole configuration as YAML that `put` reads."""
    revision, text = service.export_text(context)
    return Response(text, media_type=YAML, headers={"ETag": service.etag(revision)})


@router.put("/config", openapi_extra=_CONFIG, responses={**_answers(examples.APPLIED), **STALE})
async def put_config(
    context: Ctx,
    text: Text,
    response: Response,
    file: File = "",
    owner: Owner = "",
    prune: Prune = False,
    reason: Why = "",
    if_plan: IfPlan = "",
    if_match: IfMatch = "",
) -> Applied:
    """Creates or changes the objects of the body: all of them, or none when anything is wrong."""
    expected = service.expected_revision(if_match)
    proposing = await run_in_threadpool(service.of_text, text, file=file, owner=owner, prune=prune, expected=expected)
    if if_plan:
        applied = await planning.apply_if(context, proposing, if_plan, reason)
    else:
        applied = await run_in_threadpool(service.apply, context, proposing, reason)
    response.headers["ETag"] = service.etag(applied.revision)
    return applied


@router.post("/config/diff", openapi_extra=_CONFIG, responses=_answers(examples.DIFFERENCE))
def diff_config(context: Ctx, text: Text, file: File = "", owner: Owner = "", prune: Prune = False) -> Difference:
    """What applying the body would change, field by field. Changes nothing."""
    return planning.difference(context, service.of_text(text, file=file, owner=owner, prune=prune))


@router.post("/config/plan", openapi_extra=_CONFIG, responses=_answers(examples.PLAN))
async def plan_config(context: Ctx, text: Text, file: File = "", owner: Owner = "", prune: Prune = False) -> Plan:
    """What applying the body would change, and whom that hurts or helps at this moment. Changes nothing."""
    proposing = await run_in_threadpool(service.of_text, text, file=file, owner=owner, prune=prune)
    return await planning.plan(context, proposing)


@router.get("/schema", response_class=JSONResponse)
def get_schema() -> dict[str, Any]:
    """JSON Schema of a configuration object of any kind, for editors and checks."""
    return configuration_schema()


@router.get("/revisions", response_model=Page[RevisionEntry])
def list_revisions(
    context: Ctx,
    author: Annotated[str, Query(max_length=600, description="Who made it")] = "",
    since: From = "",
    until: To = "",
    kind: Annotated[str, Query(max_length=100, description="That touched an object of this kind")] = "",
    object: Annotated[
        str,
        Query(
            max_length=600,
            description="That touched this object, called as in the audit log",
            examples=["Queue/nlp", "LocalQueue/team/default"],
        ),
    ] = "",
    sort: Annotated[Literal["number", "-number"], Query(description="With `-` the newest first")] = "-number",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 50,
) -> Response:
    """Changes of the configuration, newest first unless `sort` says otherwise; every filter narrows the list."""
    selection = select(fields, RevisionEntry)
    begin, end = span(since, until, context.now())
    chosen = Chosen(author, begin, end, service.chosen_touched(kind, object), sort == "number")
    found = service.list_revisions(context, chosen, cursor, limit)
    return page_of(found.items, found.next, selection)


@router.get("/revisions/{number}", response_model=RevisionEntry, responses=NOT_FOUND)
def get_revision(context: Ctx, number: Number, fields: Fields = "") -> Response:
    """One change of the configuration."""
    selection = select(fields, RevisionEntry)
    return answer(service.get_revision(context, number), selection)


@router.post("/revisions/{number}/diff", responses={**_answers(examples.DIFFERENCE), **NOT_FOUND})
def diff_revision(context: Ctx, number: Number) -> Difference:
    """What a rollback to the revision would change. Changes nothing."""
    return planning.difference(context, service.of_rollback(context, number))


@router.post("/revisions/{number}/plan", responses={**_answers(examples.PLAN), **NOT_FOUND})
async def plan_revision(context: Ctx, number: Number) -> Plan:
    """What a rollback to the revision would change, and whom that hurts or helps at this moment. Changes nothing."""
    proposing = await run_in_threadpool(service.of_rollback, context, number)
    return await planning.plan(context, proposing)


@router.post("/revisions/{number}/rollback", responses={**_answers(examples.APPLIED), **STALE, **NOT_FOUND})
async def roll_back(
    context: Ctx, number: Number, response: Response, reason: Why = "", if_plan: IfPlan = ""
) -> Applied:
    """Makes the whole configuration what it was at the revision; that is a new revision."""
    proposing = await run_in_threadpool(service.of_rollback, context, number)
    reason = reason or service.rollback_reason(number)
    if if_plan:
        applied = await planning.apply_if(context, proposing, if_plan, reason)
    else:
        applied = await run_in_threadpool(service.apply, context, proposing, reason)
    response.headers["ETag"] = service.etag(applied.revision)
    return applied


def _answer(revision: int, document: Document, status: int = 200) -> JSONResponse:
    return JSONResponse(document.model_dump(by_alias=True), status, headers={"ETag": service.etag(revision)})


def _add(plural: str, kind: str) -> None:
    """Routes of one kind; local queues have their namespace in the path."""
    path = f"/{plural}/{{namespace}}/{{name}}" if kind == "LocalQueue" else f"/{plural}/{{name:path}}"
    key: Callable[..., service.Key] = _namespaced_key(kind) if kind == "LocalQueue" else _key(kind)
    of_url = Depends(key)

    def list_objects(
        context: Ctx,
        text: Name = "",
        sort: Annotated[Literal["name", "-name"], SORTED] = "name",
        fields: Fields = "",
        cursor: Cursor = "",
        limit: Limit = 500,
    ) -> Response:
        selection = select(fields, Document)
        found = objects.list_objects(context, kind, sort, cursor, limit, text)
        return page_of(found.items, found.next, selection)

    def get_object(context: Ctx, key: service.Key = of_url, fields: Fields = "") -> Response:
        selection = select(fields, Document)
        revision, document = objects.get_object(context, key)
        return answer(document, selection, {"ETag": service.etag(revision)})

    def put_object(
        context: Ctx,
        text: Text,
        key: service.Key = of_url,
        reason: Why = "",
        if_match: IfMatch = "",
        if_none_match: IfMatch = "",
    ) -> Response:
        match = objects.Match(if_match, if_none_match)
        new, revision, document = objects.put_object(context, key, text, match, reason)
        return _answer(revision, document, 201 if new else 200)

    def patch_object(
        context: Ctx, text: Text, key: service.Key = of_url, reason: Why = "", if_match: IfMatch = ""
    ) -> Response:
        return _answer(*objects.patch_object(context, key, text, objects.Match(if_match), reason))

    def delete_object(context: Ctx, key: service.Key = of_url, reason: Why = "", if_match: IfMatch = "") -> None:
        objects.delete_object(context, key, objects.Match(if_match), reason)

    example = examples.OBJECTS[kind]
    object_schema = {"type": "object", "description": f"A {kind}; see /api/v1/schema"}
    one: dict[str, Any] = {"response_model": Document}
    changing = {
        **STALE,
        428: {"description": "The object exists and the request has no If-Match"},
    }
    router.add_api_route(
        f"/{plural}",
        list_objects,
        response_model=Page[Document],
        summary=f"List: {kind}",
        operation_id=f"list{kind}",
        responses=_answers({"items": [example], "next": None}, invalid=False),
    )
    router.add_api_route(
        path,
        get_object,
        summary=f"Get: {kind}",
        operation_id=f"get{kind}",
        responses={**_answers(example, invalid=False), **NOT_FOUND},
        **one,
    )
    router.add_api_route(
        path,
        put_object,
        methods=["PUT"],
        summary=f"Create or replace: {kind}",
        operation_id=f"put{kind}",
        openapi_extra=_takes(_example("application/json", object_schema, example), {YAML: {"schema": _TEXT_SCHEMA}}),
        responses={201: {"model": Document}, **_answers(example), **changing},
        **one,
    )
    router.add_api_route(
        path,
        patch_object,
        methods=["PATCH"],
        summary=f"Change fields: {kind}",
        description="Merges the body into the object (RFC 7396): null takes a field away, a list replaces a list.",
        operation_id=f"patch{kind}",
        openapi_extra=_takes(_example(MERGE_PATCH, {"type": "object"}, examples.PATCHES[kind])),
        responses={**_answers(example), **changing, **NOT_FOUND},
        **one,
    )
    router.add_api_route(
        path,
        delete_object,
        methods=["DELETE"],
        status_code=204,
        summary=f"Delete: {kind}",
        operation_id=f"delete{kind}",
        responses={**changing, **NOT_FOUND, 422: {"description": "Others need it: each is named"}},
    )


def _key(kind: str) -> Callable[[str], service.Key]:
    def key(name: str) -> service.Key:
        return kind, "", name

    return key


def _namespaced_key(kind: str) -> Callable[[str, str], service.Key]:
    def key(namespace: str, name: str) -> service.Key:
        return kind, namespace, name

    return key


for _plural, _kind in KINDS.items():
    _add(_plural, _kind)
