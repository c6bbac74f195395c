"""Two roles of the database: one migrates and owns the tables, the other, that the program runs as, only works on them.

The run-time role has no grant to change what is written for good, so that the triggers are not all that keeps it.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from queue_manager.store import migrate
from queue_manager.store.database import DatabaseError

APPEND_ONLY = {"audit": "UPDATE, DELETE", "ledger": "DELETE", "alembic_version": "INSERT, UPDATE, DELETE"}
"""What the run-time role may not do with a table; TRUNCATE of none, and no change of any table's definition."""
_FOREIGN = text(
    "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S') "
    "AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') "
    "AND c.relowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user) AND c.relkind <> 'S' ORDER BY 1"
)
_FUNCTIONS = text(
    "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace "
    "AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') "
    "AND p.proowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user) ORDER BY 1"
)

_SERVICES = text("SELECT oid::regprocedure::text FROM pg_proc WHERE proname = ANY('{history_keep}') ORDER BY 1")
"""What the run-time role asks the owner to do: make and drop partitions, by the owner's rules."""


def upgrade_apart(admin: Engine, role: str) -> str:
    """Migrates as the owner and gives the run-time role what it works with, and no more; the schema's revision.

    Tables that the run-time role made itself, before there was an owner of their own, are taken over. DatabaseError
    when both are one role, or the run-time role could do as the owner does.
    """
    with admin.begin() as connection:
        _must_differ(connection, role)
        _take_over(connection)
    found = migrate.upgrade(admin)
    with admin.begin() as connection:
        _grant(connection, connection.dialect.identifier_preparer.quote(role))
    return found


def _must_differ(connection: Connection, role: str) -> None:
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if owner == role:
        raise DatabaseError(f"QM_DATABASE_ADMIN and the database URL name one role, {role!r}: give the latter another")
    known = connection.execute(
        text(
            "SELECT rolsuper, pg_has_role(rolname, CAST(current_user AS name), 'MEMBER') FROM pg_roles "
            "WHERE rolname = :role"
        ),
        {"role": role},
    ).one_or_none()
    if known is None:
        raise DatabaseError(f"the database has no role {role!r}; make it first: CREATE ROLE ... LOGIN")
    if any(known):
        raise DatabaseError(
            f"the role {role!r} is a superuser or a member of {owner!r}, so nothing could be kept from it"
        )


def _take_over(connection: Connection) -> None:
    quote = connection.dialect.identifier_preparer.quote
    for name in connection.execute(_FOREIGN).scalars().all():
        connection.execute(text(f"ALTER TABLE public.{quote(name)} OWNER TO CURRENT_USER"))
    for signature in connection.execute(_FUNCTIONS).scalars().all():
        connection.execute(text(f"ALTER FUNCTION {signature} OWNER TO CURRENT_USER"))


def _grant(connection: Connection, role: str) -> None:
    for statement in (
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"REVOKE CREATE ON SCHEMA public FROM {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        *(f"REVOKE {rights} ON {table} FROM {role}" for table, rights in APPEND_ONLY.items()),
    ):
        connection.execute(text(statement))
    for signature in connection.execute(_SERVICES).scalars().all():
        connection.execute(text(f"GRANT EXECUTE ON FUNCTION {signature} TO {role}"))
