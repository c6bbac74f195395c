"""Leader leases. The epoch grows with every change of holder and fences what a former leader still tries to write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from queue_manager.store.pipeline import in_words_of_driver
from queue_manager.store.records import StaleEpoch

CONTROLLER = "controller"
"""The lease whose epoch every commit carries."""

_CREATE = text(
    "INSERT INTO leases (name, holder, epoch, expires_at) VALUES (:name, '', 0, now()) ON CONFLICT DO NOTHING"
)
_ACQUIRE = text("""
    UPDATE leases SET
        holder = :holder,
        epoch = CASE WHEN holder = :holder THEN epoch ELSE epoch + 1 END,
        expires_at = COALESCE(CAST(:now AS timestamptz), clock_timestamp()) + :ttl
    WHERE name = :name AND (
        holder IN ('', :holder) OR expires_at <= COALESCE(CAST(:now AS timestamptz), clock_timestamp()))
    RETURNING epoch""")
_RENEW = text("""
    UPDATE leases SET expires_at = COALESCE(CAST(:now AS timestamptz), clock_timestamp()) + :ttl
    WHERE name = :name AND holder = :holder AND epoch = :epoch""")
_RELEASE = text("UPDATE leases SET holder = '' WHERE name = :name AND holder = :holder AND epoch = :epoch")
_CURRENT = text("SELECT name, holder, epoch, expires_at FROM leases WHERE name = :name")
FENCE = in_words_of_driver(
    "SELECT epoch, set_config('enable_seqscan', 'off', true) FROM leases "
    "WHERE name = :name AND holder <> '' FOR KEY SHARE"
)
FENCED = {"name": CONTROLLER}
"""Its parameter."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as stored. `holder` is "" when it was released."""

    name: str
    holder: str
    epoch: int
    expires_at: datetime


def acquire(connection: Connection, name: str, holder: str, ttl: timedelta, now: datetime | None) -> int | None:
    """Takes a free, expired or own lease; its epoch, or None when another holder has it."""
    arguments = {"name": name, "holder": holder, "ttl": ttl, "now": now}
    connection.execute(_CREATE, {"name": name})
    epoch: int | None = connection.execute(_ACQUIRE, arguments).scalar()
    return epoch


def renew(connection: Connection, name: str, holder: str, epoch: int, ttl: timedelta, now: datetime | None) -> bool:
    """Prolongs a lease we have, expired or not; False when it is not ours any more."""
    arguments = {"name": name, "holder": holder, "epoch": epoch, "ttl": ttl, "now": now}
    return connection.execute(_RENEW, arguments).rowcount == 1


def release(connection: Connection, name: str, holder: str, epoch: int) -> None:
    """Lets the next one take it at once; nothing happens when it is not ours."""
    connection.execute(_RELEASE, {"name": name, "holder": holder, "epoch": epoch})


def current(connection: Connection, name: str) -> Lease | None:
    """The lease as it is stored, expired or not."""
    row = connection.execute(_CURRENT, {"name": name}).one_or_none()
    return Lease(*row) if row is not None else None


def fence(connection: Connection, epoch: int) -> None:
    """StaleEpoch unless `epoch` leads; until the transaction ends nobody takes over (renewing goes on).

    Until then tables are looked into by their indexes too: plans of prepared statements made while a table was small
    would go on reading all of it when it has grown, until its statistics are taken.
    """
    heed(connection.exec_driver_sql(FENCE, FENCED).scalar(), epoch)


def heed(found: int | None, epoch: int) -> None:
    """The same by the epoch that FENCE has found."""
    if found != epoch:
        raise StaleEpoch(f"epoch {epoch} does not lead any more (now: {found if found is not None else 'nobody'})")
