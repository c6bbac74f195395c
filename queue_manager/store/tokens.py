"""API tokens. Only a hash is kept: 256 random bits need no salt and no slow hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from queue_manager.store import audits, codec

PREFIX = "qm_"
USED_EVERY = timedelta(minutes=1)
"""A use is noted at most so often."""
_COLUMNS = "id, name, scopes, created_at, created_by, expires_at, used_at, revoked_at, revoked_by"
_INSERT = text(
    "INSERT INTO tokens (name, hash, scopes, created_at, created_by, expires_at) "
    f"VALUES (:name, :hash, CAST(:scopes AS jsonb), :now, :by, :expires) RETURNING {_COLUMNS}"
)
_FIND = text(f"SELECT {_COLUMNS} FROM tokens WHERE hash = :hash")
_GET = text(f"SELECT {_COLUMNS} FROM tokens WHERE id = :id")
_NAMED = text(f"SELECT {_COLUMNS} FROM tokens WHERE name = :name AND revoked_at IS NULL")
_LIST, _LIST_OLDEST_FIRST = (
    text(
        f"SELECT {_COLUMNS} FROM tokens WHERE (CAST(:after AS bigint) IS NULL OR id {later} :after) "
        f"AND (:revoked OR revoked_at IS NULL) ORDER BY id {order} LIMIT :limit"
    )
    for later, order in (("<", "DESC"), (">", "ASC"))
)
_COUNTING = text(
    f"SELECT {_COLUMNS} FROM tokens WHERE revoked_at IS NULL "
    "AND (expires_at IS NULL OR expires_at > :now) ORDER BY name"
)
_REVOKE = text(
    f"UPDATE tokens SET revoked_at = :now, revoked_by = :by WHERE id = :id AND revoked_at IS NULL RETURNING {_COLUMNS}"
)
_USED = text("UPDATE tokens SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at < :since)")
_NONE = text("SELECT NOT EXISTS (SELECT FROM tokens)")
_LOCK = text("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE")


class NameTaken(Exception):
    """A token that is not revoked has this name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A role (its word) in the subtree of a node; "" is the whole tree. `kind` says what the node is (Cohort, Queue):
    one may have the name of the other. Scopes of older tokens have none."""

    role: str
    node: str = ""
    kind: str = ""

    def as_dict(self) -> dict[str, str]:
        """As it is kept."""
        return {"role": self.role, "node": self.node, **({"kind": self.kind} if self.kind else {})}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept. `used_at` is up to a minute old."""

    id: int
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str

    def ended(self, now: datetime) -> str:
        """Why it does not count any more, or ""."""
        if self.revoked_at is not None:
            return "is revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "has expired"
        return ""


@dataclass(frozen=True, slots=True)
class Maker:
    """Who makes or revokes a token, for the audit log."""

    who: str
    source: str
    address: str = ""
    reason: str = ""


def new_secret() -> str:
    """A token that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def create(
    connection: Connection, secret: str, name: str, scopes: Sequence[Scope], expires: datetime | None, by: Maker,
    now: datetime,
) -> Token:  # fmt: skip
    """Keeps the hash of a token, with an audit line. NameTaken when there is one of this name."""
    values = {
        "name": name,
        "hash": _hash(secret),
        "scopes": codec.encode([scope.as_dict() for scope in scopes]),
        "now": now,
        "by": by.who,
        "expires": expires,
    }
    try:
        with connection.begin_nested():
            token = _token(connection.execute(_INSERT, values).one())
    except IntegrityError as error:
        if "tokens_name_idx" in str(error.orig):
            raise NameTaken(name) from None
        raise
    _note(connection, "token.create", token, by, now, after=_shown(token))
    return token


def create_first(
    connection: Connection, secret: str, name: str, scopes: Sequence[Scope], by: Maker, now: datetime
) -> Token | None:
    """The same when there never was a token; else None."""
    connection.execute(_LOCK)  # two processes that start at once make one
    if not connection.execute(_NONE).scalar():
        return None
    return create(connection, secret, name, scopes, None, by, now)


def find(connection: Connection, secret: str) -> Token | None:
    """The token of this secret, also when it has ended."""
    row = connection.execute(_FIND, {"hash": _hash(secret)}).one_or_none()
    return None if row is None else _token(row)


def get(connection: Connection, id: int) -> Token | None:
    """One by its id."""
    row = connection.execute(_GET, {"id": id}).one_or_none()
    return None if row is None else _token(row)


def named(connection: Connection, name: str) -> Token | None:
    """The one of this name that is not revoked."""
    row = connection.execute(_NAMED, {"name": name}).one_or_none()
    return None if row is None else _token(row)


def counting(connection: Connection, now: datetime) -> list[Token]:
    """Those that have not ended, by name."""
    return [_token(row) for row in connection.execute(_COUNTING, {"now": now})]


def listed(
    connection: Connection, limit: int, after: int | None, revoked: bool, oldest_first: bool = False
) -> list[Token]:
    """Tokens that come after the one of an id, newest first unless that is said."""
    query = _LIST_OLDEST_FIRST if oldest_first else _LIST
    rows = connection.execute(query, {"limit": limit, "after": after, "revoked": revoked})
    return [_token(row) for row in rows]


def revoke(connection: Connection, id: int, by: Maker, now: datetime) -> Token | None:
    """Ends a token, with an audit line; None when there is none of this id that counts."""
    row = connection.execute(_REVOKE, {"id": id, "now": now, "by": by.who}).one_or_none()
    if row is None:
        return None
    token = _token(row)
    _note(connection, "token.revoke", token, by, now, before=_shown(token))
    return token


def used(connection: Connection, id: int, now: datetime) -> None:
    """Notes a use, unless one was noted within the last minute."""
    connection.execute(_USED, {"id": id, "now": now, "since": now - USED_EVERY})


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _token(row: Row[tuple[object, ...]]) -> Token:
    values = dict(row._mapping)
    values["scopes"] = tuple(Scope(**scope) for scope in values["scopes"])
    return Token(**values)


def _shown(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "scopes": [scope.as_dict() for scope in token.scopes],
        "expires": token.expires_at.isoformat() if token.expires_at else None,
    }


def _note(
    connection: Connection,
    action: str,
    token: Token,
    by: Maker,
    now: datetime,
    *,
    before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> None:
    audits.write(
        connection,
        who=by.who,
        action=action,
        object=f"token/{token.name}",
        before=before,
        after=after,
        source=by.source,
        reason=by.reason,
        now=now,
        address=by.address,
    )
