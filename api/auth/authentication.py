"""ASGI middleware: finds out who asks, from a bearer token or the page's cookie, before anything else is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..problems import problem_response
from .identity import LOCAL, NOBODY, Identity

log = structlog.get_logger(__name__)

COOKIE = "qm_session"
"""Holds what was given on the login page; HttpOnly and SameSite=Strict."""
MAX_CREDENTIAL = 16384
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CHALLENGE = {"WWW-Authenticate": "Bearer"}
LOGIN = "/login"
FORMS = (LOGIN, "/logout")
"""Paths that forms are sent to without a proof."""


class RefusedError(Exception):
    """What was given proves nothing; the message says why, and holds nothing secret."""


class UnavailableError(Exception):
    """Who would have to say so does not answer: nothing is known about what was given."""


class TooManyError(UnavailableError):
    """Who would have to say so is not asked: too much that was unknown came from there lately."""


class Verifier(Protocol):
    """One way to prove who one is."""

    def takes(self, credential: str) -> bool:
        """Whether it looks like one of this way."""
        ...

    async def verify(self, credential: str, address: str = "") -> Identity:
        """Whose it is. RefusedError when it proves nothing, UnavailableError when that can't be found out. `address` is
        where it came from."""
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """How requests are authenticated. Unless it is `required`, who gives no proof is `LOCAL`: on loopback only.

    `hosts` are names that requests may be for, beside those of this machine; "*" is any.
    """

    required: bool = False
    verifiers: Sequence[Verifier] = ()
    hosts: frozenset[str] = frozenset()
    open_metrics: bool = True
    ways: Sequence[str] = field(default=("API tokens",))

    async def identify(self, credential: str, address: str = "") -> Identity:
        """Whose a credential is, that came from an address; RefusedError, UnavailableError."""
        if len(credential) > MAX_CREDENTIAL or not credential.isascii() or not credential.isprintable():
            raise RefusedError("it is no token")
        for verifier in self.verifiers:
            if verifier.takes(credential):
                return await verifier.verify(credential, address)
        raise RefusedError(f"it is of no kind that is accepted here ({', '.join(self.ways)})")

    async def close(self) -> None:
        """Ends all connections of the verifiers."""
        for verifier in self.verifiers:
            await verifier.close()


@dataclass(frozen=True, slots=True)
class Proof:
    """What a request came with, for what goes on for long: who asks has to be who they are all the time."""

    authentication: Authentication
    caller: Identity
    credential: str = ""

    async def again(self) -> Identity:
        """Who asks, as of now; RefusedError, UnavailableError."""
        if not self.credential:
            return self.caller
        found = await self.authentication.identify(self.credential, self.caller.address)
        return replace(found, address=self.caller.address)


class Authenticate:
    """Puts the caller into the request's state, or refuses what proves nothing."""

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self.app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        credential, from_cookie = _credential(headers)
        caller = NOBODY if self._authentication.required else LOCAL
        if credential:
            try:
                caller = await self._authentication.identify(credential, address)
            except RefusedError as error:
                log.info("authentication refused", address=address, path=scope["path"], why=str(error))
                # A cookie that has expired, or is of another server of this host, is as good as none.
                if not from_cookie:
                    await _refuse(f"the token is not accepted: {error}")(scope, receive, send)
                    return
                credential = ""
            except UnavailableError as error:
                log.warning("authentication unavailable", address=address, why=str(error))
                await _unavailable(error)(scope, receive, send)
                return
        writes = scope["method"] not in SAFE_METHODS and scope["path"] not in FORMS
        if writes and from_cookie and not _says_where(headers):
            detail = "with the cookie a change needs the header Origin, which browsers send; else use Authorization"
            await problem_response(403, "Forbidden", detail)(scope, receive, send)
            return
        if writes and caller is NOBODY:
            await _refuse("a token is needed")(scope, receive, send)  # before a body of any size is read
            return
        caller = replace(caller, address=address)
        scope.setdefault("state", {}).update(caller=caller, proof=Proof(self._authentication, caller, credential))
        await self.app(scope, receive, send)


def _unavailable(error: UnavailableError) -> ASGIApp:
    status = 429 if isinstance(error, TooManyError) else 503
    return problem_response(status, "Authentication unavailable", str(error), headers={"Retry-After": "5"})


def _says_where(headers: Headers) -> bool:
    """Whether a browser says which page a request comes from; `security.Guard` has looked at what it says."""
    return "origin" in headers or "sec-fetch-site" in headers


def _refuse(detail: str) -> ASGIApp:
    return problem_response(401, "Not authenticated", detail, headers=CHALLENGE)


def _credential(headers: Headers) -> tuple[str, bool]:
    """What was given, and whether by the cookie."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme:
        return (value.strip() or "-", False) if scheme.lower() == "bearer" else ("-", False)
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return "", False
    return (morsel.value, True) if morsel and morsel.value else ("", False)
