"""Pages at `/`, and the fragments of them that are fetched again every two seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.staticfiles import StaticFiles

from queue_manager.config import human
from queue_manager.store.records import ENDED, State

from ..context import Context, Ctx
from ..problems import ProblemError
from ..usage.service import read_tree
from ..workloads import service as workloads
from . import view

HERE = Path(__file__).parent
router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
static = StaticFiles(directory=HERE / "static")
templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.globals["scale"] = view.SCALE
templates.filters["moment"] = view.moment

PAGE = 100
FILTERS = ("queue", "cohort", "state", "user", "namespace", "text", "columns", "cursor")
LIVE = tuple(State(name) for name in view.STATES if State(name) not in ENDED)
Kind = Annotated[str, Query(max_length=100)]


def page(name: str, data: Mapping[str, Any], status: int = 200, context: Context | None = None) -> HTMLResponse:
    """A page of a template; never kept by browsers. With a `context` its head says who asks, and lets them go."""
    shown = {"caller": view.caller(context.caller) if context is not None else None, **data}
    return HTMLResponse(templates.get_template(name).render(shown), status, {"Cache-Control": "no-store"})


@router.get("/")
def overview(context: Ctx, request: Request) -> Response:
    """Queue tree and workloads."""
    return _page("overview.html", context, request)


@router.get("/fragments/overview")
def overview_fragment(context: Ctx, request: Request) -> Response:
    """Its live part."""
    return _page("overview_live.html", context, request)


def _page(template: str, context: Context, request: Request) -> Response:
    query = {name: request.query_params.get(name, "")[:600] for name in FILTERS}
    try:
        return page(template, _overview(context, query), context=context)
    except ProblemError as problem:
        return page("problem.html", {"problem": problem}, problem.status, context)


def _overview(context: Context, query: Mapping[str, str]) -> dict[str, Any]:
    tree = read_tree(context)
    # What has ended is history: it is shown when asked for, or it would bury the rest.
    states = (State(query["state"]),) if query["state"] in view.STATES else LIVE if query["state"] != "all" else ()
    wanted = workloads.Wanted(
        queue=query["queue"],
        cohort=query["cohort"],
        states=states,
        user=query["user"],
        namespace=query["namespace"],
        text=query["text"],
    )
    listed = workloads.list_workloads(context, wanted, query["cursor"], PAGE)
    now = context.now()
    counts = {state: sum(node.workloads.get(state, 0) for node in tree.items) for state in view.STATES}
    return {
        "tree": view.tree_view(tree.items, query, query["columns"] == "all"),
        "lines": [view.workload_line(each, query, now) for each in listed.items],
        "next": view.filter_link({**query, "queue": ""}, "cursor", listed.next) if listed.next else "",
        "query": query,
        "states": view.STATES,
        "counts": counts,
        "revision": tree.revision,
        "now": now,
    }


@router.get("/workloads/{namespace}/{name}")
def workload(context: Ctx, namespace: str, name: str, kind: Kind = "") -> Response:
    """One workload and why it waits."""
    return _workload_page("workload.html", context, namespace, name, kind)


@router.get("/fragments/workloads/{namespace}/{name}")
def workload_fragment(context: Ctx, namespace: str, name: str, kind: Kind = "") -> Response:
    """Its live part."""
    return _workload_page("workload_live.html", context, namespace, name, kind)


def _workload_page(template: str, context: Context, namespace: str, name: str, kind: str) -> Response:
    try:
        row = workloads.get_row(context, namespace, name, kind)
    except ProblemError as problem:
        return page("problem.html", {"problem": problem}, problem.status, context)
    shown = workloads.show(context, row)
    explanation = workloads.explain(context, row)
    admissions = workloads.list_admissions(context, row)
    now = context.now()
    return page(
        template,
        {
            "workload": shown,
            "words": view.words(shown.reason, shown.message),
            "age": human.age(row.created_at, now),
            "explanation": explanation,
            "blockers": view.blockers(explanation),
            "pod_sets": view.pod_sets(shown),
            "admissions": list(reversed(admissions))[:20],
            "fragment": "/fragments" + view.workload_link(namespace, name, kind),
            "queue_link": view.filter_link({}, "queue", row.queue) if row.queue else "",
            "revision": context.configuration().revision,
            "now": now,
        },
        context=context,
    )
