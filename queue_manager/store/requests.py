"""The store's face for requests of the API: the stream of events, and answers for requests that are sent again."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Engine

from queue_manager.store import events, replays, usage_over_time
from queue_manager.store.events import Event, Range
from queue_manager.store.replays import Replay
from queue_manager.store.usage_over_time import Asked, QuotaChange, Step


class RequestStore:
    """As `Store`: every method is one transaction, safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def events_after(self, id: int, limit: int) -> list[Event]:
        """The first events after an id, in the order of their commits."""
        with self.engine.connect() as connection:
            return events.after(connection, id, limit)

    def known_events(self) -> Range:
        """Up to which id events were deleted, and the newest id."""
        with self.engine.connect() as connection:
            snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            return events.known(snapshot)

    def purge(self, events_before: datetime, now: datetime) -> None:
        """Forgets events that are older, and answers that are kept no longer."""
        with self.engine.begin() as connection:
            events.purge(connection, events_before, now)
            replays.purge(connection, now)

    def begin_replay(self, who: str, key: str, hash: bytes, now: datetime) -> Replay | None:
        """None when a request is the first with its key, and is now worked on; else what is known of the first."""
        with self.engine.begin() as connection:
            return replays.begin(connection, who, key, hash, now)

    def finish_replay(self, who: str, key: str, status: int, media_type: str, body: bytes) -> None:
        """Keeps the answer."""
        with self.engine.begin() as connection:
            replays.finish(connection, who, key, status, media_type, body)

    def drop_replay(self, who: str, key: str) -> None:
        """Lets a request that failed be tried again."""
        with self.engine.begin() as connection:
            replays.drop(connection, who, key)

    def usage_steps(self, asked: Asked, most: int) -> list[Step]:
        """What was charged over time; TooMuch for more than `most` sums, TooLong where it takes too long."""
        with self.engine.begin() as connection:
            return usage_over_time.steps(connection, asked, most)

    def usage_kept_since(self) -> datetime | None:
        """Beginning of the first month of which the ledger knows what ended in it."""
        with self.engine.connect() as connection:
            return usage_over_time.kept_since(connection)

    def quota_changes(self, after: datetime, newest: int, most: int) -> list[QuotaChange]:
        """Changes of quotas after a time up to the revision `newest`, the last first; TooMuch for more than `most`."""
        with self.engine.connect() as connection:
            return usage_over_time.quota_changes(connection, after, newest, most)
