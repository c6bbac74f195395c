"""Tokens over REST: nobody gives more than they have; and the audit log, searched and exported."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest

from queue_manager.store.store import Store
from queue_manager.store.tokens import Scope
from tests.api.callers import MAKER, bearer, document, server, settle, token
from tests.store.builders import NOW

OWN = "research/nlp"
TOKENS = "/api/v1/tokens"
AUDIT = "/api/v1/audit"


def wanted(role: str = "operator", node: str = OWN, name: str = "ci", **more: Any) -> dict[str, Any]:
    return {"name": name, "scopes": [{"role": role, "node": node}], **more}


def test_a_token_is_made_used_listed_and_revoked(store: Store):
    settle(store)
    client = server(store)
    admin = bearer(token(store, "platform-admin"))
    made = client.post(TOKENS, json=wanted(expiresIn="90d", reason="for CI"), headers=admin)
    assert made.status_code == 201
    body = made.json()
    assert body["token"].startswith("qm_")
    hold = {"json": {"reason": "x"}, "headers": bearer(body["token"])}
    assert client.post("/api/v1/workloads/team-bert/blocked/hold", **hold).status_code == 202
    assert client.post("/api/v1/workloads/team-resnet/training/hold", **hold).status_code == 403
    listed = client.get(TOKENS, headers=admin).json()["items"]
    assert [each["name"] for each in listed] == ["ci", "platform-admin-all"]
    assert "token" not in listed[0]
    assert listed[0]["used"] is not None
    assert listed[0]["createdBy"] == "token:platform-admin-all"
    assert client.post(TOKENS, json=wanted(), headers=admin).status_code == 409
    assert client.delete(f"{TOKENS}/{body['id']}", headers=admin).status_code == 204
    assert client.get("/api/v1/tree", headers=bearer(body["token"])).status_code == 401
    assert client.get(f"{TOKENS}/{body['id']}", headers=admin).json()["revokedBy"] == "token:platform-admin-all"
    page = client.get(TOKENS, params={"limit": 1, "revoked": "true"}, headers=admin).json()
    rest = client.get(TOKENS, params={"cursor": page["next"], "revoked": "true"}, headers=admin).json()
    assert [each["name"] for each in page["items"] + rest["items"]] == ["ci", "platform-admin-all"]


@pytest.mark.parametrize(
    ("role", "node", "status"),
    [
        ("operator", OWN, 201),
        ("queue-admin", "bert", 201),
        ("platform-admin", OWN, 403),
        ("viewer", "vision", 403),
        ("viewer", "", 403),
        ("viewer", "nowhere", 422),
    ],
)
def test_a_queue_admin_gives_up_to_their_role_in_their_subtree(store: Store, role: str, node: str, status: int):
    settle(store)
    answer = server(store).post(TOKENS, json=wanted(role, node), headers=bearer(token(store, "queue-admin", OWN)))
    assert answer.status_code == status


def test_a_name_that_a_binding_knows_is_no_way_to_more_rights(store: Store):
    rights = {"role": "platform-admin", "subjects": [{"kind": "Token", "name": "root"}]}
    settle(store, document("RoleBinding", "root", rights))
    client = server(store)
    own = bearer(token(store, "queue-admin", OWN))
    assert client.post(TOKENS, json=wanted("viewer", name="root"), headers=own).status_code == 403
    admin = bearer(token(store, "platform-admin"))
    assert client.post(TOKENS, json=wanted("viewer", name="root"), headers=admin).status_code == 201


def test_tokens_of_others_are_neither_seen_nor_revoked(store: Store):
    settle(store)
    client = server(store)
    own = bearer(token(store, "queue-admin", OWN))
    token(store, "viewer", "vision")
    assert [each["name"] for each in client.get(TOKENS, headers=own).json()["items"]] == ["queue-admin-research.nlp"]
    assert client.get(f"{TOKENS}/2", headers=own).status_code == 404
    assert client.delete(f"{TOKENS}/2", headers=own).status_code == 404


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "Bad Name"},
        {"name": ""},
        {"scopes": []},
        {"scopes": [{"role": "king"}]},
        {"expiresIn": "soon"},
        {"expiresIn": True},
        {"expiresIn": [1]},
        {"expiresIn": 0},
        {"expiresIn": -5},
        {"expiresIn": 10**30},
        {"unknown": 1},
        {"reason": "a\0b"},
    ],
)
def test_bad_wishes_are_refused_with_the_field(store: Store, bad: dict[str, Any]):
    settle(store)
    answer = server(store).post(TOKENS, json={**wanted(), **bad}, headers=bearer(token(store, "platform-admin")))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(f"body.{next(iter(bad))}")


def test_a_tokens_tokens_end_with_it_at_the_latest(store: Store):
    settle(store)
    client = server(store)
    admin = bearer(token(store, "platform-admin"))
    short = client.post(TOKENS, json=wanted("queue-admin", name="short", expiresIn=3600), headers=admin).json()
    for name, more in (("a", {}), ("b", {"expiresIn": "30d"})):
        made = client.post(TOKENS, json=wanted("viewer", name=name, **more), headers=bearer(short["token"]))
        assert made.json()["expires"] == short["expires"]


def test_the_audit_log_says_who_what_from_where_and_why(store: Store):
    settle(store)
    client = server(store)
    admin = bearer(token(store, "platform-admin"))
    body = {"reason": "on fire"}
    client.post("/api/v1/workloads/team-bert/blocked/hold", json=body, headers=admin)
    patch = {"spec": {"stopPolicy": "Hold"}}
    client.patch("/api/v1/queues/bert?reason=quiet", json=patch, headers={**admin, "If-Match": "*"})
    [held] = client.get(AUDIT, params={"object": "workload/team-bert/"}, headers=admin).json()["items"]
    assert (held["who"], held["action"], held["reason"]) == ("token:platform-admin-all", "hold", "on fire")
    assert (held["source"], held["address"]) == ("token", "testclient")
    changed = client.get(AUDIT, params={"object": "Queue/bert", "action": "configuration.change"}, headers=admin)
    [line] = changed.json()["items"]
    assert "stopPolicy" not in line["before"]["spec"]
    assert line["after"]["spec"]["stopPolicy"] == "Hold"
    assert (line["reason"], line["address"]) == ("quiet", "testclient")
    assert client.get(AUDIT, params={"who": "nobody"}, headers=admin).json() == {"items": [], "next": None}
    assert client.get(AUDIT, params={"from": "2999-01-01T00:00:00Z"}, headers=admin).json()["items"] == []


def test_refusals_are_no_lines_of_the_audit_log(store: Store):
    settle(store)
    client = server(store)
    before = len(store.audit_entries(1000))
    viewer = bearer(token(store, "viewer", OWN))
    for _ in range(5):
        client.post("/api/v1/workloads/team-bert/blocked/hold", json={"reason": "x"}, headers=viewer)
        client.get("/api/v1/tree", headers=bearer("qm_wrong"))
    assert len(store.audit_entries(1000)) == before + 1  # the viewer's token


def test_the_audit_log_is_paged_and_exported_whole(store: Store):
    settle(store)
    client = server(store)
    admin = bearer(token(store, "platform-admin"))
    ids, cursor = [], ""
    while True:
        page = client.get(AUDIT, params={"limit": 3, "cursor": cursor}, headers=admin).json()
        ids += [each["id"] for each in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
    lines = client.get(f"{AUDIT}/export", headers=admin)
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == ids
    store.audit("=cmd()", "hold", "x", None, {"a": [1]}, "token", 'a "reason", with\nlines', NOW)
    rows = list(csv.DictReader(io.StringIO(client.get(f"{AUDIT}/export?format=csv&object=x", headers=admin).text)))
    assert [(row["who"], row["after"], row["reason"]) for row in rows] == [
        ("'=cmd()", '{"a": [1]}', 'a "reason", with\nlines')
    ]


@pytest.mark.parametrize("query", ["cursor=x", "cursor=2026-01-01~1", "from=someday", "limit=0", "format=xml"])
def test_bad_queries_of_the_audit_log(store: Store, query: str):
    path = f"{AUDIT}/export" if "format" in query else AUDIT
    answer = server(store).get(f"{path}?{query}", headers=bearer(token(store, "platform-admin")))
    assert answer.status_code in (400, 422)


def test_a_token_has_nothing_of_an_earlier_one_of_its_name(store: Store):
    settle(store)
    client = server(store)
    platform = bearer(token(store, "platform-admin"))
    store.access.create_token("qm_first", "ci", (Scope("platform-admin"),), None, MAKER, NOW - timedelta(days=1))
    theirs = client.post(TOKENS, json=wanted("viewer", "vision", "theirs"), headers=bearer("qm_first")).json()
    store.access.revoke_token(store.access.token_named("ci").id, MAKER, NOW)  # type: ignore[union-attr]
    store.access.create_token("qm_second", "ci", (Scope("queue-admin", OWN),), None, MAKER, NOW + timedelta(seconds=1))
    again = bearer("qm_second")
    assert client.delete(f"{TOKENS}/{theirs['id']}", headers=again).status_code == 404
    assert "theirs" not in [each["name"] for each in client.get(TOKENS, headers=again).json()["items"]]
    assert client.delete(f"{TOKENS}/{theirs['id']}", headers=platform).status_code == 204
