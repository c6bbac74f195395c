"""With `access.outside: Hidden` nothing of the rest of the tree is named: by no route of the route table, on a state
where everything that a subtree sees has to do with others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.auth.decisions import DECISIONS, Where
from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.api.callers import TREE, bearer, document, queue, server, settle, token
from tests.api.test_roles import MORE, OWN, body, url
from tests.api.world import commit, job, running, waiting
from tests.store.builders import NOW

HIDDEN = (
    "resnet",
    "vision",
    "training",
    "vera",
    "vips",
    "vision-leads",
    "team-resnet",
    "team-secret",
    "gone-job",
)
"""Words that only the rest of the tree has."""
JSON = {"Content-Type": "application/json"}
LEADS = {
    "role": "queue-admin",
    "node": "vision",
    "subjects": [{"kind": "User", "name": "vera"}, {"kind": "Group", "name": "vips"}],
}


def revise(store: Store, *documents: Mapping[str, Any], author: str, reason: str) -> None:
    parsed = parse_objects([dict(each) for each in documents])
    assert not parsed.errors
    store.apply_configuration(
        stored_objects(parsed.objects), author=author, reason=reason, now=NOW, source="oidc", address="10.0.0.1"
    )


def entangle(store: Store) -> None:
    """A state in which what research/nlp sees has to do with vision."""
    settle(
        store,
        *MORE,
        document("RoleBinding", "vision-leads", LEADS),
        document("LocalQueue", "lent", {"queue": "resnet"}, "team-bert"),
        document("LocalQueue", "default", {"queue": "resnet"}, "team-secret"),
        hidden=True,
    )
    revise(store, queue("resnet", "vision", 40), author="vera", reason="more for vision")
    revise(store, queue("borrowed", "vision", 0), author="root", reason="for resnet")
    revise(store, queue("borrowed", OWN, 0), author="vera", reason="vision gives team-resnet's queue away")
    admin = bearer(token(store, "platform-admin"))
    client = server(store)
    for kind, name in (("flavors", "h100"), ("queues", "llama"), ("cohorts", OWN)):
        reason = {"policy": "Hold", "reason": "vera needs it for team-resnet/training in vision"}
        answer = client.post(f"/api/v1/{kind}/{name}/stop", json=reason, headers=admin)
        assert answer.status_code == 200
    moved = job("moved", "bert", 1)
    opened = running(replace(moved, queue="resnet"))
    commit(store, opened)
    row = store.get_workloads([moved.uid])[0]
    assert row.admission is not None
    why = "for team-resnet/training"
    over = replace(row.admission, evicted_at=NOW, ended_at=NOW, cause="Preempted", cause_message=why)
    commit(store, replace(opened, row=replace(row, state=State.WAITING, queue="bert", admission=over), ledger=()))
    for wish, arguments in ((Wish.MOVE, {"queue": "resnet"}), (Wish.HOLD, {})):
        reason = "vision has room beside team-resnet/training"
        store.instruct(moved.uid, wish, arguments, who="vera", reason=reason, source="oidc", now=NOW)
    past = "cohort company/vision has used less in the past; team-resnet/gone-job and queue resnet come first"
    told = waiting(job("late", "bert", 1), past, holders=["team-resnet/training", "team-resnet/gone-job"])
    blocker = told.explanation["blockers"][0]  # type: ignore[index]
    blocker.update({"node": "company/vision", "enough": ["team-resnet/training"]})
    commit(store, told)


def asked(client: TestClient, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What every route answers somebody of research/nlp, about what is theirs."""
    for route, need in sorted(DECISIONS.items()):
        method, path = route
        if need.where in (Where.OPEN, Where.METRICS) or path == "/api/v1/events":
            continue  # what is open says nothing of a state; the others: test_roles.py, test_event_rights.py
        given = body(method, path, OWN)
        target = url(path, need, OWN)
        for query in ("", "?by=queue,user,namespace") if path == "/api/v1/usage" else ("",):
            answer = client.request(method, target + query, headers={**headers, **given.pop("headers", {})}, **given)
            assert answer.status_code < 500, answer.text
            yield f"{method} {target}: {answer.status_code}", answer.text
    for name in ("moved", "late", "blocked"):
        for part in ("", "/explanation", "/history", "/checks"):
            target = f"/api/v1/workloads/team-bert/{name}{part}"
            answer = client.get(target, headers=headers)
            yield f"GET {target}: {answer.status_code}", answer.text
        for page in (f"/workloads/team-bert/{name}", f"/fragments/workloads/team-bert/{name}"):
            answer = client.get(page, headers=headers)
            yield f"GET {page}: {answer.status_code}", answer.text
    for number in range(1, 7):
        answer = client.get(f"/api/v1/revisions/{number}", headers=headers)
        yield f"GET revision {number}: {answer.status_code}", answer.text


