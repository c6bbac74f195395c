"""Answers with only the fields that were asked for, sorted lists, and pages whose JSON is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from queue_manager.store.records import Change, State
from queue_manager.store.store import Store
from tests.api.world import SMALL, commit, configure, job, running, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


def test_only_what_was_asked_for_is_in_the_answer(company: TestClient):
    fields = "?fields=name, state,podGroups.podSets.count,podGroups.name,podGroups.podSets.requests.cpu"
    found = company.get(f"{ALL}/team-nlp/big{fields}").json()
    assert found == {
        "name": "big",
        "state": "running",
        "podGroups": [{"podSets": [{"count": 9, "requests": {"cpu": 128000}}], "name": "main"}],
    }
    [listed] = company.get(f"{ALL}{fields}&text=team-nlp/big").json()["items"]
    assert listed == found
    assert company.get(f"{ALL}?fields=podGroups,podGroups.name&text=team-nlp/big").json()["items"] == [
        {"podGroups": company.get(f"{ALL}/team-nlp/big").json()["podGroups"]}
    ]


def test_of_configuration_objects_and_revisions_too(company: TestClient):
    found = company.get("/api/v1/queues?fields=metadata.name,spec.cohort&text=is").json()
    assert found == {"items": [{"metadata": {"name": "vision"}, "spec": {"cohort": "research"}}], "next": None}
    one = company.get("/api/v1/queues/nlp?fields=spec.cohort")
    assert (one.json(), one.headers["etag"]) == ({"spec": {"cohort": "research"}}, '"1"')
    assert company.get("/api/v1/revisions?fields=number,author").json()["items"] == [{"number": 1, "author": "ada"}]
    assert company.get("/api/v1/revisions/1?fields=changes.name").json()["changes"][0].keys() == {"name"}


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (f"{ALL}?fields=stat", "fields: there is no field 'stat'; did you mean 'state'?"),
        (f"{ALL}/team-nlp/big?fields=podGroups.nam", "there is no field 'nam' of podGroups; did you mean 'name'?"),
        (f"{ALL}?fields=name.first", "fields: name has no fields of its own"),
        (f"{ALL}?fields=pod_groups", "did you mean 'podGroups'?"),
        ("/api/v1/queues?fields=specs", "did you mean 'spec'?"),
        ("/api/v1/queues/nlp?fields=kin", "did you mean 'kind'?"),
        ("/api/v1/revisions?fields=autor", "did you mean 'author'?"),
    ],
)
def test_a_field_that_there_is_not_is_refused_with_the_nearest(company: TestClient, path: str, detail: str):
    answer = company.get(path)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("created", ["done", "big", "leaving", "small", "blocked", "later", "held"]),
        ("-created", ["held", "later", "blocked", "small", "leaving", "big", "done"]),
        ("name", ["big", "blocked", "later", "leaving", "done", "held", "small"]),
        ("finished", ["done"]),
        ("-priority", ["held", "later", "blocked", "small", "leaving", "big", "done"]),
    ],
)
def test_lists_are_sorted_by_what_is_asked_for(company: TestClient, sort: str, expected: list[str]):
    seen: list[str] = []
    cursor = ""
    while True:
        page = company.get(ALL, params={"sort": sort, "limit": 3, "cursor": cursor}).json()
        seen += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == expected


def test_what_a_list_can_not_be_sorted_or_searched_by_is_refused(company: TestClient):
    answer = company.get(f"{ALL}?sort=user")
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["field"], error["message"]) == ("query.sort", "'user' is not allowed here")
    assert "-created" in error["hint"]
    answer = company.get(f"{ALL}?text=ab")
    assert (answer.status_code, answer.json()["detail"]) == (400, "text: give at least 3 characters of the name")
    cursor = company.get(f"{ALL}?limit=2").json()["next"]
    assert company.get(f"{ALL}?limit=2&sort=name&cursor={cursor}").status_code == 400


def test_a_page_tells_what_is_so_now_although_its_json_is_kept(store: Store):
    """A commit, another configuration and time each show at once; nothing else is read or made again."""
    small_company(store)
    clock = [NOW]
    app = create_app(store, now=lambda: clock[0], registry=CollectorRegistry())
    read: list[int] = []
    load = store.workloads_of_keys
    store.workloads_of_keys = lambda keys: read.append(len(keys)) or load(keys)  # type: ignore[method-assign, func-returns-value]
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:

        def items() -> dict[str, dict[str, object]]:
            return {item["name"]: item for item in client.get(ALL).json()["items"]}

        first = items()
        assert first == items()
        assert read == [7]
        row = store.find_workloads("team-nlp", "blocked")[0]
        commit(store, Change(row=replace(row, message="another"), explanation={}))
        assert items()["blocked"]["message"] == "another"
        assert read[1:] == [1]
        clock[0] += timedelta(seconds=30)
        later = items()
        assert later["small"]["runTime"]["used"] == first["small"]["runTime"]["used"] + 30  # type: ignore[index]
        assert read[2:] == [2]  # those that run
        moved = [{**d, "spec": {**d["spec"], "cohort": "company"}} if d["kind"] == "Queue" else d for d in SMALL]
        configure(store, moved)
        assert items()["big"]["path"] == "company/nlp"


def test_a_page_of_ended_ones_is_the_same_once_they_are_history(store: Store, client: TestClient):
    configure(store)
    commit(store, running(job("a", "nlp", 2)))
    row = store.find_workloads("team-nlp", "a")[0]
    done = replace(row, state=State.FINISHED, admission=None, finished_at=NOW)
    commit(store, Change(row=done, ledger=()))
    before = [client.get(path).json() for path in (ALL, f"{ALL}/team-nlp/a", f"{ALL}/team-nlp/a/history")]
    assert store.move_to_history(NOW + timedelta(hours=1), 10) == 1
    assert [client.get(path).json() for path in (ALL, f"{ALL}/team-nlp/a", f"{ALL}/team-nlp/a/history")] == before
    fresh = create_app(store, now=lambda: NOW, registry=CollectorRegistry())
    with TestClient(fresh, base_url="http://127.0.0.1:8080") as another:
        assert another.get(ALL).json() == before[0]
