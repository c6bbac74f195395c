"""Lists of workloads by their quick ways: they say what the careful ones say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from api.workloads import asked
from api.workloads.past import to_json
from api.workloads.service import to_schema
from queue_manager.config.compiled import from_stored, to_engine
from queue_manager.engine.workload import GroupPolicy, PodGroup, PodSet, TopologyMode, TopologyRequest
from queue_manager.store.records import Change, Check, CheckState, State, WorkloadFilter
from queue_manager.store.store import Store
from tests.api.world import SMALL, commit, configure, job, queue, running, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"
RACK = TopologyRequest(TopologyMode.PREFERRED, "rack")
GROUPS = (
    PodGroup("init", (PodSet("a", 1, {"cpu": 1}, (1, 2)), PodSet("b", 2, {"cpu": 2}, reclaimed=1)), GroupPolicy.BASIC),
    PodGroup("main", (PodSet("c", 3, {}, min_count=2, node_selector={'a"b': "é"}, topology=RACK),), minimum=2),
    PodGroup("last", (PodSet("d", 3, {"x.io/y": 2**60}),), topology=RACK),
)
PAST = (
    job("plain", "nlp", 1),
    job("other-queue", "gone", 4),
    job(
        "all-of-it",
        "nlp",
        1,
        pod_groups=GROUPS,
        user="ada\u2028</script>",
        topology=RACK,
        priority=-5,
        priority_class="high",
        reason="Why",
        message='she said "no"\n',
        max_run_time=90_500_001,
        past_run_time=17_000_000_001,
        requeues=3,
        requeued_at=NOW - timedelta(microseconds=10),
        not_before=NOW + timedelta(hours=1),
        after_drain=State.FINISHED,
        checks=(
            Check(name="data", state=CheckState.RETRY, at=NOW, who="ada", message="later", requeue_after=60),
            Check(name="old", state=CheckState.READY, at=NOW, requeue_after=60),
        ),
    ),
    job("backed-off", "vision", 1, not_before=NOW - timedelta(hours=1)),
)


@pytest.fixture
def past(store: Store) -> Store:
    """Ended workloads that have moved into the history."""
    checked = queue("nlp", "research", 64, admissionChecksStrategy={"admissionChecks": [{"name": "data"}]})
    configure(store, [checked if each["metadata"]["name"] == "nlp" else each for each in SMALL])
    commit(store, *(Change(row=replace(row, state=State.FAILED, finished_at=NOW)) for row in PAST))
    assert store.move_to_history(NOW + timedelta(hours=1), 10) == len(PAST)
    return store


def test_what_is_past_is_told_as_all_else(past: Store):
    revision, stored = past.load_configuration()
    compiled = to_engine(from_stored(stored).objects, revision)
    keys, _ = past.page_of_workloads(WorkloadFilter(), "-created", None, 10)
    rows = {row.uid: row for row in past.workloads_of_keys(keys)}
    assert rows.keys() == {row.uid for row in PAST}
    for key in keys:
        expected = json.loads(to_schema(compiled, rows[key.uid], NOW).model_dump_json(by_alias=True))
        read = key.past()
        assert read is not None
        assert json.loads(to_json(compiled, read, NOW)) == expected
    assert sorted(past.past_of_keys(keys)) == sorted(key.past() for key in keys)  # type: ignore[type-var]


def test_a_searched_text_finds_the_past_too(past: Store, client: TestClient):
    listed = {item["uid"]: item for item in client.get(ALL).json()["items"]}
    [found] = client.get(f"{ALL}?text=all-of").json()["items"]
    assert found == listed["uid-all-of-it"]


def test_what_backs_off_is_told_anew_when_it_does_so_no_more(past: Store, client: TestClient):
    def until() -> str | None:
        [found] = client.get(f"{ALL}?queue=nlp&limit=1&sort=name").json()["items"]
        at: str | None = found["requeue"]["at"]
        return at

    assert until() == "2026-11-29T13:00:00.123456Z"
    client.app.state.context.now = lambda: NOW + timedelta(hours=2)  # type: ignore[attr-defined]
    assert until() is None


PLAIN = (
    "",
    "limit=1",
    "limit=1000",
    "state=waiting&state=running&sort=name",
    "state=finished&sort=-priority",
    "queue=nlp",
    "queue=company/research/nlp&unknown=1",
    "cohort=research&limit=2",
    "cohort=nowhere",
    "user=ada&user=grace",
    "namespace=team-nlp&kind=TrainJob",
    "text=big&fields=name",
    "text=b",
    "fields=nothing",
    "cursor=abc",
    "queue=%20&text=%C3%A9%C3%A9%C3%A9",
    "user=",
)
ODD = (
    "limit=0",
    "limit=",
    "limit=1001",
    "limit=x",
    "limit=%2B5",
    "limit=1&limit=2000",
    "state=",
    "state=waitin",
    "&".join(["state=waiting"] * 21),
    "sort=",
    "sort=user",
    "sort=--created",
    f"queue={'q' * 601}",
    f"fields={'f' * 2001}",
    f"cursor={'c' * 1001}",
    "text=%FF%FE%FD",
    "&".join(f"x{number}=1" for number in range(60)),
)


@pytest.mark.parametrize("query", [*PLAIN, *ODD])
def test_the_quick_way_answers_as_the_careful_one(
    store: Store, client: TestClient, query: str, monkeypatch: pytest.MonkeyPatch
):
    assert (asked.read(query.encode()) is not None) == (query in PLAIN)
    small_company(store)
    quick = client.get(f"{ALL}?{query}", headers={"X-Request-Id": "1"})
    monkeypatch.setattr(asked, "read", lambda query: None)
    careful = client.get(f"{ALL}?{query}", headers={"X-Request-Id": "1"})
    assert (quick.status_code, quick.text, quick.headers) == (careful.status_code, careful.text, careful.headers)


def test_live_and_past_ones_stand_in_one_page(past: Store, client: TestClient):
    commit(past, running(job("runs", "vision", 1)))
    names = [item["name"] for item in client.get(f"{ALL}?sort=name").json()["items"]]
    assert names == ["other-queue", "all-of-it", "plain", "backed-off", "runs"]
