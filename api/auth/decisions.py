"""What each route needs: a role, and where it is needed. A route that is not listed here is refused to everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from .roles import Role


class Where(Enum):
    """Where in the tree a role is needed."""

    OPEN = "nobody is asked who they are"
    METRICS = "at the whole tree, of which they tell; open where nobody has to prove anything, or as the server is told"
    ANYWHERE = "at any node; what the answer shows is narrowed to what its reader may see"
    CHANGE = "at any node to begin with; then at every object that the change touches"
    WHOLE = "at the whole tree"
    QUEUE = "at the queue of the URL"
    COHORT = "at the cohort of the URL"
    WORKLOAD = "at the queue of the URL's workload"
    OBJECT = "at the node that the configuration object of the URL belongs to"


@dataclass(frozen=True, slots=True)
class Need:
    """A role at a place. A queue or cohort is the path parameter `name`, a workload `namespace` and `name`; an object
    is also of a `kind`."""

    where: Where
    role: Role = Role.VIEWER
    kind: str = ""


Route = tuple[str, str]
"""(method, path as the route declares it)."""

OPEN = Need(Where.OPEN)
READ = Need(Where.ANYWHERE)
READ_WORKLOAD = Need(Where.WORKLOAD)
ACT_ON_WORKLOAD = Need(Where.WORKLOAD, Role.OPERATOR)
ADMIN = Need(Where.ANYWHERE, Role.QUEUE_ADMIN)
CHANGE = Need(Where.CHANGE, Role.QUEUE_ADMIN)

_WORKLOAD = "/api/v1/workloads/{namespace}/{name}"
KINDS = {
    "topologies": "Topology",
    "flavors": "Flavor",
    "cohorts": "Cohort",
    "queues": "Queue",
    "priority-classes": "PriorityClass",
    "local-queues": "LocalQueue",
    "role-bindings": "RoleBinding",
    "settings": "Settings",
}
"""Kinds of the configuration by the word that their URLs have."""


def _of_objects() -> Iterator[tuple[Route, Need]]:
    for plural, kind in KINDS.items():
        path = f"/api/v1/{plural}"
        one = f"{path}/{{namespace}}/{{name}}" if kind == "LocalQueue" else f"{path}/{{name:path}}"
        yield ("GET", path), READ
        yield ("GET", one), Need(Where.OBJECT, kind=kind)
        for method in ("PUT", "PATCH", "DELETE"):
            yield (method, one), Need(Where.CHANGE, Role.QUEUE_ADMIN, kind)


def _of_stops() -> Iterator[tuple[Route, Need]]:
    for path, need in (
        ("queues/{name:path}", Need(Where.QUEUE, Role.OPERATOR)),
        ("cohorts/{name:path}", Need(Where.COHORT, Role.OPERATOR)),
        ("local-queues/{namespace}/{name}", Need(Where.OBJECT, Role.OPERATOR, "LocalQueue")),
        ("flavors/{name:path}", Need(Where.WHOLE, Role.OPERATOR)),
    ):
        yield ("POST", f"/api/v1/{path}/stop"), need
        yield ("POST", f"/api/v1/{path}/stop/plan"), need


DECISIONS: Mapping[Route, Need] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): Need(Where.METRICS),
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/static"): OPEN,
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("POST", "/logout"): OPEN,
    ("GET", "/"): READ,
    ("GET", "/fragments/overview"): READ,
    ("GET", "/workloads/{namespace}/{name}"): READ_WORKLOAD,
    ("GET", "/fragments/workloads/{namespace}/{name}"): READ_WORKLOAD,
    ("GET", "/api/v1/tree"): READ,
    ("GET", "/api/v1/usage"): READ,
    ("GET", "/api/v1/queues/{name:path}/usage"): Need(Where.QUEUE),
    ("GET", "/api/v1/cohorts/{name:path}/usage"): Need(Where.COHORT),
    ("GET", "/api/v1/schema"): READ,
    ("GET", "/api/v1/config"): READ,
    ("PUT", "/api/v1/config"): CHANGE,
    ("POST", "/api/v1/config/diff"): CHANGE,
    ("POST", "/api/v1/config/plan"): CHANGE,
    ("GET", "/api/v1/revisions"): READ,
    ("GET", "/api/v1/revisions/{number}"): READ,
    ("POST", "/api/v1/revisions/{number}/diff"): CHANGE,
    ("POST", "/api/v1/revisions/{number}/plan"): CHANGE,
    ("POST", "/api/v1/revisions/{number}/rollback"): CHANGE,
    **dict(_of_objects()),
    ("GET", "/api/v1/events"): READ,
    ("GET", "/api/v1/tokens"): ADMIN,
    ("POST", "/api/v1/tokens"): ADMIN,
    ("GET", "/api/v1/tokens/{id}"): ADMIN,
    ("DELETE", "/api/v1/tokens/{id}"): ADMIN,
    ("GET", "/api/v1/audit"): Need(Where.WHOLE, Role.OPERATOR),
    ("GET", "/api/v1/audit/export"): Need(Where.WHOLE, Role.OPERATOR),
    ("GET", "/api/v1/workloads"): READ,
    ("GET", _WORKLOAD): READ_WORKLOAD,
    ("GET", f"{_WORKLOAD}/explanation"): READ_WORKLOAD,
    ("GET", f"{_WORKLOAD}/history"): READ_WORKLOAD,
    ("GET", f"{_WORKLOAD}/checks"): READ_WORKLOAD,
    ("GET", f"{_WORKLOAD}/checks/{{check}}"): READ_WORKLOAD,
    ("PUT", f"{_WORKLOAD}/checks/{{check}}"): ACT_ON_WORKLOAD,
    ("POST", f"{_WORKLOAD}/hold"): ACT_ON_WORKLOAD,
    ("POST", f"{_WORKLOAD}/release"): ACT_ON_WORKLOAD,
    ("GET", "/api/v1/stops"): READ,
    **dict(_of_stops()),
    ("POST", f"{_WORKLOAD}/move"): ACT_ON_WORKLOAD,
    ("POST", f"{_WORKLOAD}/reprioritise"): ACT_ON_WORKLOAD,
    ("POST", f"{_WORKLOAD}/evict"): ACT_ON_WORKLOAD,
}


def routes_of(app: FastAPI) -> Iterator[tuple[Route, Callable[..., Any] | None]]:
    """Every route of the application with the function that answers it; HEAD and OPTIONS follow GET."""
    for route in iter_route_contexts(app.routes):
        for method in sorted((route.methods or {"GET"}) - {"HEAD", "OPTIONS"}):
            yield (method, route.path or ""), route.endpoint


def needs_of(app: FastAPI) -> dict[tuple[str, Callable[..., Any]], Need]:
    """The decision for each (method, function that answers); routes without one are left out, so they are refused."""
    needs: dict[tuple[str, Callable[..., Any]], Need] = {}
    for (method, path), endpoint in routes_of(app):
        need = DECISIONS.get((method, path))
        if endpoint is None or need is None:
            continue
        if needs.setdefault((method, endpoint), need) != need:
            raise ValueError(f"{method} {path}: one function answers two routes with different needs")
    return needs
