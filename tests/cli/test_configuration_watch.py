"""The configuration as roles that only read it know it."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

from sqlalchemy.exc import OperationalError

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.cli.roles import ConfigurationWatch
from queue_manager.store.records import ConfigObject
from queue_manager.store.store import Store

TOPOLOGY = """
apiVersion: queue-manager.io/v1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
"""


class CountingStore(Store):
    """Counts what is read; the first question for the newest revision is answered after `answer` is set."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.engine)
        self.answer, self.reached = threading.Event(), threading.Event()
        self.asked = self.loaded = 0

    def current_revision(self) -> int:
        self.asked += 1
        found = super().current_revision()
        self.reached.set()
        assert self.asked > 1 or self.answer.wait(30)
        return found

    def load_configuration(self) -> tuple[int, list[ConfigObject]]:
        self.loaded += 1
        return super().load_configuration()


class AwayStore(Store):
    """A database that is away at the first question."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.engine)
        self.failed = False
        self.read = threading.Event()

    def load_configuration(self) -> tuple[int, list[ConfigObject]]:
        if not self.failed:
            self.failed = True
            raise OperationalError("SELECT", {}, Exception("the database is away"))
        self.read.set()
        return super().load_configuration()


async def test_a_database_that_is_away_is_waited_for(store: Store) -> None:
    away = AwayStore(store)
    watch = ConfigurationWatch(away)
    following = asyncio.create_task(watch.run())
    assert await asyncio.to_thread(away.read.wait, 30)
    await watch.catch_up()
    assert watch.catalogue() is not None
    assert not following.done()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_revision_that_no_notification_has_told_of_is_known_after_a_look(store: Store) -> None:
    watch = ConfigurationWatch(store)
    assert await watch.catch_up()
    assert not await watch.catch_up()
    apply_text(Context(store, lambda: datetime.now(UTC)), TOPOLOGY, file="test.yaml")
    known = watch.catalogue()
    assert known is not None
    assert "rack" not in known.topology_levels
    assert await watch.catch_up()
    now = watch.catalogue()
    assert now is not None
    assert "rack" in now.topology_levels


async def test_looks_for_what_is_not_there_read_the_number_of_the_revision_alone(store: Store) -> None:
    counting = CountingStore(store)
    counting.answer.set()
    watch = ConfigurationWatch(counting)
    await watch.catch_up()
    for _ in range(3):
        assert not await watch.catch_up()
    assert (counting.loaded, counting.asked) == (1, 3)


async def test_all_who_look_during_a_read_share_the_next_one_and_all_know_that_there_is_more(store: Store) -> None:
    counting = CountingStore(store)
    watch = ConfigurationWatch(counting)
    await watch.catch_up()
    first = asyncio.create_task(watch.catch_up())
    assert await asyncio.to_thread(counting.reached.wait, 30)
    apply_text(Context(store, lambda: datetime.now(UTC)), TOPOLOGY, file="test.yaml")
    later = [asyncio.create_task(watch.catch_up()) for _ in range(20)]
    await asyncio.sleep(0)
    counting.answer.set()
    # The first one may have been answered before there was more; those that came later were not.
    assert await asyncio.gather(*later) == [True] * 20
    await first
    assert (counting.loaded, counting.asked) == (2, 2)
