"""Problem documents name nothing that their reader may not see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store.store import Store
from tests.api.callers import bearer, document, server, settle, token
from tests.api.world import queue

OWN = "research/nlp"
REASON = {"reason": "because"}
SECRETS = ("resnet", "vision", "leads", "company")
BINDING = document(
    "RoleBinding", "leads", {"role": "viewer", "node": "vision", "subjects": [{"kind": "User", "name": "x"}]}
)


class Asker:
    """The queue admin of research/nlp, from whom the rest may be hidden."""

    def __init__(self, store: Store, hidden: bool) -> None:
        settle(store, BINDING, hidden=hidden)
        self.client: TestClient = server(store)
        self.headers = bearer(token(store, "queue-admin", OWN))

    def post(self, path: str, body: Any = None) -> Any:
        return self.client.post(f"/api/v1/{path}", json=body, headers=self.headers)

    def apply(self, item: Any) -> Any:
        return self.client.put("/api/v1/config", content=json.dumps(item), headers=self.headers)

    def answers(self) -> list[Any]:
        binding = {**BINDING["spec"], "node": "visio"}
        return [
            self.post("revisions/0/diff"),
            self.apply(queue("new", "visio", 1)),
            self.apply(document("LocalQueue", "new", {"queue": "resnt"}, "team-bert")),
            self.apply(document("RoleBinding", "new", binding)),
            self.post("workloads/team-bert/blocked/move", {"queue": "resne", **REASON}),
        ]


@pytest.mark.parametrize("hidden", [True, False])
def test_what_is_hidden_is_neither_named_nor_suggested(store: Store, hidden: bool):
    asker = Asker(store, hidden)
    for answer in asker.answers():
        assert answer.status_code in (403, 422)
        assert any(secret in answer.text for secret in SECRETS) is not hidden, answer.text


def test_local_queues_of_others_are_not_suggested(store: Store):
    asker = Asker(store, hidden=True)
    answer = asker.post("local-queues/team-resnet/nix/stop", {"policy": "Hold", **REASON})
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no LocalQueue 'team-resnet/nix'")


def test_what_is_left_of_a_refusal_says_how_much_is_hidden(store: Store):
    asker = Asker(store, hidden=True)
    errors = asker.post("revisions/0/diff").json()["errors"]
    assert f"Cohort {OWN}" in [f"{each.get('kind')} {each.get('name')}" for each in errors]
    assert errors[-1] == {"message": "6 more, about what you may not see (a name may be taken there)"}


def test_what_may_be_seen_is_suggested(store: Store):
    asker = Asker(store, hidden=True)
    answer = asker.apply(document("LocalQueue", "new", {"queue": "brt"}, "team-bert"))
    assert answer.json()["errors"][0]["hint"] == "did you mean 'bert'?"
