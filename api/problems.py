"""Errors as RFC 9457 problem documents, whatever goes wrong."""

from __future__ import annotations

import http
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from queue_manager.config.words import worded

log = structlog.get_logger(__name__)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered."""

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 500
_TEXT: Mapping[str, str] = {"type": "string"}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "title": "Problem",
    "required": ["type", "title", "status"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "errors": {"type": "array", "items": {"type": "object"}, "description": "All that was found, at most 500"},
        "errorCount": {"type": "integer", "description": "How many were found"},
        "requestId": {"type": "string", "description": "Of the request: X-Request-Id, which the server's log has too"},
    },
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    for status, text in (
        (400, "The request can't be understood: a bad cursor, an unknown field, a body that is no JSON"),
        (401, "A token is needed, or the one given is not accepted"),
        (403, "The caller may not do this"),
        (404, "What is asked for is not there"),
        (409, "What is there does not allow it, or others change it at this moment"),
        (413, "The body is too large"),
        (422, "A parameter or the body is not valid: see errors"),
        (429, "Too many requests: see Retry-After"),
        (500, "The server failed; its log has the requestId"),
        (503, "The server can't answer now: see Retry-After"),
    )
}
"""Of every operation, for the OpenAPI document."""


class ProblemError(Exception):
    """Raised by services; becomes a problem document. `errors` is a list of findings, all of them."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.errors = errors
        self.headers = headers


def not_found(what: str, name: str, hint: str = "") -> ProblemError:
    """404 that says what was looked for."""
    return ProblemError(404, f"{what} not found", f"there is no {what} {name!r}" + (f"; {hint}" if hint else ""))


def problem_response(
    status: int,
    title: str,
    detail: str = "",
    *,
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """One problem document. Of very many errors the first are sent, with their number in the title's place."""
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    if detail:
        body["detail"] = detail
    if errors:
        body["errors"] = list(errors[:MAX_ERRORS])
        body["errorCount"] = len(errors)
    if number := request_id.get():
        body["requestId"] = number
    return JSONResponse(body, status, headers, MEDIA_TYPE)


def _utf8(text: str) -> str:
    # A key of a JSON body may hold half a surrogate pair, which no answer can.
    return text.encode("utf-8", "replace").decode()


def _finding(error: Mapping[str, Any]) -> Mapping[str, str]:
    """A finding of FastAPI's in words of ours."""
    message, hint = worded(error["type"], error.get("input"), error.get("ctx", {}), error["msg"])
    if error["type"] == "missing":
        hint = "it is needed"
    elif error["type"] == "extra_forbidden":
        message, hint = f"unknown field {str(error['loc'][-1])!r}", "remove it, or see /openapi.json for what there is"
    # Where a body is no JSON its place is the number of a character.
    place = error["loc"][:1] if error["type"] == "json_invalid" else error["loc"]
    found = {"field": ".".join(str(step) for step in place), "message": message}
    return {key: _utf8(text) for key, text in (found | ({"hint": hint} if hint else {})).items()}


def install(app: FastAPI, veil: Callable[[Request, ProblemError], ProblemError]) -> None:
    """Makes every error of the application a problem document. `veil` takes out what its reader may not see."""

    @app.exception_handler(ProblemError)
    async def _problem(request: Request, error: ProblemError) -> JSONResponse:
        error = await run_in_threadpool(veil, request, error)
        return problem_response(error.status, error.title, error.detail, errors=error.errors, headers=error.headers)

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        title = http.HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != title else ""
        if isinstance(error.__cause__, RecursionError):
            detail = "the body is nested too deeply"
        return problem_response(error.status_code, title, detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [_finding(item) for item in error.errors()]
        return problem_response(422, "Request is not valid", "see errors", errors=errors)

    @app.exception_handler(OperationalError)
    async def _database(_request: Request, error: OperationalError) -> JSONResponse:
        log.warning("database unavailable", error=str(error.orig))
        return problem_response(503, "Database unavailable", "try again in a moment", headers={"Retry-After": "2"})