@pytest.mark.parametrize("role", ["viewer", "queue-admin"])
def test_no_route_names_what_is_hidden(store: Store, role: str):
    entangle(store)
    client = server(store)
    told = []
    for place, text in asked(client, bearer(token(store, role, OWN, name="asker"))):
        told += [(place, found) for word in HIDDEN for found in re.findall(rf".{{0,40}}\b{word}\b.{{0,40}}", text)]
    assert told == []


def test_who_sees_everything_is_told_all_of_it(store: Store):
    """Or the test above would find nothing because there is nothing."""
    entangle(store)
    text = "".join(text for _, text in asked(server(store), bearer(token(store, "viewer", name="asker"))))
    assert [word for word in HIDDEN if not re.search(rf"\b{word}\b", text)] == []


def test_what_is_hidden_is_answered_like_what_is_not_there(store: Store):
    entangle(store)
    client = server(store)
    headers = bearer(token(store, "queue-admin", OWN))
    why = {"reason": "because"}
    pairs: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/api/v1/queues/{}", {"resnet": "nothing"}),
        ("GET", "/api/v1/cohorts/{}", {"vision": "nothing"}),
        ("GET", "/api/v1/queues/{}/usage", {"resnet": "nothing"}),
        ("GET", "/api/v1/cohorts/{}/usage", {"vision": "nothing"}),
        ("GET", "/api/v1/local-queues/team-secret/{}", {"default": "nothing"}),
        ("GET", "/api/v1/role-bindings/{}", {"vision-leads": "nothing"}),
        ("GET", "/api/v1/workloads/team-resnet/{}", {"training": "nothing"}),
        ("GET", "/api/v1/workloads/team-resnet/{}?kind=TrainJob", {"training": "nothing"}),
        ("GET", "/api/v1/workloads?queue={}", {"resnet": "nothing"}),
        ("GET", "/api/v1/workloads?cohort={}", {"vision": "nothing"}),
        ("GET", "/api/v1/revisions?author={}", {"vera": "nobody"}),
        ("GET", "/api/v1/usage?queue={}", {"resnet": "nothing"}),
        ("POST", "/api/v1/queues/{}/stop", {"resnet": "nothing"}),
    ]
    for method, path, names in pairs:
        [(hidden, missing)] = names.items()
        sent = {"json": {**why, "policy": "Hold"}} if method == "POST" else {}
        answers = [client.request(method, path.format(name), headers=headers, **sent) for name in (hidden, missing)]
        assert answers[0].status_code == answers[1].status_code, path
        assert _without(answers[0], hidden) == _without(answers[1], missing), path
    bodies: list[tuple[str, dict[str, Any], str, str]] = [
        ("workloads/team-bert/blocked/move", {"queue": "resnet", **why}, "resnet", "nothing"),
        ("workloads/team-bert/blocked/move", {"queue": "company/vision/resnet", **why}, "vision/resnet", "a/nothing"),
        ("workloads/team-bert/blocked/move", {"queue": "lent", **why}, "lent", "nothing"),
        ("tokens", {"name": "x", "scopes": [{"role": "viewer", "node": "vision"}]}, "vision", "nothing"),
    ]
    for path, sent, hidden, missing in bodies:
        texts = []
        for name in (hidden, missing):
            content = json.dumps(sent).replace(hidden, name)
            answer = client.post(f"/api/v1/{path}", content=content, headers={**headers, **JSON})
            texts.append(_without(answer, name))
        assert texts[0] == texts[1], path
        assert texts[0][0] == 422, path


