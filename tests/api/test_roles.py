"""Every route by every role: in the caller's own subtree, in a foreign one, with no role and with no proof.

The cases come from the route table itself: a route that is not among these requests fails here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.auth.decisions import DECISIONS, KINDS, Need, Where
from api.auth.roles import ROLES as ROLE_OF
from api.auth.roles import Role
from queue_manager.store.store import Store
from tests.api.callers import ROLES, bearer, document, queue, server, settle, token

OWN, FOREIGN = "research/nlp", "vision"
PLACES: Mapping[str, Mapping[str, str]] = {
    OWN: {"queue": "bert", "cohort": OWN, "namespace": "team-bert", "workload": "blocked"},
    FOREIGN: {"queue": "resnet", "cohort": FOREIGN, "namespace": "team-resnet", "workload": "training"},
}
"""What lies in each subtree."""
NAMES = {"Topology": "block", "Flavor": "h100", "PriorityClass": "high", "Settings": "default"}
OF_NODES = ("Cohort", "Queue", "LocalQueue", "RoleBinding")


def binding(name: str, node: str) -> dict[str, Any]:
    return document("RoleBinding", name, {"role": "viewer", "subjects": [{"kind": "User", "name": "x"}], "node": node})


def url(path: str, need: Need, place: str) -> str:
    """The URL of a route for something in a subtree."""
    here = PLACES[place]
    values = {"number": "1", "id": "999", "check": "none", "namespace": here["namespace"]}
    if need.where is Where.WORKLOAD:
        values["name"] = here["workload"]
    elif need.where is Where.COHORT or "cohorts" in path:
        values["name"] = f"{here['cohort']}/small"
    elif "local-queues" in path:
        values["name"] = "default"
    elif "role-bindings" in path:
        values["name"] = f"at-{here['queue']}"
    else:
        kind = KINDS.get(path.split("/")[3] if path.startswith("/api/") else "", "")
        values["name"] = NAMES.get(kind, here["queue"])
    return path.replace("{name:path}", values["name"]).format(**values)


def body(method: str, path: str, place: str) -> dict[str, Any]:
    """A body that the route takes, for something in a subtree."""
    here = PLACES[place]
    if method == "POST" and "/workloads/" in path:
        return {"json": {"reason": "because", **EXTRA.get(path.rpartition("/")[2], {})}}
    if (method, path) == ("POST", "/api/v1/tokens"):
        return {"json": {"name": "made", "scopes": [{"role": "viewer", "node": here["cohort"]}]}}
    if path.endswith("/stop"):
        return {"json": {"reason": "because", "policy": "Hold"}}
    if path.endswith("/stop/plan"):
        return {"json": {"policy": "Hold"}}
    if path.endswith("/checks/{check}"):
        return {"json": {"state": "Ready"}}
    if path == "/api/v1/config" or path.startswith("/api/v1/config/"):
        return {"json": changed(queue(here["queue"], here["cohort"], 32 if place == FOREIGN else 64))}
    if method in ("PUT", "PATCH"):
        return {"json": {"metadata": {"labels": {"x": "y"}}}, "headers": {"If-Match": "*"}}
    if method == "DELETE":
        return {"headers": {"If-Match": "*"}}
    return {}


EXTRA = {"move": {"queue": "bert"}, "reprioritise": {"priorityClass": "high"}}
"""What an action takes beside a reason."""


def changed(item: dict[str, Any]) -> dict[str, Any]:
    item["metadata"]["labels"] = {"touched": "yes"}
    return item


def ask(client: TestClient, route: tuple[str, str], place: str, secret: str = "", **more: Any) -> int:
    method, path = route
    need = DECISIONS[route]
    given = body(method, path, place)
    headers = {**(bearer(secret) if secret else {}), **given.pop("headers", {}), **more}
    if method == "PUT" and path.startswith("/api/v1/") and need.where is Where.CHANGE and "json" in given:
        given["json"] = whole(path, place, given["json"])
    if route == ("POST", "/login"):
        return 200  # proves somebody: test_login.py
    if route == ("GET", "/api/v1/events"):
        headers["Last-Event-ID"] = "none"  # refused behind the question who asks: a stream that is given never ends
    answer = client.request(method, url(path, need, place), headers=headers, **given)
    assert answer.status_code < 500, answer.text
    return answer.status_code


def whole(path: str, place: str, patch: dict[str, Any]) -> dict[str, Any]:
    """A PUT takes the whole object: one of that kind, so that only the right to change it is in question."""
    here = PLACES[place]
    for plural, kind in KINDS.items():
        if f"/{plural}/" not in path:
            continue
        if kind == "Queue":
            return changed(queue(here["queue"], here["cohort"], 32 if place == FOREIGN else 64))
        if kind == "Cohort":
            return changed(
                document("Cohort", here["cohort"], {"parent": "company" if place == FOREIGN else "research"})
            )
        if kind == "LocalQueue":
            return changed(document("LocalQueue", "default", {"queue": here["queue"]}, here["namespace"]))
        if kind == "RoleBinding":
            return changed(binding(f"at-{here['queue']}", here["cohort"]))
        return changed(document(kind, NAMES[kind], {"value": 7} if kind == "PriorityClass" else LEVELS.get(kind, {})))
    return patch


LEVELS = {"Topology": {"levels": [{"nodeLabel": "rack"}]}}
MORE = [
    document("Topology", "block", LEVELS["Topology"]),
    document("Cohort", f"{OWN}/small", {"parent": OWN}),
    document("Cohort", f"{FOREIGN}/small", {"parent": FOREIGN}),
    binding("at-bert", OWN),
    binding("at-resnet", FOREIGN),
]
ROUTES = sorted(DECISIONS)
OF_TREE = [f"/{plural}/" for plural, kind in KINDS.items() if kind in OF_NODES]


def refused_by(role: str, route: tuple[str, str], place: str) -> bool:
    """Whether somebody with a role at OWN is to be refused."""
    need = DECISIONS[route]
    has = ROLE_OF[role]
    if need.where in (Where.OPEN, Where.METRICS):
        return False
    if has < need.role or (need.where is Where.WHOLE):
        return True
    if need.where is Where.CHANGE:
        # A change of what belongs to the whole tree, or to a foreign subtree.
        path = route[1]
        if path.startswith("/api/v1/revisions"):
            return True  # back to where there was nothing
        if path.startswith("/api/v1/config"):
            return place == FOREIGN
        return place == FOREIGN or not any(part in path for part in OF_TREE)
    if need.where is Where.ANYWHERE:
        return route == ("POST", "/api/v1/tokens") and place == FOREIGN
    return place == FOREIGN and need.role > Role.VIEWER


@pytest.mark.parametrize("place", [OWN, FOREIGN])
@pytest.mark.parametrize("role", ROLES)
def test_every_route_by_a_role_of_a_subtree(store: Store, role: str, place: str):
    settle(store, *MORE)
    client = server(store)
    secret = token(store, role, OWN)
    admin = token(store, "platform-admin")
    wrong = []
    for route in ROUTES:
        if "/revisions/{number}/" in route[1]:
            continue  # see test_rollback.py
        status = ask(client, route, place, secret)
        expected = refused_by(role, route, place)
        if (status in (401, 403)) != expected:
            wrong.append((*route, status, "should be refused" if expected else "should be allowed"))
        if route[0] not in ("GET",) and status < 300:
            ask_again = settle_again(client, admin)
            assert ask_again in (200, 201)
    assert wrong == []


def settle_again(client: TestClient, admin: str) -> int:
    """Everything as it was, whatever a request has changed or deleted."""
    answer = client.post("/api/v1/revisions/1/rollback", headers=bearer(admin))
    return answer.status_code


@pytest.mark.parametrize("who", ["nobody", "no role"])
def test_every_route_without_a_role_or_a_proof(store: Store, who: str):
    settle(store, *MORE)
    client = server(store)
    secret = token(store, "platform-admin", "gone") if who == "no role" else ""
    for route in ROUTES:
        expected = DECISIONS[route].where not in (Where.OPEN, Where.METRICS)
        status = ask(client, route, OWN, secret)
        if expected:
            assert status == (401 if who == "nobody" else 403), route
        else:
            assert status not in (401, 403), route


def test_every_route_by_a_platform_admin(store: Store):
    settle(store, *MORE)
    client = server(store)
    secret = token(store, "platform-admin")
    for route in ROUTES:
        assert ask(client, route, FOREIGN, secret) not in (401, 403), route
        if route[0] != "GET":
            assert settle_again(client, secret) == 200


@pytest.mark.parametrize("role", ROLES)
def test_what_is_hidden_is_not_there(store: Store, role: str):
    settle(store, *MORE, hidden=True)
    client = server(store)
    secret = token(store, role, OWN)
    for route in ROUTES:
        need = DECISIONS[route]
        if need.where in (Where.QUEUE, Where.COHORT, Where.WORKLOAD, Where.OBJECT):
            status = ask(client, route, FOREIGN, secret)
            global_kind = need.where is Where.OBJECT and need.kind not in OF_NODES
            if ROLE_OF[role] < need.role:
                assert status == 403, route
            else:
                assert status == (200 if global_kind else 404), route


def test_metrics_may_be_closed(store: Store):
    settle(store)
    client = server(store, open_metrics=False)
    assert client.get("/metrics").status_code == 401
    for role in ROLES:  # they tell of the whole tree
        assert client.get("/metrics", headers=bearer(token(store, role, OWN))).status_code == 403
    assert client.get("/metrics", headers=bearer(token(store, "viewer"))).status_code == 200
    assert server(store).get("/metrics").status_code == 200
