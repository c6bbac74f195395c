"""A job that is over without pods, what it says then, and which watch events are news."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from queue_manager.controller.news import differs
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import JOBS, World, batch_job


async def test_a_job_that_is_over_frees_its_quota_at_once(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 2), JOBS)
        row = await world.until_state("j", State.FINISHED)
        with store.engine.connect() as connection:
            states = connection.execute(text("SELECT DISTINCT state FROM ledger")).scalars().all()
            admission = connection.execute(text("SELECT ended_at, evicted_at, cause FROM admissions")).one()
        assert "draining" not in states
        assert world.charged() == 0
        assert (admission.ended_at, admission.cause) == (row.finished_at, "Succeeded")
        assert store.check(world.clock.now()) == []

        await world.until(lambda: not store.pending_outbox(), "everything is settled")


async def test_an_event_is_sent_once_although_its_sender_was_killed_before_it_noted_that(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)
    settled = store.outbox_done
    monkeypatch.setattr(store, "outbox_done", lambda *_: None)
    async with world:
        await world.submit(labelled(batch_job("j", 2), "nobody"), JOBS)
        await world.until(lambda: "Held" in world.events("j"), "the event")
        await world.kill()
        monkeypatch.setattr(store, "outbox_done", settled)
        await world.start()
        await world.until(lambda: not store.pending_outbox(), "everything is settled")
        assert world.events("j").count("Held") == 1


def labelled(job: dict[str, Any], queue: str) -> dict[str, Any]:
    job["metadata"]["labels"]["queue-manager.io/queue"] = queue
    return job


JOB: dict[str, Any] = {
    "metadata": {"name": "j", "resourceVersion": "1", "annotations": {"queue-manager.io/state": "waiting"}},
    "spec": {"suspend": True},
    "status": {},
}


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"metadata": {**JOB["metadata"], "resourceVersion": "2", "managedFields": [{}]}}, False),
        ({"metadata": {**JOB["metadata"], "annotations": {"queue-manager.io/state": "running"}}}, False),
        ({"metadata": {**JOB["metadata"], "annotations": {"queue-manager.io/required-topology": "rack"}}}, True),
        ({"metadata": {**JOB["metadata"], "labels": {"queue-manager.io/queue": "other"}}}, True),
        ({"metadata": {**JOB["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        ({"spec": {"suspend": False}}, True),
        ({"status": {"active": 1}}, True),
    ],
)
def test_what_is_news(change: dict[str, Any], news: bool) -> None:
    assert differs({**JOB, **change}, JOB) is news
