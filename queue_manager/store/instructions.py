"""Instructions: what people ask of workloads through the API, kept until the leader has carried it out.

The API never changes a workload itself: it notes the wish and the audit line in one transaction. The leader deletes the
instruction in the commit that carries it out, so it is done once, also when leaders change meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from queue_manager.store import audits, codec, events
from queue_manager.store.notify import INSTRUCTIONS, notify
from queue_manager.store.records import Instruction, State, Wish, WorkloadRow

LEADER = "queue-manager"
"""Who refuses, in the audit log."""
REFUSED = "refuse"

_INSERT = text(
    "INSERT INTO instructions (workload_uid, wish, arguments, who, reason, at) "
    "SELECT uid, :wish, CAST(:arguments AS jsonb), :who, :reason, :at FROM workloads WHERE uid = :uid RETURNING id"
)
_COLUMNS = "id, workload_uid, wish, arguments, who, reason, at"
_PENDING = text(f"SELECT {_COLUMNS} FROM instructions ORDER BY id")
_OF_WORKLOAD = text(f"SELECT {_COLUMNS} FROM instructions WHERE workload_uid = :uid ORDER BY id")
_IS_PENDING = text("SELECT EXISTS (SELECT FROM instructions WHERE id = :id)")
_DONE = text("DELETE FROM instructions WHERE id = ANY(:ids)")
_REFUSAL = text(
    "SELECT reason FROM audit WHERE object = :object AND action = :action "
    "AND after = jsonb_build_object('instruction', CAST(:id AS bigint)) ORDER BY id DESC LIMIT 1"
)
_STATE = text('SELECT state, namespace, name, kind, queue, priority_class, "user" FROM workloads WHERE uid = :uid')


def add(
    connection: Connection,
    uid: str,
    wish: Wish,
    arguments: Mapping[str, Any],
    *,
    who: str,
    reason: str,
    source: str,
    now: datetime,
    address: str = "",
) -> int | None:
    """Notes a wish with its audit line; its id, None when the workload is not stored any more."""
    values = {"uid": uid, "wish": wish.value, "arguments": codec.encode(arguments), "at": now}
    id_: int | None = connection.execute(_INSERT, {**values, "who": who, "reason": reason}).scalar()
    if id_ is None:
        return None
    found = connection.execute(_STATE, {"uid": uid}).one()
    audits.write(
        connection,
        who=who,
        action=wish.value,
        object=object_name(found.namespace, found.name),
        before={
            "state": State(found.state).value,
            "kind": found.kind,
            "uid": uid,
            "queue": found.queue,
            "priorityClass": found.priority_class,
        },
        after=dict(arguments) or None,
        source=source,
        reason=reason,
        now=now,
        address=address,
    )
    told = {"action": wish.value, "who": who, "reason": reason, "arguments": dict(arguments), "user": found.user}
    where = {"namespace": found.namespace, "name": found.name, "kind": found.kind, "uid": uid, "queue": found.queue}
    events.write(connection, now, [(events.ACTION, found.queue, {**where, **told, "state": found.state})])
    notify(connection, INSTRUCTIONS)
    return id_


def object_name(namespace: str, name: str) -> str:
    """What the audit log calls a workload."""
    return f"workload/{namespace}/{name}"


def pending(connection: Connection) -> list[Instruction]:
    """Everything that is not carried out, in the order asked for."""
    return [_instruction(row) for row in connection.execute(_PENDING)]


def of_workload(connection: Connection, uid: str) -> list[Instruction]:
    """What is not carried out of one workload's."""
    return [_instruction(row) for row in connection.execute(_OF_WORKLOAD, {"uid": uid})]


def is_pending(connection: Connection, id: int) -> bool:
    """Whether it is not carried out yet."""
    return bool(connection.execute(_IS_PENDING, {"id": id}).scalar())


def refuse(connection: Connection, row: WorkloadRow, id: int, why: str, now: datetime) -> None:
    """Notes in the audit log why the leader does not carry out an instruction, which is done with by that."""
    audits.write(
        connection,
        who=LEADER,
        action=REFUSED,
        object=object_name(row.namespace, row.name),
        before={"state": row.state.value, "kind": row.kind, "uid": row.uid},
        after={"instruction": id},
        source="controller",
        reason=why,
        now=now,
    )


def refusal_of(connection: Connection, object: str, id: int) -> str:
    """Why an instruction was not carried out; "" when it was, or is pending."""
    values = {"object": object, "action": REFUSED, "id": id}
    found: str | None = connection.execute(_REFUSAL, values).scalar()
    return found or ""


def done(connection: Connection, ids: Sequence[int]) -> None:
    """Takes instructions away; unknown ids are ignored."""
    if ids:
        connection.execute(_DONE, {"ids": list(ids)})


def _instruction(row: Row[Any]) -> Instruction:
    return Instruction(
        id=row.id,
        uid=row.workload_uid,
        wish=Wish(row.wish),
        arguments=row.arguments,
        who=row.who,
        reason=row.reason,
        at=row.at,
    )
