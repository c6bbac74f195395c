"""`queue-manager db`: migrations and the proof of the invariants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, print_data
from queue_manager.cli.roles import migrate_database
from queue_manager.config.human import clean
from queue_manager.store import migrate
from queue_manager.store.binaries import EmbeddedError
from queue_manager.store.database import DEFAULT_FOLDER, EMBEDDED, Database, DatabaseError, open_database
from queue_manager.store.embedded import holds_database
from queue_manager.store.store import Store
from queue_manager.store.tokens import Maker, NameTaken, Scope, new_secret

WAIT = 10.0
"""Seconds to wait for a database that does not answer."""


def upgrade(url: str, admin: str = "") -> None:
    """Migrates to the newest schema, as the role of `admin` if one is given, and says which it is."""
    with _opened(url) as database:
        print(f"schema is at {migrate_database(database, admin)}")


def admin_token(url: str, name: str) -> None:
    """Makes a token of a platform admin and prints it."""
    secret = new_secret()
    maker = Maker("local", "database", reason="db admin-token")
    with _opened(url) as database:
        migrate.check(database.engine)
        scopes = (Scope("platform-admin"),)
        try:
            Store(database.engine).access.create_token(secret, name, scopes, None, maker, datetime.now(UTC))
        except NameTaken:
            raise CommandError(f"there is a token {name!r} already", "choose another --name") from None
    print(secret)


def check(url: str, form: Format) -> None:
    """Prints every broken invariant; CommandError when there is one."""
    if url.startswith(EMBEDDED):
        _need_database(url.removeprefix(EMBEDDED) or DEFAULT_FOLDER)
    with _opened(url) as database:
        migrate.check(database.engine)
        findings = Store(database.engine).check(datetime.now(UTC))
    if form is not Format.TABLE:
        print_data({"findings": findings}, form)
    for finding in findings if form is Format.TABLE else ():
        print(clean(finding))
    if findings:
        raise CommandError(f"{len(findings)} invariant(s) broken", "keep the database as it is and report this")
    if form is Format.TABLE:
        print("ok: ledger and invariants hold")


def _need_database(folder: str) -> None:
    # To open an embedded database makes one where there is none.
    if holds_database(folder):
        return
    hint = "`queue-manager up` keeps its in .queue-manager/database"
    inside = Path(folder, "database")
    if holds_database(inside):
        hint = f"{inside} has one: --database {EMBEDDED}{inside}"
    raise CommandError(f"there is no database in {folder}", hint)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Database]:
    try:
        with open_database(url, timeout=WAIT) as database:
            yield database
    except migrate.SchemaMismatch as error:
        raise CommandError(str(error), "run `queue-manager db upgrade` first, or use the version that fits") from error
    except (DatabaseError, EmbeddedError) as error:
        raise CommandError(str(error)) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise CommandError(f"the database failed: {reason}") from error
