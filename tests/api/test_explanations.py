"""Why a workload waits: who holds what is missing, since when it waits, and what would let it start."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.workloads import ways_out
from api.workloads.schemas import Blocker
from queue_manager.engine.decision import BlockerType
from queue_manager.store.records import Change, State
from queue_manager.store.store import Store
from tests.api.world import GPU, commit, configure, job, running, waiting
from tests.store.builders import NOW

HOUR = 3_600_000_000


@pytest.fixture
def explained(client: TestClient, store: Store) -> dict[str, Any]:
    """A job of 12 GPUs more than are free, behind two that hold 72 and 8."""
    configure(store)
    limited = replace(job("limited", "nlp", 1, age=50), max_run_time=2 * HOUR)
    blocked = waiting(job("blocked", "nlp", 2, age=20), "12 GPUs short", missing=12)
    body = dict(blocked.explanation or {})
    blocker = body["blockers"][0] | {
        "holders": ["team-nlp/big", "team-nlp/limited", "team-nlp/gone"],
        "enough": ["team-nlp/limited"],
    }
    commit(
        store,
        running(job("big", "nlp", 9, age=50)),
        running(limited),
        replace(blocked, explanation={**body, "blockers": [blocker]}),
    )
    answer: dict[str, Any] = client.get("/api/v1/workloads/team-nlp/blocked/explanation").json()
    return answer


def test_who_holds_how_much_since_and_until_when(explained: dict[str, Any]):
    [blocker] = explained["blockers"]
    held = {each["name"]: each for each in blocker["held"]}
    assert list(held) == ["big", "limited"]  # the third one has gone since
    assert (held["big"]["amount"], held["big"]["queue"], held["big"]["user"]) == (72, "nlp", "ada")
    begun = NOW - timedelta(minutes=49)
    assert datetime.fromisoformat(held["limited"]["since"]) == begun
    assert datetime.fromisoformat(held["limited"]["until"]) == begun + timedelta(hours=2)
    assert held["big"]["until"] is None


def test_what_would_let_it_start(explained: dict[str, Any]):
    [blocker] = explained["blockers"]
    assert blocker["waysOut"] == [
        "team-nlp/limited ends, at 2026-11-29T13:11:00Z at the latest",
        f"nlp gets 12 {GPU} of flavor h100 more (nominalQuota)",
    ]


def test_since_when_and_as_which_of_how_many(explained: dict[str, Any]):
    assert datetime.fromisoformat(explained["waitingSince"]) == NOW - timedelta(minutes=20)
    assert (explained["position"], explained["queued"]) == (1, 1)


def test_where_those_that_would_do_have_gone_the_numbers_are_told():
    blocker = Blocker(
        type=BlockerType.QUOTA, node="nlp", flavor="f", resource="cpu", missing=4000, holders=["a/b"], enough=["a/b"]
    )
    assert ways_out.completed(blocker, {}).ways_out[0] == "4 cpu of flavor f become free there"


@pytest.mark.parametrize("kind", BlockerType)
def test_every_type_of_blocker_has_a_way_out(kind: BlockerType):
    blocker = Blocker(type=kind, node="nlp", flavor="f", resource="cpu", requested=2, missing=1)
    for found in (blocker, blocker.model_copy(update={"holders": ["a/b"]})):
        ways = ways_out.completed(found, {}).ways_out
        assert ways
        assert not any("{" in way for way in ways)


@pytest.mark.parametrize(
    ("state", "reason", "way"),
    [
        (State.WAITING, "UnknownQueue", "its label names a queue that is there (queue-manager move does that, too)"),
        (State.HELD, "UnknownPriorityClass", "its label names a priority class that is there"),
        (State.HELD, "SomethingNew", "what the message names is put right"),
        (State.DEACTIVATED, "RequeuingLimitExceeded", "it is released (queue-manager release)"),
    ],
)
def test_what_is_out_of_its_queue_has_a_way_back(store: Store, client: TestClient, state: State, reason: str, way: str):
    configure(store)
    blockers = [{"type": reason, "message": "so"}]
    row = replace(job("lost", "nlp", 1), state=state, reason=reason, message="so")
    body = {"reason": reason, "message": "so", "blockers": blockers} if state is State.WAITING else None
    commit(store, Change(row=row, explanation=body))
    told = client.get("/api/v1/workloads/team-nlp/lost/explanation").json()
    assert [(each["type"], each["message"], each["waysOut"][0]) for each in told["blockers"]] == [(reason, "so", way)]
