"""`/api/v1/tokens`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from ..context import Ctx
from ..fields import Fields, answer, page_of, select
from ..paging import Cursor, Limit, Page
from . import service
from .schemas import NewToken, Token, TokenRequest

router = APIRouter(prefix="/tokens", tags=["tokens"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is none"}}
Id = Annotated[int, Path(ge=1, le=2**62)]
Why = Annotated[str, Query(max_length=2000, description="Why, for the audit log")]


@router.get("", response_model=Page[Token])
def list_tokens(
    context: Ctx,
    revoked: Annotated[bool, Query(description="Also those that are revoked")] = False,
    sort: Annotated[Literal["created", "-created"], Query(description="With `-` the newest first")] = "-created",
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """Tokens that you may revoke, newest first unless `sort` says otherwise."""
    selection = select(fields, Token)
    found = service.list_tokens(context, sort, cursor, limit, revoked)
    return page_of(found.items, found.next, selection)


@router.post("", status_code=201, responses={409: {"description": "The name is taken"}})
def create_token(context: Ctx, request: TokenRequest) -> NewToken:
    """Makes a token; this answer is the only place where it stands."""
    return service.create(context, request)


@router.get("/{id}", response_model=Token, responses=NOT_FOUND)
def get_token(context: Ctx, id: Id, fields: Fields = "") -> Response:
    """One token."""
    selection = select(fields, Token)
    return answer(service.get(context, id), selection)


@router.delete("/{id}", status_code=204, responses=NOT_FOUND)
def revoke_token(context: Ctx, id: Id, reason: Why = "") -> None:
    """Ends a token at once."""
    service.revoke(context, id, reason)
