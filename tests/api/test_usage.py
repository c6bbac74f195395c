"""The tree and its nodes over REST."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.store.store import Store
from tests.api.world import GPU, commit, configure, document, job, running, small_company
from tests.store.builders import NOW


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


def gpu(node: dict) -> dict[str, int]:
    [cell] = [cell for cell in node["cells"] if cell["resource"] == GPU]
    return {name: cell[name] for name in ("nominal", "used", "borrowed", "lent", "draining", "waiting")}


def test_usage_of_a_queue_by_name_and_by_path(company: TestClient):
    found = company.get("/api/v1/queues/nlp/usage").json()
    assert gpu(found) == {"nominal": 64, "used": 80, "borrowed": 16, "lent": 0, "draining": 8, "waiting": 24}
    assert found["workloads"] == {"draining": 1, "running": 1, "waiting": 2}
    assert company.get("/api/v1/queues/company/research/nlp/usage").json() == found


def test_usage_of_a_cohort(company: TestClient):
    found = company.get("/api/v1/cohorts/company/research/usage").json()
    assert gpu(found) == {"nominal": 96, "used": 88, "borrowed": 0, "lent": 0, "draining": 8, "waiting": 24}


def test_amounts_are_in_base_units(company: TestClient):
    cells = {cell["resource"]: cell for cell in company.get("/api/v1/queues/vision/usage").json()["cells"]}
    assert cells["cpu"]["used"] == 128_000
    assert cells["memory"]["nominal"] == 32 * 128 * 2**30


def test_tree(company: TestClient):
    tree = company.get("/api/v1/tree").json()
    assert tree["revision"] == 1
    [root] = tree["items"]
    assert (root["path"], [child["path"] for child in root["children"]]) == (
        "company",
        ["company/ranking", "company/research"],
    )
    assert root["children"][0]["stopPolicy"] == "Hold"
    research = root["children"][1]
    assert {child["name"]: gpu(child)["lent"] for child in research["children"]} == {"nlp": 0, "vision": 16}


def test_the_tree_tells_which_cohorts_are_stopped_by_hand(company: TestClient):
    stop = {"policy": "Hold", "reason": "audit"}
    company.post("/api/v1/cohorts/research/stop", json=stop)
    company.post("/api/v1/cohorts/company/stop", json={**stop, "policy": "HoldAndDrain"})
    [root] = company.get("/api/v1/tree").json()["items"]
    found = {each["name"]: (each["stopPolicy"], each["stopped"]) for each in (root, root["children"][1])}
    by = f"by local since {NOW:%Y-%m-%dT%H:%M:%SZ}: audit"
    # What counts for research is the stricter stop, of the cohort above it.
    assert found == {"company": ("HoldAndDrain", by), "research": ("HoldAndDrain", f"with cohort company {by}")}
    assert company.get("/api/v1/cohorts/research/usage").json()["stopPolicy"] == "HoldAndDrain"
    company.post("/api/v1/cohorts/company/stop", json={**stop, "policy": "None"})
    [root] = company.get("/api/v1/tree").json()["items"]
    assert [(each["stopPolicy"], each["stopped"]) for each in (root, root["children"][1])] == [
        ("None", ""),
        ("Hold", by),
    ]


def test_a_deleted_queue_stays_in_the_tree_while_it_is_charged(store: Store, client: TestClient):
    configure(store)
    commit(store, running(job("left", "ranking", 1)))
    store.apply_configuration(
        stored_objects([]), delete=[("Queue", "", "ranking")], author="ada", reason="", now=NOW, source="test"
    )
    last = client.get("/api/v1/tree").json()["items"][-1]
    assert (last["name"], last["configured"], gpu(last)["used"]) == ("ranking", False, 8)
    assert gpu(client.get("/api/v1/queues/ranking/usage").json())["used"] == 8


@pytest.mark.parametrize("path", ["queues/nothing", "cohorts/nlp", "queues/company"])
def test_unknown_node(company: TestClient, path: str):
    answer = company.get(f"/api/v1/{path}/usage")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_empty_installation(client: TestClient):
    assert client.get("/api/v1/tree").json() == {"revision": 0, "items": []}


@pytest.fixture
def deep(store: Store, client: TestClient) -> TestClient:
    """A configuration of an older version, with more levels than one may have now."""
    cohorts = [document("Cohort", f"c{n}", {"parent": f"c{n - 1}"} if n > 1 else {}) for n in range(1, 1501)]
    objects = parse_objects([*cohorts, document("Queue", "bottom", {"cohort": "c1500"})]).objects
    store.apply_configuration(stored_objects(objects), author="ada", reason="", now=NOW, source="test")
    return client


def test_a_tree_of_too_many_levels_is_shown_whole_and_no_deeper_than_allowed(deep: TestClient):
    nodes = deep.get("/api/v1/tree").json()["items"]
    for level in range(1, 32):
        [node] = nodes
        assert node["name"] == f"c{level}"
        nodes = node["children"]
    [last] = nodes
    below = [node["name"] for node in last["children"]]
    assert (last["name"], below) == ("c32", [*(f"c{n}" for n in range(33, 1501)), "bottom"])
    assert deep.get("/").status_code == 200
    assert deep.get("/api/v1/queues/bottom/usage").status_code == 200
