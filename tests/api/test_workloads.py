"""Workloads over REST: shapes of the contract (design, section 6), filters, paging, explanations."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from queue_manager.store.records import Change
from queue_manager.store.store import Store
from tests.api.world import GPU, commit, configure, job, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


def names(client: TestClient, query: str = "") -> list[str]:
    answer = client.get(f"{ALL}?{query}")
    assert answer.status_code == 200, answer.text
    return [item["name"] for item in answer.json()["items"]]


def test_a_workload_has_the_fields_of_the_contract(company: TestClient):
    found = company.get(f"{ALL}/team-nlp/big").json()
    assert {key: found[key] for key in ("namespace", "name", "kind", "uid", "queue", "cohort", "user", "priority")} == {
        "namespace": "team-nlp",
        "name": "big",
        "kind": "TrainJob",
        "uid": "uid-big",
        "queue": "nlp",
        "cohort": "research",
        "user": "ada",
        "priority": 0,
    }
    assert (found["state"], found["reason"], found["message"]) == ("running", "", "")
    assert (found["created"], found["admitted"]) == ("2026-11-29T11:10:00.123456Z", "2026-11-29T11:11:00.123456Z")
    assert found["path"] == "company/research/nlp"
    [group] = found["podGroups"]
    [pod_set] = group["podSets"]
    assert (group["policy"], pod_set["count"], pod_set["requests"][GPU]) == ("gang", 9, 8)
    assert pod_set["flavors"][GPU] == "h100"
    assert pod_set["domains"][0] == {"values": ["block-1", "rack-1"], "count": 4}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["held", "later", "blocked", "small", "leaving", "big", "done"]),
        ("queue=nlp", ["later", "blocked", "leaving", "big"]),
        ("queue=company/research/nlp&state=waiting", ["later", "blocked"]),
        ("cohort=research&state=running&state=starting", ["small", "big"]),
        ("cohort=company/research", ["held", "later", "blocked", "small", "leaving", "big", "done"]),
        ("cohort=research&queue=ranking", []),
        ("queue=unknown", []),
        ("namespace=team-vision&kind=TrainJob", ["held", "small", "done"]),
        ("kind=JobSet", []),
        ("user=ada&text=LAT", ["later"]),
        ("text=%25%25%25", []),
    ],
)
def test_filters(company: TestClient, query: str, expected: list[str]):
    assert names(company, query) == expected


def test_paging_reads_everything_once(company: TestClient):
    seen, cursor = [], ""
    for _ in range(10):
        page = company.get(ALL, params={"limit": 2, "cursor": cursor}).json()
        seen += [item["name"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == names(company)


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("cursor=nonsense", 400, "cursor"),
        ("cohort=unknown", 404, "unknown"),
        ("state=sleeping", 422, "state"),
        ("limit=0", 422, "limit"),
        ("limit=100000", 422, "limit"),
        ("text=a%00b", 400, "NUL"),
    ],
)
def test_bad_queries_are_problem_documents(company: TestClient, query: str, status: int, word: str):
    answer = company.get(f"{ALL}?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert word in answer.text


def test_explanation_of_a_waiting_workload(company: TestClient):
    found = company.get(f"{ALL}/team-nlp/blocked/explanation").json()
    assert (found["state"], found["reason"], found["position"], found["estimatedStart"]) == (
        "waiting",
        "WaitingForQuota",
        1,
        None,
    )
    assert found["since"] == "2026-11-29T11:40:00.123456Z"
    [blocker] = found["blockers"]
    holder = blocker["held"][0]
    assert (holder["namespace"], holder["name"], holder["amount"], holder["state"]) == (
        "team-nlp",
        "big",
        72,
        "running",
    )
    assert blocker["waysOut"]
    del blocker["held"], blocker["enough"], blocker["waysOut"]
    assert blocker == {
        "type": "Quota",
        "message": "12 GPUs short in nlp",
        "node": "nlp",
        "flavor": "h100",
        "resource": GPU,
        "requested": 16,
        "available": 4,
        "missing": 12,
        "holders": ["team-nlp/big"],
    }


def test_explanation_of_one_that_does_not_wait(company: TestClient):
    found = company.get(f"{ALL}/team-nlp/big/explanation").json()
    assert (found["state"], found["position"], found["blockers"]) == ("running", None, [])


def test_unknown_workload(company: TestClient):
    answer = company.get(f"{ALL}/team-nlp/nothing/explanation")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no workload 'team-nlp/nothing'"


def test_jobs_of_one_name_and_two_kinds_are_told_apart(company: TestClient, store: Store):
    commit(store, Change(row=replace(job("big", "nlp", 1), uid="other", kind="JobSet")))
    answer = company.get(f"{ALL}/team-nlp/big")
    assert answer.status_code == 409
    assert answer.json()["detail"] == "say which: ?kind=JobSet or ?kind=TrainJob"
    assert company.get(f"{ALL}/team-nlp/big?kind=JobSet").json()["uid"] == "other"


def test_a_workload_of_no_known_queue_is_shown(store: Store, client: TestClient):
    configure(store)
    row = replace(
        job("lost", "nlp", 1), queue="", local_queue="nowhere", reason="UnknownQueue", message="no such queue"
    )
    commit(store, Change(row=row))
    found = client.get(f"{ALL}/team-nlp/lost").json()
    assert (found["queue"], found["cohort"], found["localQueue"]) == ("", "", "nowhere")
    assert found["created"] > (NOW - timedelta(hours=1)).isoformat()
