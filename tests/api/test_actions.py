"""hold, release and the answers of checks over REST: noted with an audit line, refused where they make no sense."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.engine.configuration import AdmissionCheck
from queue_manager.store.records import Change, Check, CheckState, State, Wish
from queue_manager.store.store import Store
from tests.api.world import SMALL, commit, configure, document, job, running, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"
CHECKS = [{"name": "dataset-cached"}, {"name": "licence", "onFlavors": ["h100"]}]


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


@pytest.fixture
def checked(store: Store, client: TestClient) -> TestClient:
    """Queue nlp with two checks; `reserved` waits for them, `waiting` for quota."""
    documents = [
        document("Queue", "nlp", {**each["spec"], "admissionChecks": CHECKS})
        if each["metadata"]["name"] == "nlp"
        else each
        for each in SMALL
    ]
    configure(store, documents)
    reserved = running(job("reserved", "nlp", 1), State.RESERVED)
    admission = reserved.row.admission
    assert admission is not None
    needed = replace(admission.admission, checks=("dataset-cached", "licence"))
    row = replace(reserved.row, admission=replace(admission, admission=needed))
    commit(store, replace(reserved, row=row), Change(row=job("waiting", "nlp", 1)))
    return client


def post(client: TestClient, path: str, body: Any = None) -> Any:
    return client.post(f"{ALL}/{path}", json={"reason": "because"} if body is None else body)


def wishes(store: Store) -> list[tuple[str, str, str]]:
    return [(each.uid, each.wish.value, each.reason) for each in store.pending_instructions()]


@pytest.mark.parametrize("name", ["team-nlp/blocked", "team-nlp/big", "team-vision/small"])
def test_a_hold_is_noted_for_the_leader_with_its_reason_and_an_audit_line(company: TestClient, store: Store, name: str):
    answer = post(company, f"{name}/hold")
    assert answer.status_code == 202, answer.text
    assert answer.json()["name"] == name.partition("/")[2]
    uid = f"uid-{name.partition('/')[2]}"
    assert wishes(store) == [(uid, "hold", "because")]
    [line] = store.audit_entries(object=f"workload/{name}")
    assert (line.who, line.action, line.reason, line.source) == ("local", "hold", "because", "loopback")
    [action] = company.get(f"{ALL}/{name}/history").json()["actions"]
    assert (action["action"], action["reason"]) == ("hold", "because")


def test_a_wish_that_is_carried_out_in_time_is_done(store: Store, company: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store.__class__, "instruction_is_pending", lambda self, id: False)
    assert post(company, "team-vision/held/release").status_code == 200


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("team-nlp/big/release", "it is running: neither held, nor deactivated, nor backing off"),
        ("team-nlp/blocked/release", "it is waiting: neither held"),
        ("team-vision/done/release", "it is over"),
        ("team-vision/done/hold", "it is over"),
    ],
)
def test_what_makes_no_sense_is_refused(company: TestClient, store: Store, path: str, why: str):
    answer = post(company, path)
    assert answer.status_code == 409
    assert why in answer.json()["detail"]
    assert wishes(store) == []
    assert {entry.action.split(".")[0] for entry in store.audit_entries()} == {"configuration"}


@pytest.mark.parametrize(
    "row",
    [
        job("x", "nlp", 1, state=State.DEACTIVATED, reason="RequeuingLimitExceeded"),
        job("x", "nlp", 1, state=State.HELD, reason="HeldByOperator"),
        job("x", "nlp", 1, not_before=NOW + timedelta(minutes=3), requeues=2),
    ],
    ids=["deactivated", "held", "backing off"],
)
def test_what_may_be_released(store: Store, client: TestClient, row: Any):
    configure(store)
    commit(store, Change(row=row))
    assert post(client, "team-nlp/x/release").status_code == 202
    assert wishes(store) == [("uid-x", "release", "because")]


def test_a_job_that_can_not_be_read_is_not_released_but_repaired(store: Store, client: TestClient):
    configure(store)
    commit(store, Change(row=job("x", "nlp", 1, state=State.HELD, reason="BadAnnotation", message="write 90m")))
    answer = post(client, "team-nlp/x/release")
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "team-nlp/x: nobody holds it; its job has to change: write 90m",
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": " \t\n"},
        {"reason": "nul\0"},
        {"reason": 7},
        {"reason": "x", "why": "y"},
        {"reason": "x" * 2001},
    ],
)
def test_an_action_needs_a_reason_and_nothing_unknown(company: TestClient, body: Any):
    answer = post(company, "team-nlp/blocked/hold", body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_counts_and_times_are_shown(store: Store, client: TestClient):
    configure(store)
    change = running(job("x", "nlp", 1, age=10, requeues=2, max_run_time=3_600_000_000, past_run_time=60_000_000))
    commit(store, change)
    found = client.get(f"{ALL}/team-nlp/x").json()
    begun = NOW - timedelta(minutes=9)
    assert found["requeue"] == {"count": 2, "since": None, "at": None}
    assert found["ready"]["by"] == (begun + timedelta(minutes=30)).isoformat().replace("+00:00", "Z")
    assert found["runTime"] == {
        "limit": 3600.0,
        "used": 600.0,
        "until": (begun + timedelta(minutes=59)).isoformat().replace("+00:00", "Z"),
    }


def test_history_tells_how_each_admission_ended(store: Store, client: TestClient):
    configure(store)
    first = running(job("x", "nlp", 1))
    commit(store, first)
    [row] = store.get_workloads(["uid-x"])
    assert row.admission is not None
    over = replace(
        row.admission, evicted_at=NOW, ended_at=NOW, cause="PodsReadyTimeout", underlying="WaitForStart", ready_at=None
    )
    commit(store, Change(row=replace(row, state=State.WAITING, admission=over), ledger=()))
    history = client.get(f"{ALL}/team-nlp/x/history").json()
    [entry] = history["admissions"]
    assert (entry["attempt"], entry["cause"], entry["underlyingCause"]) == (1, "PodsReadyTimeout", "WaitForStart")
    assert history["evictions"] == {"WaitForStart": 1}


# --- checks -----------------------------------------------------------------------------------------------------


def put(client: TestClient, check: str, body: Any, name: str = "reserved") -> Any:
    return client.put(f"{ALL}/team-nlp/{name}/checks/{check}", json=body)


def test_a_check_without_an_answer_is_pending_and_explain_says_so(checked: TestClient):
    items = checked.get(f"{ALL}/team-nlp/reserved/checks").json()["items"]
    assert [(c["name"], c["state"], c["needed"]) for c in items] == [
        ("dataset-cached", "Pending", True),
        ("licence", "Pending", True),
    ]
    explanation = checked.get(f"{ALL}/team-nlp/reserved/explanation").json()
    assert [(b["type"], b["message"]) for b in explanation["blockers"]] == [
        ("AdmissionCheck", "check dataset-cached is Pending: nothing has answered yet"),
        ("AdmissionCheck", "check licence is Pending: nothing has answered yet"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"state": "Ready", "message": "all there"},
        {"state": "Retry", "message": "", "requeueAfter": 300},
        {"state": "Rejected", "message": "no such dataset"},
    ],
)
def test_an_answer_is_noted_once_and_shown_at_once(checked: TestClient, store: Store, body: dict[str, Any]):
    first = put(checked, "dataset-cached", body)
    assert first.status_code == 202, first.text
    found = checked.get(f"{ALL}/team-nlp/reserved/checks/dataset-cached").json()
    assert found == first.json()
    assert (found["state"], found["message"], found["by"]) == (body["state"], body["message"], "local")
    assert found["requeueAfter"] == body.get("requeueAfter")
    again = put(checked, "dataset-cached", body)
    assert again.json() == first.json()
    [instruction] = store.pending_instructions()
    assert instruction.wish is Wish.CHECK
    assert instruction.arguments["state"] == body["state"]


def test_an_answer_may_come_before_the_quota(checked: TestClient, store: Store):
    assert put(checked, "licence", {"state": "Ready"}, "waiting").json()["needed"] is None
    assert [each.uid for each in store.pending_instructions()] == ["uid-waiting"]


def test_an_answer_that_counts_already_is_no_new_one(checked: TestClient, store: Store):
    [row] = store.get_workloads(["uid-reserved"])
    known = Check(name="licence", state=CheckState.READY, at=NOW, who="x")
    commit(store, Change(row=replace(row, checks=(known,))))
    assert put(checked, "licence", {"state": "Ready"}).status_code == 200
    assert store.pending_instructions() == []
    assert len(checked.get(f"{ALL}/team-nlp/reserved/explanation").json()["blockers"]) == 1


def test_what_counts_already_is_done_whatever_else_is_asked_of_the_workload(checked: TestClient, store: Store):
    [row] = store.get_workloads(["uid-reserved"])
    commit(store, Change(row=replace(row, checks=(Check(name="licence", state=CheckState.READY, at=NOW, who="x"),))))
    assert put(checked, "dataset-cached", {"state": "Ready"}).status_code == 202
    assert post(checked, "team-nlp/reserved/hold").status_code == 202
    assert put(checked, "licence", {"state": "Ready"}).status_code == 200
    assert put(checked, "dataset-cached", {"state": "Ready"}).status_code == 202


@pytest.mark.parametrize("method", ["get", "put"])
def test_an_unknown_check_is_404_and_names_the_known_ones(checked: TestClient, method: str):
    more = {"json": {"state": "Ready"}} if method == "put" else {}
    answer = getattr(checked, method)(f"{ALL}/team-nlp/reserved/checks/dataset", **more)
    assert answer.status_code == 404
    assert "there is no check 'dataset'; checks of queue nlp: dataset-cached, licence" in answer.json()["detail"]


@pytest.mark.parametrize("body", [r'{"reason": "a\ud800"}', r'{"reason": "a", "\ud800": 1}'])
def test_half_a_surrogate_pair_is_refused(company: TestClient, body: str):
    answer = company.post(f"{ALL}/team-nlp/blocked/hold", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"]


@pytest.mark.parametrize("after", [True, 1.5, -1, "soon", [5]])
def test_a_wrong_pause_is_named_as_the_body_names_it(checked: TestClient, after: Any):
    answer = put(checked, "licence", {"state": "Retry", "requeueAfter": after})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["body.requeueAfter"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"state": "Ready", "message": "nul\0"},
        {"state": "Pending"},
        {"state": "ready"},
        {"state": "Ready", "requeueAfter": 5},
        {"state": "Retry", "requeueAfter": -1},
        {"state": "Retry", "requeueAfter": "soon"},
        {"state": "Ready", "reason": "x"},
        [],
    ],
)
def test_an_answer_that_is_none_is_refused_with_its_field(checked: TestClient, store: Store, body: Any):
    answer = put(checked, "licence", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith("body")
    assert store.pending_instructions() == []


def test_a_pause_may_be_written_as_a_duration(checked: TestClient):
    assert put(checked, "licence", {"state": "Retry", "requeueAfter": "5m"}).json()["requeueAfter"] == 300


def test_what_is_over_takes_no_answers(checked: TestClient, store: Store):
    commit(store, Change(row=job("done", "nlp", 1, state=State.FINISHED, finished_at=NOW)))
    assert put(checked, "licence", {"state": "Ready"}, "done").status_code == 409


def test_checks_are_configured_by_name_and_flavor(store: Store):
    from queue_manager.config.compiled import compile_objects

    documents = [document("Flavor", "h100", {}), document("Queue", "q", {"admissionChecks": CHECKS[:1]})]
    configure(store, documents)
    revision, objects = store.load_configuration()
    compiled = compile_objects(objects, revision)
    assert compiled.configuration.queues["q"].checks == (AdmissionCheck("dataset-cached"),)
