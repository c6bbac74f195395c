"""The query of a list of workloads, read at once where nothing about it is odd.

FastAPI looks at each parameter by itself, which takes longer than the page. Whatever is not plainly valid is left to
it: what it refuses, and in which words, is decided in one place alone. A test holds the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from queue_manager.store.listing import NEWEST_FIRST, SORTS
from queue_manager.store.records import State

from ..auth.authorisation import demand
from ..auth.caller import caller_of
from ..context import Context, context_of
from .service import Wanted

LONGEST = {"queue": 600, "cohort": 600, "user": 600, "kind": 600, "namespace": 600, "text": 600, "sort": 20}
LONGEST |= {"fields": 2000, "cursor": 1000, "limit": 4}
"""Characters of each parameter at most."""
MOST_STATES = 20
_LIMIT = re.compile(r"[1-9][0-9]{0,2}|1000", re.ASCII)
_STATES = frozenset(state.value for state in State)
_MOST_PAIRS = 50


class Asked(NamedTuple):
    """A list that is asked for."""

    wanted: Wanted
    sort: str
    fields: str
    cursor: str
    limit: int


def read(query: bytes) -> Asked | None:
    """What a query asks for; None where somebody has to look closer."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_PAIRS, errors="strict")
    except ValueError:
        return None
    states = [value for name, value in pairs if name == "state"]
    values = {name: value for name, value in pairs if name in LONGEST}
    sort, limit = values.pop("sort", NEWEST_FIRST), values.pop("limit", "100")
    plain = (
        len(states) <= MOST_STATES
        and _STATES.issuperset(states)
        and sort in SORTS
        and _LIMIT.fullmatch(limit)
        and all(len(value) <= LONGEST[name] for name, value in values.items())
    )
    if not plain:
        return None
    fields, cursor = values.pop("fields", ""), values.pop("cursor", "")
    return Asked(Wanted(states=tuple(map(State, states)), **values), sort, fields, cursor, int(limit))


def quick_route(answer: Callable[[Context, Asked], Response]) -> type[APIRoute]:
    """A route that answers what is plain by `answer`, and all else as ever. Who may use it is looked at as ever."""

    class QuickRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
            careful = super().get_route_handler()

            async def handler(request: Request) -> Response:
                asked = read(request.scope["query_string"])
                return await (careful(request) if asked is None else run_in_threadpool(_answer, request, asked))

            return handler

    def _answer(request: Request, asked: Asked) -> Response:
        context = context_of(request, caller_of(request))
        demand(request, context)
        return answer(context, asked)

    return QuickRoute
