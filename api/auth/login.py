"""The login page: takes a token, and gives a cookie that only this page's own requests carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from ..context import Ctx
from ..problems import ProblemError
from .authentication import COOKIE, MAX_CREDENTIAL, RefusedError, UnavailableError
from .identity import NOBODY

router = APIRouter(include_in_schema=False)


@router.get("/login")
def login_page(context: Ctx, next: str = "/") -> Response:
    """A form for a token; says who is logged in."""
    return _page(context.caller.name, next, "", 200)


@router.post("/login")
async def log_in(context: Ctx, request: Request) -> Response:
    """Sets the cookie when the token proves somebody, and goes back to where they came from."""
    form = await _form(request)
    token, back = form.get("token", "").strip(), form.get("next", "/")
    try:
        await context.authentication.identify(token, context.caller.address)
    except RefusedError as error:
        return _page(NOBODY.name, back, f"The token is not accepted: {error}.", 401)
    except UnavailableError as error:
        return _page(NOBODY.name, back, f"{error}; try again.", 503)
    answer = RedirectResponse(_own_path(back), 303, {"Cache-Control": "no-store"})
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


@router.post("/logout")
def log_out() -> Response:
    """Takes the cookie away."""
    answer = RedirectResponse("/login", 303, {"Cache-Control": "no-store"})
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


async def _form(request: Request) -> Mapping[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > 2 * MAX_CREDENTIAL:
            raise ProblemError(413, "Body too large", "a token is shorter")
    try:
        return {name: values[-1] for name, values in parse_qs(body.decode("ascii"), max_num_fields=10).items()}
    except ValueError:
        raise ProblemError(400, "Bad request", "the form can't be read") from None


def _own_path(path: str) -> str:
    """A path of this server, never another server's: browsers read // and /\\ as one."""
    fine = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine else "/"


def _page(who: str, back: str, problem: str, status: int) -> Response:
    from ..dashboard.router import page  # the dashboard needs the context, which needs this package

    data: dict[str, Any] = {"who": who, "next": _own_path(back), "problem": problem}
    return page("login.html", data, status)
