"""API tokens as a proof. Asked for at every request, so that a token ends when it is revoked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from queue_manager.store.store import Store
from queue_manager.store.tokens import PREFIX, USED_EVERY, Scope, Token

from .access import token_identity
from .authentication import RefusedError, UnavailableError
from .identity import Identity, Source
from .roles import ROLES, Grant


class TokenVerifier:
    """Tokens that this server gave."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store.access
        self._now = now

    def takes(self, credential: str) -> bool:
        """Whether it begins as ours do."""
        return credential.startswith(PREFIX)

    async def verify(self, credential: str, address: str = "") -> Identity:
        """Whose it is, with the roles that it carries."""
        try:
            token = await run_in_threadpool(self._find, credential)
        except SQLAlchemyError:
            raise UnavailableError("the database does not answer") from None
        return Identity(
            token_identity(token.name),
            source=Source.TOKEN,
            scopes=tuple(grant_of(scope) for scope in token.scopes),
            since=token.created_at,
            expires=token.expires_at,
        )

    def _find(self, credential: str) -> Token:
        now = self._now()
        token = self._store.find_token(credential)
        if token is None:
            raise RefusedError("it is unknown")
        if why := token.ended(now):
            raise RefusedError(f"it {why}")
        if token.used_at is None or token.used_at < now - USED_EVERY:
            self._store.token_used(token.id, now)
        return token

    async def close(self) -> None:
        """It has no connections of its own."""


def grant_of(scope: Scope) -> Grant:
    """A token's scope as a role at a node."""
    return Grant(ROLES[scope.role], scope.node, scope.kind)
