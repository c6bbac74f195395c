"""move, reprioritise and evict over REST: noted with what they take, refused with a reason, by the leader too."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store.records import Change, Wish
from queue_manager.store.store import Store
from tests.api.world import SMALL, configure, document, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


def ask(client: TestClient, path: str, **body: Any) -> Any:
    return client.post(f"{ALL}/{path}", json={"reason": "because", **body})


@pytest.mark.parametrize(
    ("action", "body", "noted"),
    [
        ("move", {"queue": "vision"}, {"queue": "vision", "force": False}),
        (
            "move",
            {"queue": "company/research/vision", "force": True},
            {"queue": "company/research/vision", "force": True},
        ),
        ("reprioritise", {"priorityClass": "high"}, {"priorityClass": "high"}),
        ("evict", {}, {"requeueAfter": None}),
        ("evict", {"requeueAfter": "10m"}, {"requeueAfter": 600}),
        ("evict", {"requeueAfter": 30}, {"requeueAfter": 30}),
    ],
)
def test_it_is_noted_for_the_leader_with_its_audit_line(
    company: TestClient, store: Store, action: str, body: dict[str, Any], noted: dict[str, Any]
):
    answer = ask(company, f"team-nlp/big/{action}", **body)
    assert answer.status_code == 202, answer.text
    [instruction] = store.pending_instructions()
    assert (instruction.wish, instruction.arguments, instruction.reason) == (Wish(action), noted, "because")
    [line] = store.audit_entries(object="workload/team-nlp/big")
    assert (line.action, line.after, line.reason) == (action, noted, "because")
    assert line.before is not None
    assert (line.before["queue"], line.before["state"]) == ("nlp", "running")
    [entry] = company.get(f"{ALL}/team-nlp/big/history").json()["actions"]
    assert (entry["action"], entry["arguments"], entry["reason"]) == (action, noted, "because")


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("move", {}, "queue", "is missing"),
        ("move", {"queue": ""}, "queue", "must not be empty"),
        ("move", {"queue": "visoin"}, "queue", "did you mean 'vision'?"),
        ("move", {"queue": "vision", "force": "yes"}, "force", "true or false"),
        ("move", {"queue": "vision", "flavor": "h100"}, "flavor", "unknown field"),
        ("move", {"queue": "vision", "reason": " "}, "reason", "blank"),
        ("reprioritise", {}, "priorityClass", "is missing"),
        ("reprioritise", {"priorityClass": "hihg"}, "priorityClass", "did you mean 'high'?"),
        ("evict", {"requeueAfter": "soon"}, "requeueAfter", "soon"),
        ("evict", {"requeueAfter": -1}, "requeueAfter", "from 0 seconds to a year"),
        ("evict", {"requeueAfter": True}, "requeueAfter", "whole number"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    company: TestClient, store: Store, path: str, body: dict[str, Any], field: str, says: str
):
    answer = ask(company, f"team-nlp/big/{path}", **body)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == f"body.{field}"
    assert says in error["message"]
    assert store.pending_instructions() == []


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("team-nlp/blocked/evict", {}, "it is waiting: there is nothing to stop"),
        ("team-vision/held/evict", {}, "it is held: there is nothing to stop"),
        ("team-vision/done/evict", {}, "it is over"),
        ("team-vision/done/move", {"queue": "nlp"}, "it is over"),
        ("team-vision/done/reprioritise", {"priorityClass": "high"}, "it is over"),
    ],
)
def test_what_makes_no_sense_is_a_conflict(company: TestClient, store: Store, path: str, body: Any, why: str):
    answer = ask(company, path, **body)
    assert (answer.status_code, answer.json()["detail"]) == (409, f"{path.rpartition('/')[0]}: {why}")
    assert store.pending_instructions() == []


def test_what_the_leader_refuses_is_a_conflict_with_its_reason(
    company: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
):
    def leads(self: Store, id: int) -> bool:
        [instruction] = self.pending_instructions()
        [row] = self.get_workloads([instruction.uid])
        self.commit(1, None, NOW, [Change(row=row, instructions=(id,), refusals=((id, "queue vision is full"),))])
        return False

    monkeypatch.setattr(Store, "instruction_is_pending", leads)
    answer = ask(company, "team-nlp/big/move", queue="vision")
    assert (answer.status_code, answer.json()["title"]) == (409, "Refused to move")
    assert answer.json()["detail"] == "team-nlp/big: queue vision is full"
    asked, refused = company.get(f"{ALL}/team-nlp/big/history").json()["actions"]
    assert (asked["action"], refused["action"], refused["who"]) == ("move", "refuse", "queue-manager")
    assert (refused["reason"], refused["arguments"]) == ("queue vision is full", {"instruction": 1})


def test_a_queue_that_no_label_can_name_needs_a_local_queue(store: Store, client: TestClient):
    spec = next(each["spec"] for each in SMALL if each["metadata"]["name"] == "nlp")
    small_company(store)
    configure(store, [*SMALL, document("Queue", "research/audio", spec)])
    answer = ask(client, "team-nlp/big/move", queue="research/audio")
    assert answer.status_code == 422
    assert "make a local queue for it there" in answer.json()["detail"]
    local = document("LocalQueue", "audio", {"queue": "research/audio"}, "team-nlp")
    configure(store, [*SMALL, document("Queue", "research/audio", spec), local])
    assert ask(client, "team-nlp/big/move", queue="research/audio").status_code == 202
