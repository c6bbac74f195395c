"""Configuration objects and their revisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, select, text

from queue_manager.store import allowances, audits, codec, events, schema
from queue_manager.store.allowances import Allowance
from queue_manager.store.notify import CONFIGURATION, notify
from queue_manager.store.pipeline import in_words_of_driver
from queue_manager.store.records import ConfigObject, Revision, StaleConfiguration
from queue_manager.store.rowset import Rowset

Key = tuple[str, str, str]
"""(kind, namespace, name) of a configuration object."""

_LOCK = 0x716D636667  # "qmcfg": commits that depend on the configuration share it, an apply has it alone

CHANGES_TOLD = 100
"""Objects that an event of a revision names at most; the revision has all."""

_OBJECT = Rowset(
    {
        "kind": "text",
        "namespace": "text",
        "name": "text",
        "spec": "jsonb",
        "labels": "jsonb",
        "owner": "text",
    }
)
SHARE = in_words_of_driver(f"SELECT pg_advisory_xact_lock_shared({_LOCK})")
"""Who decides by the configuration sends this before NEWEST."""
_TAKE = text("SELECT pg_advisory_xact_lock(:key)")
NEWEST = in_words_of_driver("SELECT COALESCE(max(number), 0) FROM revisions")
_OBJECTS = text(
    "SELECT kind, name, spec, namespace, labels, owner, revision FROM config_objects ORDER BY kind, namespace, name"
)
_INSERT_REVISION = text(
    "INSERT INTO revisions (number, author, at, reason, source, diff, touched) "
    "VALUES (:number, :author, :at, :reason, :source, CAST(:diff AS jsonb), :touched)"
)
_UPSERT = text(
    f"INSERT INTO config_objects ({_OBJECT.names()}, revision) SELECT {_OBJECT.names('r.')}, :number "
    f"FROM {_OBJECT.source} ON CONFLICT (kind, namespace, name) DO UPDATE SET spec = excluded.spec, "
    "labels = excluded.labels, owner = excluded.owner, revision = excluded.revision"
)
_DELETE = text(
    "DELETE FROM config_objects o USING jsonb_to_recordset(CAST(:rows AS jsonb)) "
    "AS r (kind text, namespace text, name text) "
    "WHERE o.kind = r.kind AND o.namespace = r.namespace AND o.name = r.name"
)
_REVISION = text("SELECT number, author, at, reason, diff FROM revisions WHERE number = :number")
_NEWER = text("SELECT diff FROM revisions WHERE number > :number ORDER BY number DESC")


def heed(newest: int, revision: int) -> None:
    """StaleConfiguration unless `revision` is the newest, which was read after SHARE: until the transaction ends there
    is no newer one."""
    if newest != revision:
        raise StaleConfiguration(f"decided by revision {revision} of the configuration, the newest is {newest}")


def current_revision(connection: Connection) -> int:
    """Number of the newest revision, 0 when there is none."""
    return int(connection.exec_driver_sql(NEWEST).scalar_one())


def load(connection: Connection) -> tuple[int, list[ConfigObject]]:
    """The newest revision and its objects. One snapshot is needed: the transaction must be REPEATABLE READ."""
    return current_revision(connection), _objects(connection)


def load_at(connection: Connection, number: int) -> list[ConfigObject]:
    """The objects as they were at an older revision (their `revision` is 0); LookupError when it is unknown."""
    newest = current_revision(connection)
    if not 0 <= number <= newest:
        raise LookupError(f"there is no revision {number}; the newest is {newest}")
    objects = {_key(found): _body(found) for found in _objects(connection)}
    for diff in connection.execute(_NEWER, {"number": number}).scalars():
        for entry in diff:
            key = (entry["kind"], entry["namespace"], entry["name"])
            if entry["before"] is None:
                objects.pop(key, None)
            else:
                objects[key] = entry["before"]
    return [
        ConfigObject(kind, name, body["spec"], namespace, body["labels"], body["owner"])
        for (kind, namespace, name), body in sorted(objects.items())
    ]


def apply(
    connection: Connection,
    objects: Sequence[ConfigObject],
    delete: Iterable[Key],
    *,
    author: str,
    reason: str,
    now: datetime,
    expected_revision: int | None,
    source: str,
    address: str = "",
    allowed: Sequence[Allowance] | None = None,
) -> Revision:
    """Creates, changes and deletes objects as one revision; see `Store.apply_configuration`."""
    connection.execute(_TAKE, {"key": _LOCK})
    newest = current_revision(connection)
    if expected_revision is not None and expected_revision != newest:
        raise StaleConfiguration(f"made for revision {expected_revision} of the configuration, the newest is {newest}")
    diff = difference(_objects(connection), objects, delete)
    if not diff:
        return revision(connection, newest) or Revision(0, "", datetime.fromtimestamp(0, UTC), "", ())
    made = Revision(newest + 1, author, now, reason, tuple(diff))
    _write(connection, made, source)
    audits.write(
        connection,
        who=author,
        action="configuration.apply",
        object=f"revision/{made.number}",
        before={"revision": newest},
        after={"revision": made.number, "objects": len(diff)},
        source=source,
        reason=reason,
        now=now,
        address=address,
    )
    audits.write_many(
        connection,
        [_deed(entry) for entry in diff],
        who=author,
        source=source,
        reason=reason,
        now=now,
        address=address,
    )
    if allowed is not None:
        allowances.replace_all(connection, allowed)
    changed = [{name: entry[name] for name in ("kind", "namespace", "name")} for entry in diff[:CHANGES_TOLD]]
    body = {"revision": made.number, "author": author, "reason": reason, "changes": changed, "count": len(diff)}
    events.write(connection, now, [(events.CONFIGURATION, "", body)])
    notify(connection, CONFIGURATION)
    return made


def _deed(entry: Mapping[str, Any]) -> audits.Deed:
    before, after = entry["before"], entry["after"]
    done = "create" if before is None else "delete" if after is None else "change"
    return audits.Deed(f"configuration.{done}", touched(entry)[1], before, after)


def touched(entry: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of an object of a diff, and what the object is called in the audit log: `LocalQueue/team/default`."""
    return entry["kind"], "/".join(part for part in (entry["kind"], entry["namespace"], entry["name"]) if part)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Filters of a list of revisions, and its order; "" and None are no filter. `touched` is a kind, or an object as
    the audit log calls it."""

    author: str = ""
    since: datetime | None = None
    until: datetime | None = None
    touched: Sequence[str] = ()
    oldest_first: bool = False


EVERY = Chosen()


def revisions(connection: Connection, chosen: Chosen, limit: int, after: int | None) -> list[Revision]:
    """Revisions that fit all filters, those after a number in their order."""
    rows = connection.execute(revisions_query(chosen, limit, after))
    return [Revision(row.number, row.author, row.at, row.reason, tuple(row.diff)) for row in rows]


def revisions_query(chosen: Chosen, limit: int, after: int | None) -> Select[Any]:
    """The query of `revisions`; each filter has an index."""
    columns = schema.revisions.c
    query = select(columns.number, columns.author, columns.at, columns.reason, columns.diff)
    if chosen.author:
        query = query.where(columns.author == chosen.author)
    if chosen.since is not None:
        query = query.where(columns.at >= chosen.since)
    if chosen.until is not None:
        query = query.where(columns.at < chosen.until)
    if chosen.touched:
        query = query.where(columns.touched.contains(list(chosen.touched)))
    if after is not None:
        query = query.where(columns.number > after if chosen.oldest_first else columns.number < after)
    return query.order_by(columns.number if chosen.oldest_first else columns.number.desc()).limit(limit)


def _objects(connection: Connection) -> list[ConfigObject]:
    return [ConfigObject(*row) for row in connection.execute(_OBJECTS)]


def _key(found: ConfigObject) -> Key:
    return found.kind, found.namespace, found.name


def _body(found: ConfigObject) -> dict[str, Any]:
    return {"spec": found.spec, "labels": found.labels, "owner": found.owner}


def difference(
    stored: Iterable[ConfigObject], objects: Sequence[ConfigObject], delete: Iterable[Key]
) -> list[dict[str, Any]]:
    """What creating or replacing `objects` and deleting others changes: {kind, namespace, name, before, after} of each
    object that is not the same afterwards."""
    known = {_key(found): _body(found) for found in stored}
    wanted: dict[Key, Mapping[str, Any] | None] = dict.fromkeys(delete)
    for wish in objects:
        if _key(wish) in wanted:
            raise ValueError(f"{wish.kind} {wish.namespace}/{wish.name} is there twice")
        wanted[_key(wish)] = codec.builtins(_body(wish))
    return [
        {"kind": key[0], "namespace": key[1], "name": key[2], "before": known.get(key), "after": after}
        for key, after in sorted(wanted.items())
        if known.get(key) != after
    ]


def _write(connection: Connection, revision: Revision, source: str) -> None:
    number = revision.number
    connection.execute(
        _INSERT_REVISION,
        {
            "number": number,
            "author": revision.author,
            "at": revision.at,
            "reason": revision.reason,
            "source": source,
            "diff": codec.encode(revision.diff),
            "touched": sorted({name for entry in revision.diff for name in touched(entry)}),
        },
    )
    changed = [
        {"kind": entry["kind"], "namespace": entry["namespace"], "name": entry["name"], **entry["after"]}
        for entry in revision.diff
        if entry["after"] is not None
    ]
    deleted = [entry for entry in revision.diff if entry["after"] is None]
    if changed:
        connection.execute(_UPSERT, {"rows": codec.encode(changed), "number": number})
    if deleted:
        keys = [{name: entry[name] for name in ("kind", "namespace", "name")} for entry in deleted]
        connection.execute(_DELETE, {"rows": codec.encode(keys)})


def revision(connection: Connection, number: int) -> Revision | None:
    """One revision, None when there is none of that number."""
    row = connection.execute(_REVISION, {"number": number}).one_or_none()
    return None if row is None else Revision(row.number, row.author, row.at, row.reason, tuple(row.diff))
