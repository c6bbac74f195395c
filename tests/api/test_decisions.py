"""Every route has a decision who may use it; the decisions are those of routes there are."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from api.auth.decisions import DECISIONS, needs_of, routes_of
from queue_manager.store.store import Store


def test_every_route_has_a_decision_and_every_decision_a_route(store: Store):
    assert {route for route, _ in routes_of(create_app(store))} == set(DECISIONS)


def test_a_route_without_a_decision_is_refused(store: Store):
    app = create_app(store, registry=CollectorRegistry())
    app.add_api_route("/api/v1/forgotten", lambda: {"secret": 1}, methods=["GET", "POST"])
    app.state.needs = needs_of(app)
    client = TestClient(app, base_url="http://localhost")
    for method in ("GET", "POST"):
        answer = client.request(method, "/api/v1/forgotten")
        assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
