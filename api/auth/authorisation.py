"""Whether the caller may use a route: a dependency of every one, decided by `decisions.DECISIONS`."""

from __future__ import annotations

from urllib.parse import quote

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from queue_manager.config.models import ConfigObject

from ..context import Context, Ctx
from ..problems import ProblemError, not_found
from ..workloads.service import get_row
from .access import Access, NodeKey, keys_of
from .authentication import CHALLENGE, LOGIN
from .decisions import Need, Where
from .identity import NOBODY
from .roles import Role

log = structlog.get_logger(__name__)

PLATFORM = Need(Where.WHOLE, Role.PLATFORM_ADMIN)
OF_NODES = frozenset({"Cohort", "Queue", "LocalQueue", "RoleBinding"})
"""Kinds whose objects belong to a node of the tree."""


async def authorise(request: Request, context: Ctx) -> None:
    """`demand` as a dependency of every route."""
    # Most requests on loopback, and an admin's, need no look at the configuration: so nothing is waited for.
    if is_admin(context):
        demand(request, context)
    else:
        await run_in_threadpool(demand, request, context)


def is_admin(context: Context) -> bool:
    """Whether the caller may do everything by the proof itself."""
    return any(grant.role is Role.PLATFORM_ADMIN and not grant.node for grant in context.caller.scopes)


def demand(request: Request, context: Context) -> None:
    """401 or 403 unless the caller has what the route needs; 403 where nobody decided what that is."""
    need: Need | None = request.app.state.needs.get((request.method, request.scope["endpoint"]))
    if need is None:
        raise ProblemError(403, "Forbidden", "nobody has decided who may use this route")
    where = need.where
    if where is Where.METRICS:
        where = Where.OPEN if context.authentication.open_metrics else Where.WHOLE
    if where is Where.OPEN:
        return
    if context.caller.name == NOBODY.name:
        raise _unknown(request)
    if is_admin(context):
        return
    access = context.access
    if where is Where.WHOLE:
        _demand(access.may_everywhere(need.role), request, context, need, "at the whole tree")
        return
    _demand((access.anywhere() or 0) >= need.role, request, context, need, "at any queue or cohort")
    _at_place(request, context, access, need)


def _at_place(request: Request, context: Context, access: Access, need: Need) -> None:
    place = _place(request, context, need)
    if isinstance(place, ConfigObject) and not access.sees_object(place):
        namespace, name = place.metadata.namespace, place.name
        raise not_found(place.kind, f"{namespace}/{name}" if namespace else name)
    if need.where is Where.CHANGE:
        if need.kind:
            _may_change(request, context, access, need, place)
        return
    if place is None:
        return
    if isinstance(place, ConfigObject):
        keys = keys_of(place, access.tree)
        if not keys:
            return
        place = keys[0]
    if not access.sees(place):
        what = request.path_params
        raise not_found(need.where.name.lower(), "/".join(what[each] for each in ("namespace", "name") if each in what))
    if need.role > Role.VIEWER:
        _demand(access.may(need.role, place), request, context, need, f"at the {place[0].lower()} {place[1]!r}")


def _may_change(request: Request, context: Context, access: Access, need: Need, there: object) -> None:
    """Of a single object it is known before its new state is read whether it is the caller's to change at all."""
    if isinstance(there, ConfigObject):
        keys = keys_of(there, access.tree)
    else:
        if need.kind in OF_NODES:
            return  # where it will be is known when its new state is read
        keys = None
    if not keys:
        _demand(access.may_everywhere(Role.PLATFORM_ADMIN), request, context, PLATFORM, "at the whole tree")
        return
    _demand(access.may(need.role, keys[0]), request, context, need, f"at the {keys[0][0].lower()} {keys[0][1]!r}")


def _place(request: Request, context: Context, need: Need) -> NodeKey | ConfigObject | None:
    """Where the role is needed; None where that is anywhere, or nothing is there."""
    values = request.path_params
    match need.where:
        case Where.QUEUE | Where.COHORT:
            kind = need.where.name.capitalize()
            node = context.configuration().compiled.tree.find(kind, values["name"])
            return kind, node.name if node else values["name"]
        case Where.WORKLOAD:
            row = get_row(context, values["namespace"], values["name"], request.query_params.get("kind", ""))
            return "Queue", row.queue
        case Where.OBJECT | Where.CHANGE:
            key = (need.kind, values.get("namespace", ""), values.get("name", ""))
            return next((item for item in context.configuration().objects if item.key == key), None)
        case _:
            return None


def _demand(has: bool, request: Request, context: Context, need: Need, place: str) -> None:
    if has:
        return
    caller = context.caller
    route = f"{request.method} {request.url.path}"
    log.info("forbidden", who=caller.name, source=caller.source.value, address=caller.address, route=route)
    raise forbidden(f"{caller.name} needs the role {need.role.word} {place}")


def forbidden(detail: str) -> ProblemError:
    """403 that says what would be needed."""
    return ProblemError(403, "Forbidden", detail)


def _unknown(request: Request) -> Exception:
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return HTTPException(303, headers={"Location": f"{LOGIN}?next={quote(back, safe='')}"})
    return ProblemError(401, "Not authenticated", "a token is needed", headers=CHALLENGE)
