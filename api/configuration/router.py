"""`/api/v1/config`, `/api/v1/revisions` and the objects of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from queue_manager.config.source import MAX_BYTES

from ..context import Ctx
from ..paging import Cursor, Limit, Page
from ..problems import ProblemError
from . import service
from .schemas import Applied, Document, RevisionEntry

router = APIRouter(tags=["configuration"])

KINDS = {
    "topologies": "Topology",
    "flavors": "Flavor",
    "cohorts": "Cohort",
    "queues": "Queue",
    "priority-classes": "PriorityClass",
    "local-queues": "LocalQueue",
}
YAML = "application/yaml"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {YAML: {"schema": {"type": "string"}}, "application/json": {"schema": {"type": "object"}}},
    }
}

IfMatch = Annotated[str, Header(max_length=1000)]


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


@router.get("/config", response_class=Response, responses={200: {"content": {YAML: {"schema": {"type": "string"}}}}})
def get_config(context: Ctx) -> Response:
    """The whole configuration as YAML that `put` reads."""
    revision, text = service.export_text(context)
    return Response(text, media_type=YAML, headers={"ETag": service.etag(revision)})


@router.put("/config", openapi_extra=_BODY)
def put_config(
    context: Ctx,
    text: Text,
    response: Response,
    file: Annotated[str, Query(max_length=600, description="Name of the file, for messages")] = "",
    owner: Annotated[str, Query(max_length=253, description="Whose objects these are")] = "",
    prune: Annotated[bool, Query(description="Delete objects of this owner that the body lacks")] = False,
    reason: Annotated[str, Query(max_length=2000)] = "",
    if_match: IfMatch = "",
) -> Applied:
    """Creates or changes the objects of the body: all of them, or none when anything is wrong."""
    expected = service.expected_revision(if_match)
    applied = service.apply_text(context, text, file=file, owner=owner, prune=prune, reason=reason, expected=expected)
    response.headers["ETag"] = service.etag(applied.revision)
    return applied


@router.get("/revisions")
def list_revisions(context: Ctx, cursor: Cursor = "", limit: Limit = 50) -> Page[RevisionEntry]:
    """Changes of the configuration, newest first."""
    return service.list_revisions(context, cursor, limit)


def _answer(revision: int, document: Document, status: int = 200) -> JSONResponse:
    return JSONResponse(document.model_dump(by_alias=True), status, headers={"ETag": service.etag(revision)})


def _add(plural: str, kind: str) -> None:
    """Routes of one kind; local queues have their namespace in the path."""
    path = f"/{plural}/{{namespace}}/{{name}}" if kind == "LocalQueue" else f"/{plural}/{{name:path}}"
    key: Callable[..., service.Key] = _namespaced_key(kind) if kind == "LocalQueue" else _key(kind)
    of_url = Depends(key)

    def list_objects(context: Ctx, cursor: Cursor = "", limit: Limit = 500) -> Page[Document]:
        return service.list_objects(context, kind, cursor, limit)

    def get_object(context: Ctx, key: service.Key = of_url) -> Response:
        return _answer(*service.get_object(context, key))

    def put_object(
        context: Ctx, text: Text, key: service.Key = of_url, if_match: IfMatch = "", if_none_match: IfMatch = ""
    ) -> Response:
        new, revision, document = service.put_object(context, key, text, if_match, if_none_match)
        return _answer(revision, document, 201 if new else 200)

    def delete_object(context: Ctx, key: service.Key = of_url, if_match: IfMatch = "") -> None:
        service.delete_object(context, key, if_match)

    one: dict[str, Any] = {"response_model": Document}
    router.add_api_route(f"/{plural}", list_objects, summary=f"List: {kind}", operation_id=f"list{kind}")
    router.add_api_route(path, get_object, summary=f"Get: {kind}", operation_id=f"get{kind}", **one)
    router.add_api_route(
        path,
        put_object,
        methods=["PUT"],
        summary=f"Create or replace: {kind}",
        operation_id=f"put{kind}",
        openapi_extra=_BODY,
        responses={201: {"model": Document}},
        **one,
    )
    router.add_api_route(
        path,
        delete_object,
        methods=["DELETE"],
        status_code=204,
        summary=f"Delete: {kind}",
        operation_id=f"delete{kind}",
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
