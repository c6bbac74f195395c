"""Proofs: bearer tokens and the page's cookie; what proves nothing is refused, and says why."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from api.auth.authentication import COOKIE, Authentication
from api.auth.identity import Identity, Source
from queue_manager.store.store import Store
from queue_manager.store.tokens import Scope, new_secret
from tests.api.callers import MAKER, bearer, server, settle, token
from tests.store.builders import NOW

TREE = "/api/v1/tree"


def test_a_token_counts_until_it_is_revoked_or_expires(store: Store):
    settle(store)
    client = server(store)
    secret = new_secret()
    made = store.access.create_token(secret, "ci", (Scope("viewer"),), NOW + timedelta(seconds=1), MAKER, NOW)
    assert client.get(TREE, headers=bearer(secret)).status_code == 200
    found = store.access.get_token(made.id)
    assert found is not None
    assert found.used_at == NOW
    store.access.revoke_token(made.id, MAKER, NOW)
    answer = client.get(TREE, headers=bearer(secret))
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "is revoked" in answer.json()["detail"]
    late = new_secret()
    store.access.create_token(late, "late", (Scope("viewer"),), NOW, MAKER, NOW)
    assert "has expired" in client.get(TREE, headers=bearer(late)).json()["detail"]


@pytest.mark.parametrize(
    "header", ["Bearer qm_unknown", "Bearer x", "Bearer ", "Basic YTpi", "Bearer " + "x" * 20000, "nonsense"]
)
@pytest.mark.parametrize("required", [True, False])
def test_what_proves_nothing_is_refused_also_where_nothing_is_needed(store: Store, header: str, required: bool):
    client = server(store) if required else TestClient(create_app(store), base_url="http://localhost")
    assert client.get(TREE, headers={"Authorization": header}).status_code == 401


def test_a_token_on_a_server_that_needs_none_still_has_its_roles_only(store: Store):
    settle(store)
    client = TestClient(create_app(store, now=lambda: NOW), base_url="http://localhost")
    hold = "/api/v1/workloads/team-bert/blocked/hold"
    viewer = bearer(token(store, "viewer"))
    assert client.post(hold, json={"reason": "x"}, headers=viewer).status_code == 403
    assert client.post(hold, json={"reason": "x"}).status_code in (200, 202)


def test_bodies_of_nobody_are_not_read(store: Store):
    answer = server(store).put("/api/v1/config", content=b"x" * 30_000_000)
    assert answer.status_code == 401


def test_the_page_asks_for_a_login_and_comes_back(store: Store):
    settle(store)
    client = server(store)
    answer = client.get("/?queue=bert", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2F%3Fqueue%3Dbert")
    form = client.get(answer.headers["location"])
    assert 'value="/?queue=bert"' in form.text
    secret = token(store, "viewer")
    logged_in = client.post("/login", data={"token": secret, "next": "/?queue=bert"})
    assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/?queue=bert")
    cookie = logged_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/?queue=bert").status_code == 200
    assert "token:viewer-all" in client.get("/login").text
    assert client.post("/logout").status_code == 303
    assert client.get("/").status_code == 401


@pytest.mark.parametrize("back", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", ""])
def test_a_login_leads_to_no_other_server(store: Store, back: str):
    client = server(store)
    answer = client.post("/login", data={"token": token(store, "viewer"), "next": back})
    assert answer.headers["location"] == "/"


def test_a_login_with_nothing_is_refused_and_reads_no_large_body(store: Store):
    client = server(store)
    assert client.post("/login", data={"token": "qm_no"}).status_code == 401
    assert client.post("/login", data={}).status_code == 401
    assert client.post("/login", content=b"token=" + b"x" * 100_000).status_code == 413
    assert client.post("/login", content=b"\xff\xfe").status_code == 400
    assert COOKIE not in client.cookies


def test_an_old_cookie_is_as_good_as_none(store: Store):
    client = server(store)
    client.cookies.set(COOKIE, "qm_old")
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 303
    assert client.post("/login", data={"token": token(store, "viewer")}).status_code == 303


def test_a_cookie_of_another_server_of_this_host_shuts_nobody_out_where_no_proof_is_needed(store: Store):
    app = create_app(store, registry=CollectorRegistry(), authentication=Authentication())
    client = TestClient(app, base_url="http://localhost", follow_redirects=False)
    client.cookies.set(COOKIE, "qm_old")
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost"}, 202),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({}, 403),
    ],
)
def test_a_foreign_page_changes_nothing_with_the_cookie(store: Store, headers: dict[str, str], status: int):
    settle(store)
    client = server(store)
    client.cookies.set(COOKIE, token(store, "operator"))
    answer = client.post("/api/v1/workloads/team-bert/blocked/hold", json={"reason": "x"}, headers=headers)
    assert answer.status_code == status


def test_other_host_names_are_answered_where_they_are_allowed(store: Store):
    admin = bearer(token(store, "viewer"))
    client = server(store, hosts=frozenset({"queues.example"}))
    assert client.get(TREE, headers={**admin, "Host": "queues.example:8080"}).status_code == 200
    assert client.get(TREE, headers={**admin, "Host": "other.example"}).status_code == 403
    anywhere = server(store, hosts=frozenset({"*"}))
    assert anywhere.get(TREE, headers={**admin, "Host": "other.example"}).status_code == 200


def test_idempotency_keys_are_not_shared_by_those_of_one_name(store: Store):
    """A token that has the name of one that ended is not told what that one was answered; nor is a user of one provider
    what a user of another was."""
    settle(store)
    client = server(store)
    hold, key = "/api/v1/workloads/team-bert/blocked/hold", {"Idempotency-Key": "k"}
    first = token(store, "operator", name="bot")
    assert client.post(hold, json={"reason": "x"}, headers={**bearer(first), **key}).status_code == 202
    [made] = store.access.list_tokens(10, None, False)
    store.access.revoke_token(made.id, MAKER, NOW)
    second = new_secret()
    store.access.create_token(second, "bot", (Scope("operator"),), None, MAKER, NOW + timedelta(seconds=1))
    again = client.post(hold, json={"reason": "x"}, headers={**bearer(second), **key})
    assert "idempotency-replayed" not in again.headers
    keys = {Identity("ada", source=source).key for source in Source}
    assert len(keys) == len(Source)


def test_every_page_says_who_is_logged_in_and_lets_them_go(store: Store):
    settle(store)
    client = server(store)
    client.post("/login", data={"token": token(store, "viewer")})
    for path in ("/", "/workloads/team-bert/blocked", "/?cohort=nowhere"):
        text = client.get(path).text
        assert "token:viewer-all" in text, path
        assert '<form class="caller" method="post" action="/logout">' in text
        assert "Log out" in text
    open_client = TestClient(create_app(store, now=lambda: NOW), base_url="http://localhost")
    text = open_client.get("/").text
    assert "local" in text
    assert "Log out" not in text
    assert 'href="/login"' in text
