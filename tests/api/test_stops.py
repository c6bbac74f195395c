"""Stops by hand: kept beside the configuration, with author and reason; no file, rollback or prune ends one."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.config.compiled import compile_objects
from queue_manager.engine.configuration import StopPolicy
from queue_manager.store.store import Store
from tests.api.world import configure, small_company


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


def stop(client: TestClient, path: str, policy: str, reason: str = "maintenance") -> Any:
    return client.post(f"/api/v1/{path}/stop", json={"policy": policy, "reason": reason})


def policies(store: Store) -> dict[str, str]:
    """Queues, local queues and flavors that are stopped, as the leader sees them."""
    revision, objects = store.load_configuration()
    c = compile_objects(objects, revision).configuration
    found = [(n, each) for part in (c.queues, c.local_queues, c.flavors) for n, each in part.items()]
    return {name: each.stop_policy.value for name, each in found if each.stop_policy is not StopPolicy.NONE}


@pytest.mark.parametrize(
    ("path", "stopped"),
    [
        ("queues/nlp", {"nlp": "Hold"}),
        ("queues/company/research/nlp", {"nlp": "Hold"}),
        ("cohorts/research", {"nlp": "Hold", "vision": "Hold"}),
        ("cohorts/company/research", {"nlp": "Hold", "vision": "Hold"}),
        ("local-queues/team-nlp/default", {"team-nlp/default": "Hold"}),
        ("flavors/h100", {"h100": "Hold"}),
    ],
)
def test_what_is_stopped_is_stopped_for_the_leader_until_somebody_ends_it(
    company: TestClient, store: Store, path: str, stopped: dict[str, str]
):
    always = {"ranking": "Hold"}
    answer = stop(company, path, "Hold")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["policy"], found["effective"], found["by"], found["reason"]) == (
        "Hold",
        "Hold",
        "local",
        "maintenance",
    )
    assert policies(store) == always | stopped
    [listed] = company.get("/api/v1/stops").json()["items"]
    assert listed == found
    [revision] = [each for each in store.revisions() if each.reason == "maintenance"]
    assert (revision.author, len(revision.diff)) == ("local", 1)
    kind, namespace, name = found["kind"], found["namespace"], found["name"]
    where = "/".join(part for part in ("Stop", namespace, kind, name) if part)
    [line] = store.audit_entries(object=where)
    assert (line.who, line.action, line.reason) == ("local", "configuration.create", "maintenance")
    assert stop(company, path, "None", "done").json()["policy"] == "None"
    assert policies(store) == always
    assert company.get("/api/v1/stops").json()["items"] == []


def test_asking_twice_changes_nothing_and_another_policy_takes_its_place(company: TestClient, store: Store):
    first = stop(company, "queues/nlp", "Hold").json()
    revision = store.current_revision()
    assert stop(company, "queues/nlp", "Hold").json() == first
    assert store.current_revision() == revision
    assert stop(company, "queues/nlp", "None", "twice").status_code == 200
    assert stop(company, "queues/nlp", "None", "twice").status_code == 200
    assert stop(company, "queues/nlp", "HoldAndDrain").json()["effective"] == "HoldAndDrain"


def test_the_stricter_of_file_hand_and_cohort_counts_and_the_answer_says_so(company: TestClient, store: Store):
    found = stop(company, "queues/ranking", "None").json()
    assert (found["policy"], found["effective"]) == ("None", "Hold")
    assert found["message"] == "it is stopped (Hold) by its configuration"
    stop(company, "queues/ranking", "HoldAndDrain")
    assert policies(store)["ranking"] == "HoldAndDrain"
    stop(company, "cohorts/research", "HoldAndDrain", "no power")
    found = stop(company, "queues/nlp", "Hold").json()
    assert (found["policy"], found["effective"]) == ("Hold", "HoldAndDrain")
    assert "with cohort research by local" in found["message"]
    assert found["message"].endswith("no power")
    node = company.get("/api/v1/queues/nlp/usage").json()
    assert node["stopPolicy"] == "HoldAndDrain"
    assert "no power" in node["stopped"]


def test_neither_apply_nor_prune_nor_rollback_ends_a_stop_and_each_says_so(company: TestClient, store: Store):
    before = store.current_revision()
    stop(company, "queues/nlp", "HoldAndDrain", "broken switch")
    text = company.get("/api/v1/config").text
    assert "Stop" not in [line.partition("kind: ")[2] for line in text.splitlines()]
    for path, method in (("config/plan", "POST"), ("config/diff", "POST"), ("config", "PUT")):
        answer = company.request(method, f"/api/v1/{path}", content=text, params={"owner": "file", "prune": True})
        assert answer.status_code == 200, answer.text
        [warning] = [each for each in answer.json()["warnings"] if each["name"] == "nlp"]
        assert "is stopped by hand (HoldAndDrain) by local since" in warning["message"]
        assert warning["message"].endswith("broken switch; that stays so")
    assert policies(store)["nlp"] == "HoldAndDrain"
    planned = company.post(f"/api/v1/revisions/{before}/plan").json()
    assert [each for each in planned["changes"] if each["kind"] == "Stop"] == []
    assert [each for each in planned["warnings"] if each["name"] == "nlp"]
    assert company.post(f"/api/v1/revisions/{before}/rollback").status_code == 200
    assert policies(store)["nlp"] == "HoldAndDrain"


def test_a_stop_outlives_its_queue_and_counts_again_with_it(company: TestClient, store: Store):
    stop(company, "queues/vision", "Hold")
    assert company.delete("/api/v1/queues/vision", headers={"If-Match": "*"}).status_code == 204
    [listed] = company.get("/api/v1/stops").json()["items"]
    assert (listed["effective"], listed["message"]) == ("None", "there is no such thing any more")
    configure(store)
    assert policies(store)["vision"] == "Hold"
    company.delete("/api/v1/queues/vision", headers={"If-Match": "*"})
    assert stop(company, "queues/vision", "None").status_code == 200
    assert company.get("/api/v1/stops").json()["items"] == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("queues/nlpp", "did you mean 'nlp'?"),
        ("cohorts/reserch", "did you mean 'research'?"),
        ("flavors/h10", "did you mean 'h100'?"),
        ("local-queues/team-nlp/defalt", "did you mean 'default'?"),
        ("local-queues/team-x/default", "there is no LocalQueue yet"),
    ],
)
def test_what_is_not_there_is_not_stopped(company: TestClient, store: Store, path: str, says: str):
    answer = stop(company, path, "Hold")
    assert answer.status_code == 404
    assert says in answer.json()["detail"]
    assert store.revisions()[0].number == store.current_revision() == 1


@pytest.mark.parametrize(
    "body", [{}, {"policy": "Hold"}, {"policy": "hold", "reason": "x"}, {"policy": "Hold", "reason": " "}, {"stop": 1}]
)
def test_a_stop_needs_a_policy_and_a_reason(company: TestClient, body: Any):
    answer = company.post("/api/v1/queues/nlp/stop", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_no_file_holds_stops(company: TestClient):
    text = "apiVersion: queue-manager.io/v1\nkind: Stop\nmetadata: {name: nlp}\nspec: {policy: None}\n"
    answer = company.put("/api/v1/config", content=text)
    assert answer.status_code == 422
    assert "Stop" in answer.text


def test_a_plan_counts_what_is_stopped_by_hand(company: TestClient):
    stop(company, "cohorts/company", "Hold")
    text = company.get("/api/v1/config").text.replace("nominalQuota: 64", "nominalQuota: 6400")
    assert company.post("/api/v1/config/plan", content=text).json()["wouldStart"] == []
