"""Leases: one holder, epochs that grow with it, virtual and real clocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import text

from queue_manager.store import leases
from queue_manager.store.store import Store
from tests.store.builders import NOW

TTL = timedelta(seconds=10)


def test_the_epoch_grows_with_the_holder(store: Store) -> None:
    assert store.current_lease("controller") is None
    assert store.acquire_lease("controller", "a", TTL, NOW) == 1
    assert store.acquire_lease("controller", "a", TTL, NOW) == 1
    assert store.acquire_lease("controller", "b", TTL, NOW + TTL / 2) is None
    assert store.acquire_lease("other", "b", TTL, NOW) == 1
    assert store.acquire_lease("controller", "b", TTL, NOW + TTL) == 2
    assert not store.renew_lease("controller", "a", 1, TTL, NOW)
    assert store.renew_lease("controller", "b", 2, TTL, NOW + 2 * TTL)
    lease = store.current_lease("controller")
    assert lease is not None
    assert (lease.holder, lease.epoch, lease.expires_at) == ("b", 2, NOW + 3 * TTL)


def test_a_released_lease_is_taken_at_once_with_a_new_epoch(store: Store) -> None:
    assert store.acquire_lease("controller", "a", TTL, NOW) == 1
    store.release_lease("controller", "b", 1)  # not theirs: nothing happens
    assert store.acquire_lease("controller", "b", TTL, NOW) is None
    store.release_lease("controller", "a", 1)
    assert not store.renew_lease("controller", "a", 1, TTL, NOW)
    assert store.acquire_lease("controller", "a", TTL, NOW) == 2


def test_without_a_time_the_databases_clock_counts(store: Store) -> None:
    assert store.acquire_lease("controller", "a", timedelta(hours=1)) == 1
    assert store.acquire_lease("controller", "b", TTL) is None
    assert store.renew_lease("controller", "a", 1, timedelta(seconds=-1))  # runs out
    assert store.acquire_lease("controller", "b", TTL) == 2


def test_of_many_at_once_one_gets_it(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda n: store.acquire_lease("controller", f"holder-{n}", TTL), range(16)))
    assert [epoch for epoch in epochs if epoch is not None] == [1]


def test_under_the_fence_small_tables_are_read_by_their_indexes_too(store: Store) -> None:
    """A plan is kept for as long as nobody analyzes the table, however large it grows meanwhile."""
    explain = text(
        "EXPLAIN UPDATE workloads w SET reason = r.uid FROM unnest(ARRAY['a']) AS r (uid) WHERE w.uid = r.uid"
    )
    epoch = store.acquire_lease("controller", "a", TTL)
    assert epoch is not None
    with store.engine.begin() as connection:
        leases.fence(connection, epoch)
        plan = "\n".join(connection.execute(explain).scalars())
        assert "Seq Scan on workloads" not in plan, plan
    with store.engine.begin() as connection:
        assert connection.execute(text("SHOW enable_seqscan")).scalar() == "on"