def _without(answer: Any, name: str) -> tuple[int, str]:
    """An answer without the name that was asked for, and the request's number."""
    text = re.sub(r'"requestId":\s*"[^"]*"', "", answer.text)
    return answer.status_code, text.replace(name, "NAME")


def test_hidden_words_are_whole_ones_and_what_is_visible_stays(store: Store):
    settle(store, document("Queue", "cpu", {**TREE[8]["spec"], "cohort": "vision"}), hidden=True)
    message = "waits for 4 nvidia.com/gpu of visions, revision 3, queue bert in research/nlp behind team-llama/other"
    commit(store, waiting(job("plain", "bert", 1), message))
    headers = bearer(token(store, "viewer", OWN))
    found = server(store).get("/api/v1/workloads/team-bert/plain", headers=headers).json()
    assert found["message"] == message
    assert found["podGroups"][0]["podSets"][0]["requests"]["cpu"]
    listed = server(store).get("/api/v1/workloads?namespace=team-bert", headers=headers).json()["items"]
    assert found in listed


def test_a_change_that_names_what_is_hidden_is_refused_like_one_that_names_nothing(store: Store):
    settle(store, document("Cohort", f"{OWN}/small", {"parent": OWN}), hidden=True)
    client = server(store)
    headers = bearer(token(store, "queue-admin", OWN))
    who = [{"kind": "User", "name": "x"}]
    pairs = [
        (queue("new", "NAME", 1), "vision", "visiom"),
        (document("Cohort", "new", {"parent": "NAME"}), "vision", "nowhere"),
        (document("LocalQueue", "new", {"queue": "NAME"}, "team-bert"), "resnet", "resnot"),
        (document("RoleBinding", "new", {"role": "viewer", "subjects": who, "node": "NAME"}), "vision", "visiom"),
        (document("RoleBinding", "new", {"role": "viewer", "subjects": who, "node": "NAME"}), "company/vision", "a/b"),
    ]
    for item, hidden, missing in pairs:
        for path in ("config/diff", "config"):
            answers = []
            for name in (hidden, missing):
                content = json.dumps(item).replace("NAME", name)
                method = "PUT" if path == "config" else "POST"
                answer = client.request(method, f"/api/v1/{path}", content=content, headers=headers)
                answers.append(_without(answer, name))
            assert answers[0] == answers[1]
            assert answers[0][0] == 422
    for item in (queue("t5", f"{OWN}/small", 0), document("Cohort", f"{OWN}/small", {"parent": OWN})):
        assert client.put("/api/v1/config", json=item, headers=headers).status_code == 200


def test_a_warning_of_a_plan_names_nobody_who_is_hidden(store: Store):
    settle(store, document("RoleBinding", "vision-leads", LEADS), hidden=True)
    client = server(store)
    stop = {"policy": "Hold", "reason": "vera needs it for team-resnet/training"}
    admin = bearer(token(store, "platform-admin"))
    assert client.post("/api/v1/queues/bert/stop", json=stop, headers=admin).status_code == 200
    headers = bearer(token(store, "queue-admin", OWN))
    answer = client.post("/api/v1/config/diff", json=queue("bert", OWN, 32), headers=headers)
    assert "is stopped by hand" in answer.json()["warnings"][0]["message"]
    assert not re.search(r"\b(vera|training)\b", answer.text)
