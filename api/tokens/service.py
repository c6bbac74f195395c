"""Makes, lists and revokes tokens. Nobody gives by a token more than they have, nor for longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from queue_manager.config.durations import parse_duration
from queue_manager.config.problem import nearest_or_list
from queue_manager.store import tokens
from queue_manager.store.tokens import Maker, NameTaken

from ..auth.access import Access, find_node, granted_node, grants_of, token_identity
from ..auth.identity import Identity, Source
from ..auth.roles import Grant, Role
from ..auth.token_verifier import grant_of
from ..context import Context
from ..paging import Page, number_of
from ..problems import ProblemError, not_found
from .schemas import NewToken, Token, TokenRequest, TokenScope

LONGEST = timedelta(days=3660)


def create(context: Context, request: TokenRequest) -> NewToken:
    """Makes a token; 403 where it would give more than its maker has, 409 for a name that is taken."""
    loaded = context.configuration()
    access = context.access_by(loaded)
    scopes = [_scope(access, index, scope) for index, scope in enumerate(request.scopes)]
    # Bindings that name the token count for it too: a name is no way to somebody else's rights.
    named = Identity(token_identity(request.name), source=Source.TOKEN, scopes=tuple(map(grant_of, scopes)))
    for grant in grants_of(named, loaded.bindings):
        if not _covers(access, grant):
            where = f"at {grant.node!r}" if grant.node else "at the whole tree"
            if not _sees(access, grant):
                where = "where you may not look"
            raise ProblemError(
                403, "Forbidden", f"a token with the role {grant.role.word} {where}: you have less there"
            )
    secret, now, maker = tokens.new_secret(), context.now(), _maker(context, request.reason)
    expires = _end(context.caller, request.expires_in, now)
    try:
        made = context.store.access.create_token(secret, request.name, scopes, expires, maker, now)
    except NameTaken:
        hint = "revoke that one first, or choose another name"
        raise ProblemError(409, "Name is taken", f"there is a token {request.name!r} already; {hint}") from None
    return NewToken(**dict(_shown(made)), token=secret)


def _sees(access: Access, grant: Grant) -> bool:
    node = granted_node(access.tree, grant) if grant.node else None
    return node is None or access.sees((node.kind, node.name))


def _scope(access: Access, index: int, wanted: TokenScope) -> tokens.Scope:
    """The scope with the kind and name of its node: what a name or path means may be another node later."""
    if not wanted.node:
        return tokens.Scope(wanted.role)
    node = find_node(access.tree, wanted.node)
    if node is None or not access.sees((node.kind, node.name)):
        seen = [each for each in access.tree.nodes() if access.sees((each.kind, each.name))]
        known = {name for each in seen for name in (each.name, each.path)}
        hint = nearest_or_list(wanted.node, known, "queue or cohort")
        raise _bad_field(f"scopes.{index}.node", f"there is no queue or cohort {wanted.node!r}; {hint}")
    return tokens.Scope(wanted.role, node.name, node.kind)


def _covers(access: Access, grant: Grant) -> bool:
    if not grant.node:
        return access.may_everywhere(grant.role)
    node = granted_node(access.tree, grant)
    return node is None or access.may(grant.role, (node.kind, node.name))


def _end(caller: Identity, wanted: int | str | None, now: datetime) -> datetime | None:
    """When it expires: not after the token that makes it."""
    if wanted is None:
        return caller.expires if caller.source is Source.TOKEN else None
    try:
        lasts = timedelta(microseconds=parse_duration(wanted)) if isinstance(wanted, str) else timedelta(seconds=wanted)
    except (ValueError, OverflowError):
        raise _bad_field("expiresIn", "must be a number of seconds, or a duration such as 90d") from None
    if not timedelta(0) < lasts <= LONGEST:
        raise _bad_field("expiresIn", "must be more than nothing and at most ten years")
    end = now + lasts
    return min(end, caller.expires) if caller.source is Source.TOKEN and caller.expires else end


def list_tokens(context: Context, sort: str, cursor: str, limit: int, revoked: bool) -> Page[Token]:
    """Tokens that the caller may revoke, in the order in which they were made (`created`), or the newest first."""
    after, oldest_first = number_of(cursor), sort == "created"
    access, found = context.access, list[tokens.Token]()
    while len(found) <= limit:
        page = context.store.access.list_tokens(limit + 1, after, revoked, oldest_first)
        found += [token for token in page if _is_theirs(context, access, token)]
        if len(page) <= limit:
            break
        after = page[-1].id
    shown = found[:limit]
    return Page(items=[_shown(token) for token in shown], next=str(shown[-1].id) if len(found) > limit else None)


def get(context: Context, id: int) -> Token:
    """One token."""
    return _shown(_find(context, id))


def revoke(context: Context, id: int, reason: str) -> None:
    """Ends a token at once; one that has ended stays ended."""
    _find(context, id)
    context.store.access.revoke_token(id, _maker(context, reason), context.now())


def _find(context: Context, id: int) -> tokens.Token:
    token = context.store.access.get_token(id)
    if token is None or not _is_theirs(context, context.access, token):
        raise not_found("token", str(id))
    return token


def _is_theirs(context: Context, access: Access, token: tokens.Token) -> bool:
    """Whether the caller made it, or is an admin of everything that it reaches."""
    caller = context.caller
    # A token may have the name of one that ended: what that one made is not its own.
    made = token.created_by == caller.name and (caller.since is None or caller.since <= token.created_at)
    if made or access.may_everywhere(Role.PLATFORM_ADMIN):
        return True
    grants = [grant_of(scope) for scope in token.scopes]
    return all(_covers(access, replace(grant, role=max(grant.role, Role.QUEUE_ADMIN))) for grant in grants)


def _maker(context: Context, reason: str) -> Maker:
    caller = context.caller
    return Maker(caller.name, caller.source.value, caller.address, reason)


def _shown(token: tokens.Token) -> Token:
    return Token(
        id=token.id,
        name=token.name,
        scopes=[TokenScope.model_validate({"role": scope.role, "node": scope.node}) for scope in token.scopes],
        created=token.created_at,
        created_by=token.created_by,
        expires=token.expires_at,
        used=token.used_at,
        revoked=token.revoked_at,
        revoked_by=token.revoked_by,
    )


def _bad_field(field: str, message: str) -> ProblemError:
    errors = [{"field": f"body.{field}", "message": message}]
    return ProblemError(422, "Request is not valid", message, errors=errors)
