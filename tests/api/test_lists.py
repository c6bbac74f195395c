"""What all lists have in common: pages by a cursor that is checked, and `fields` of the items."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from api.auth.decisions import DECISIONS, KINDS
from queue_manager.store.store import Store
from tests.api.world import SMALL, configure, document, queue, small_company

CHECKS = "/api/v1/workloads/team-nlp/big/checks"
LISTS: dict[str, str] = {
    **{f"/api/v1/{plural}": "metadata" for plural in KINDS},
    "/api/v1/workloads": "name",
    "/api/v1/revisions": "number",
    "/api/v1/tokens": "name",
    "/api/v1/audit": "action",
    "/api/v1/stops": "policy",
    CHECKS: "state",
}
"""Each list with a field of its items."""


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    """At least two things in each list, but for those of which there is one or none."""
    small_company(store)
    configure(
        store,
        [
            *(each for each in SMALL if each["metadata"]["name"] not in ("nlp", "high")),
            queue("nlp", "research", 64, admissionChecks=[{"name": "cached"}, {"name": "approved"}]),
            document("PriorityClass", "high", {"value": 7}),
            document("PriorityClass", "low", {"value": 1}),
            document("Flavor", "a100", {}),
            document("LocalQueue", "other", {"queue": "vision"}, "team-nlp"),
            *(document("Topology", name, {"levels": [{"nodeLabel": "rack"}]}) for name in ("a", "b")),
        ],
    )
    for name in ("one", "two"):
        made = client.post("/api/v1/tokens", json={"name": name, "scopes": [{"role": "viewer"}]})
        assert made.status_code == 201, made.text
        stopped = client.post(f"/api/v1/queues/{QUEUE_OF[name]}/stop", json={"policy": "Hold", "reason": "x"})
        assert stopped.status_code == 200, stopped.text
    return client


QUEUE_OF = {"one": "nlp", "two": "vision"}


def test_every_list_of_the_route_table_is_here(client: TestClient):
    schemas = client.get("/openapi.json").json()
    lists = {
        path
        for path, methods in schemas["paths"].items()
        for name, operation in methods.items()
        if name == "get" and any(each["name"] == "cursor" for each in operation.get("parameters", ()))
    }
    assert lists == {*LISTS, "/api/v1/workloads/{namespace}/{name}/checks"} - {CHECKS}
    for path in lists:
        parameters = {each["name"] for each in schemas["paths"][path]["get"]["parameters"]}
        assert {"cursor", "limit", "fields"} <= parameters, path
        assert any(route[1].replace(":path", "") == path for route in DECISIONS)


def pages(client: TestClient, path: str, limit: int, **more: str) -> list[list[Any]]:
    found, cursor = [], ""
    while cursor is not None:
        answer = client.get(path, params={"limit": limit, "cursor": cursor, **more})
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next"]
    return found


def test_pages_of_one_make_up_the_list_and_fields_are_all_that_is_asked_for(company: TestClient):
    short = []
    for path, field in LISTS.items():
        whole = company.get(path, params={"limit": 1000}).json()
        assert whole["next"] is None
        one_by_one = pages(company, path, 1)
        assert [item for page in one_by_one for item in page] == whole["items"], path
        assert all(len(page) == 1 for page in one_by_one) or not whole["items"]
        chosen = company.get(path, params={"fields": field, "limit": 1000}).json()["items"]
        assert chosen == [{field: item[field]} for item in whole["items"]], path
        if len(whole["items"]) < 2:
            short.append(path)
    assert short == ["/api/v1/role-bindings", "/api/v1/settings"]


def test_a_cursor_that_is_none_is_refused(company: TestClient):
    for path in LISTS:
        answer = company.get(path, params={"cursor": "a\nb\nc\nd"})
        assert (answer.status_code, answer.json()["title"]) == (400, "Bad cursor"), path


def test_an_unknown_field_is_refused_with_the_nearest(company: TestClient):
    for path, field in LISTS.items():
        answer = company.get(path, params={"fields": f"{field}x"})
        assert answer.status_code == 400
        assert repr(field) in answer.json()["detail"], path
    answer = company.get("/api/v1/usage", params={"fields": "usedSecond"})
    assert "'usedSeconds'" in answer.json()["detail"]
    cells = company.get("/api/v1/queues/nlp/usage", params={"fields": "name,cells.used"}).json()
    assert cells["name"] == "nlp"
    assert all(each.keys() == {"used"} for each in cells["cells"])


def test_the_oldest_come_first_where_that_is_asked_for(company: TestClient):
    for path, sort in (("/api/v1/audit", "at"), ("/api/v1/revisions", "number")):
        newest = company.get(path, params={"limit": 1000}).json()["items"]
        assert len(newest) > 2
        assert [item for page in pages(company, path, 2) for item in page] == newest
        oldest = [item for page in pages(company, path, 2, sort=sort) for item in page]
        assert oldest == newest[::-1]
