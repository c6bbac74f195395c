"""What all lists have in common: pages by a cursor that is checked, and `fields` of the items."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from api.auth.decisions import DECISIONS, KINDS
from queue_manager.store.store import Store
from tests.api.world import SMALL, configure, document, queue, small_company

CHECKS = "/api/v1/workloads/team-nlp/big/checks"
CHECKS_OF_ONE = "/api/v1/workloads/{namespace}/{name}/checks"
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
    assert lists == {*LISTS, CHECKS_OF_ONE, "/api/v1/usage"} - {CHECKS}  # usage: test_usage_over_time.py
    for path in lists:
        parameters = {each["name"] for each in schemas["paths"][path]["get"]["parameters"]}
        assert {"cursor", "limit", "fields", "sort"} <= parameters, path
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


def sorts_of(client: TestClient, path: str) -> list[str]:
    parameters = client.get("/openapi.json").json()["paths"][path]["get"]["parameters"]
    found: list[str] = next(each for each in parameters if each["name"] == "sort")["schema"]["enum"]
    return found


def test_every_list_is_sorted_both_ways_and_its_pages_make_it_up(company: TestClient):
    for path in LISTS:
        sorts = sorts_of(company, CHECKS_OF_ONE if path == CHECKS else path)
        assert {each.removeprefix("-") for each in sorts} == {each for each in sorts if not each.startswith("-")}
        assert len(sorts) % 2 == 0, path
        for sort in sorts:
            whole = company.get(path, params={"limit": 1000, "sort": sort}).json()["items"]
            assert [item for page in pages(company, path, 1, sort=sort) for item in page] == whole, (path, sort)
            other = sort[1:] if sort.startswith("-") else f"-{sort}"
            assert company.get(path, params={"limit": 1000, "sort": other}).json()["items"] == whole[::-1], path


def test_what_lists_are_sorted_by(company: TestClient):
    def told(path: str, sort: str, field: str = "name") -> list[Any]:
        return [item[field] for item in company.get(path, params={"sort": sort}).json()["items"]]

    stopped = company.post("/api/v1/flavors/h100/stop", json={"policy": "Hold", "reason": "first of all kinds"})
    assert stopped.status_code == 200
    assert told("/api/v1/stops", "name") == ["h100", "nlp", "vision"]
    assert told("/api/v1/stops", "at", "at") == sorted(told("/api/v1/stops", "name", "at"))
    assert told("/api/v1/tokens", "created") == ["one", "two"]
    answered = company.put(f"{CHECKS}/approved", json={"state": "Ready", "message": "it is there"})
    assert answered.status_code in (200, 202)
    assert told(CHECKS, "name") == ["approved", "cached"]
    assert told(CHECKS, "at") == ["cached", "approved"]
    assert told("/api/v1/queues", "-name", "metadata")[0] == {"name": "vision"}


def test_a_cursor_of_another_order_is_refused(company: TestClient):
    for path, sort in (("/api/v1/stops", "-name"), ("/api/v1/queues", "-name"), (CHECKS, "at")):
        cursor = company.get(path, params={"limit": 1}).json()["next"]
        assert company.get(path, params={"cursor": cursor}).status_code == 200
        assert company.get(path, params={"cursor": cursor, "sort": sort}).status_code == 400


def test_fields_of_the_tree_are_those_of_every_node(company: TestClient):
    whole = company.get("/api/v1/tree").json()
    chosen = company.get("/api/v1/tree", params={"fields": "name,cells.used"}).json()
    assert chosen["revision"] == whole["revision"]

    def only(node: Any) -> Any:
        cells = [{"used": cell["used"]} for cell in node["cells"]]
        return {"name": node["name"], "cells": cells, "children": [only(child) for child in node["children"]]}

    assert chosen["items"] == [only(node) for node in whole["items"]]
    assert any(child["children"] for node in whole["items"] for child in node["children"])
    refused = company.get("/api/v1/tree", params={"fields": "nam"})
    assert (refused.status_code, "'name'" in refused.json()["detail"]) == (400, True)


def test_the_oldest_come_first_where_that_is_asked_for(company: TestClient):
    for path, sort in (("/api/v1/audit", "at"), ("/api/v1/revisions", "number")):
        newest = company.get(path, params={"limit": 1000}).json()["items"]
        assert len(newest) > 2
        assert [item for page in pages(company, path, 2) for item in page] == newest
        oldest = [item for page in pages(company, path, 2, sort=sort) for item in page]
        assert oldest == newest[::-1]
