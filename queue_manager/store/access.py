"""The store's face for who may do what: tokens, allowances, and the search of the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from sqlalchemy import Engine, text

from queue_manager.store import allowances, audits, tokens
from queue_manager.store.allowances import Allowance
from queue_manager.store.audits import AuditEntry, Place, Wanted
from queue_manager.store.schema import NOT_ENDED
from queue_manager.store.tokens import Maker, Scope, Token

EXPORT_PAGE = 1000
_HIDDEN = text(
    "WITH named AS (SELECT split_part(n, '/', 1) AS namespace, split_part(n, '/', 2) AS name "
    "FROM unnest(CAST(:names AS text[])) AS n) "
    + " UNION ".join(
        f"SELECT w.namespace || '/' || w.name FROM named JOIN {table} w USING (namespace, name) "
        "WHERE w.queue <> ALL(CAST(:visible AS text[]))"
        for table in ("workloads", "workload_history")
    )
)
_QUEUES_OF_NAMESPACE = text(f"SELECT DISTINCT queue FROM workloads WHERE namespace = :namespace AND {NOT_ENDED}")


class AccessStore:
    """As `Store`: every method is one transaction, safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create_token(
        self, secret: str, name: str, scopes: Sequence[Scope], expires: datetime | None, by: Maker, now: datetime
    ) -> Token:
        """Keeps a token's hash. NameTaken when one that is not revoked has the name."""
        with self._engine.begin() as connection:
            return tokens.create(connection, secret, name, scopes, expires, by, now)

    def create_first_token(
        self, secret: str, name: str, scopes: Sequence[Scope], by: Maker, now: datetime
    ) -> Token | None:
        """The same, and None when there ever was a token."""
        with self._engine.begin() as connection:
            return tokens.create_first(connection, secret, name, scopes, by, now)

    def find_token(self, secret: str) -> Token | None:
        """The token of a secret, also when it has ended."""
        with self._engine.connect() as connection:
            return tokens.find(connection, secret)

    def get_token(self, id: int) -> Token | None:
        """One token by its id."""
        with self._engine.connect() as connection:
            return tokens.get(connection, id)

    def token_named(self, name: str) -> Token | None:
        """The token of this name that is not revoked."""
        with self._engine.connect() as connection:
            return tokens.named(connection, name)

    def list_tokens(
        self, limit: int, after: int | None = None, revoked: bool = False, oldest_first: bool = False
    ) -> list[Token]:
        """Tokens that come after the one of an id, newest first unless that is said; those that are revoked only if
        asked for."""
        with self._engine.connect() as connection:
            return tokens.listed(connection, limit, after, revoked, oldest_first)

    def counting_tokens(self, now: datetime) -> list[Token]:
        """Tokens that have not ended, by name."""
        with self._engine.connect() as connection:
            return tokens.counting(connection, now)

    def revoke_token(self, id: int, by: Maker, now: datetime) -> Token | None:
        """Ends a token; None when there is none of this id that is not revoked."""
        with self._engine.begin() as connection:
            return tokens.revoke(connection, id, by, now)

    def token_used(self, id: int, now: datetime) -> None:
        """Notes a use, at most once a minute."""
        with self._engine.begin() as connection:
            tokens.used(connection, id, now)

    def allowances(self) -> list[Allowance]:
        """What is kept of what subtrees were given."""
        with self._engine.connect() as connection:
            return allowances.load(connection)

    def hidden_names(self, names: Iterable[str], visible: Sequence[str]) -> frozenset[str]:
        """Those of some `namespace/name` that are of workloads in other queues than the visible ones."""
        values = {"names": sorted(names), "visible": list(visible)}
        with self._engine.connect() as connection:
            return frozenset(connection.execute(_HIDDEN, values).scalars())

    def queues_of_namespace(self, namespace: str) -> frozenset[str]:
        """Queues of the workloads of a namespace that have not ended; "" for those of none that is there."""
        with self._engine.connect() as connection:
            return frozenset(connection.execute(_QUEUES_OF_NAMESPACE, {"namespace": namespace}).scalars())

    def audit_page(self, wanted: Wanted, after: Place | None, limit: int) -> list[AuditEntry]:
        """Lines of the audit log that fit, after a place in their order."""
        with self._engine.connect() as connection:
            return audits.search(connection, wanted, after, limit)

    def audit_all(self, wanted: Wanted) -> Iterator[AuditEntry]:
        """All lines that fit, in their order, read a page at a time."""
        after: Place | None = None
        while page := self.audit_page(wanted, after, EXPORT_PAGE):
            yield from page
            after = page[-1].at, page[-1].id
