"""A token is for the node that it was made for, whatever gets the node's name later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store.store import Store
from queue_manager.store.tokens import Scope, new_secret
from tests.api.callers import MAKER, bearer, document, server, settle, token
from tests.store.builders import NOW

OWN = "research/nlp"
TOKENS = "/api/v1/tokens"
HOLD = {"policy": "Hold", "reason": "because"}
Headers = Mapping[str, str]


class Team:
    """The queue admin of research/nlp with a cohort that has the name of somebody else's queue."""

    def __init__(self, store: Store) -> None:
        settle(store)
        self.client: TestClient = server(store)
        self.admin = bearer(token(store, "queue-admin", OWN))
        self.platform = bearer(token(store, "platform-admin"))

    def put(self, path: str, body: Mapping[str, Any], headers: Headers) -> int:
        answer = self.client.put(f"/api/v1/{path}", json=body, headers={**headers, "If-None-Match": "*"})
        return int(answer.status_code)

    def delete(self, path: str, headers: Headers) -> Any:
        return self.client.delete(f"/api/v1/{path}", headers={**headers, "If-Match": "*"})

    def make(self, node: str, headers: Headers, name: str = "ci") -> dict[str, Any]:
        wanted = {"name": name, "scopes": [{"role": "queue-admin", "node": node}]}
        answer = self.client.post(TOKENS, json=wanted, headers=headers)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made


@pytest.fixture
def team(store: Store) -> Team:
    return Team(store)


def test_a_token_for_a_cohort_is_none_for_the_queue_of_that_name(team: Team, store: Store):
    assert team.put("cohorts/resnet", document("Cohort", "resnet", {"parent": OWN}), team.admin) == 201
    made = bearer(team.make("resnet", team.admin)["token"])
    assert team.client.post("/api/v1/cohorts/resnet/stop", json=HOLD, headers=made).status_code == 200
    assert team.client.post("/api/v1/queues/resnet/stop", json=HOLD, headers=made).status_code == 403
    assert store.access.token_named("ci").scopes == (Scope("queue-admin", "resnet", "Cohort"),)  # type: ignore[union-attr]


@pytest.mark.parametrize("who", ["admin", "platform"])
def test_a_node_stays_while_a_token_is_for_it(team: Team, who: str):
    headers = getattr(team, who)
    assert team.put("cohorts/robots", document("Cohort", "robots", {"parent": OWN}), team.admin) == 201
    made = team.make("company/research/nlp/robots", team.admin)  # by its path
    refused = team.delete("cohorts/robots", headers)
    assert refused.status_code == 422
    assert [(each["kind"], each["name"], each["message"], each["hint"]) for each in refused.json()["errors"]] == [
        ("Cohort", "robots", f"the token ci (id {made['id']}) is for it", "revoke the token first")
    ]
    assert team.delete(f"tokens/{made['id']}", team.admin).status_code == 204
    assert team.delete("cohorts/robots", headers).status_code == 204


def test_a_token_that_only_names_its_node_does_not_become_anothers(team: Team, store: Store):
    """As tokens were kept before their nodes' kinds were."""
    assert team.put("cohorts/resnet", document("Cohort", "resnet", {"parent": OWN}), team.admin) == 201
    store.access.create_token(new_secret(), "old", (Scope("queue-admin", "resnet"),), None, MAKER, NOW)
    assert team.delete("cohorts/resnet", team.admin).status_code == 422


def test_an_expired_token_keeps_no_node(team: Team, store: Store):
    assert team.put("cohorts/robots", document("Cohort", "robots", {"parent": OWN}), team.admin) == 201
    store.access.create_token(new_secret(), "old", (Scope("viewer", "robots", "Cohort"),), NOW, MAKER, NOW)
    assert team.delete("cohorts/robots", team.admin).status_code == 204
