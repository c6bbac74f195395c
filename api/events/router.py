"""`/api/v1/events`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from queue_manager.store.events import TYPES
from queue_manager.store.records import State

from ..auth.identity import Source
from ..context import Ctx
from ..problems import ProblemError
from .reader import Reader
from .stream import EventStream, Wanted

router = APIRouter(tags=["events"])

EXAMPLE = """\
retry: 2000

event: ready
id: 4711
data: {}

event: workload
id: 4712
data: {"at":"2026-11-29T12:00:00Z","namespace":"team-nlp","name":"pretrain","kind":"TrainJob","uid":"9f3c",\
"queue":"nlp","user":"ada","priority":0,"state":"running","before":"starting","reason":"","attempt":1,"version":4}

: still here
"""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}}}
}
Words = Annotated[list[str], Query(max_length=50, description="Repeatable")]


@router.get("/events", response_class=Response, responses=STREAM)
async def events(
    context: Ctx,
    request: Request,
    type: Annotated[list[Literal[TYPES]], Query(description="Repeatable")] = [],  # type: ignore[valid-type]  # noqa: B006
    queue: Annotated[str, Query(max_length=600, description="Name or path of a queue")] = "",
    cohort: Annotated[str, Query(max_length=600, description="Name or path of a cohort: every queue below it")] = "",
    state: Annotated[list[State], Query(max_length=20, description="State that it has now; repeatable")] = [],  # noqa: B006
    user: Words = [],  # noqa: B006 - read only, as those above and below
    kind: Words = [],  # noqa: B006
    namespace: Words = [],  # noqa: B006
    last_event_id: Annotated[
        str, Header(max_length=40, description="The last id that was read: goes on after it")
    ] = "",
) -> Response:
    """Changes as they happen, as server-sent events: of workloads, what people asked of them, and revisions.

    The first event is `ready`. Who comes back with Last-Event-ID misses nothing; `reset` says that what came after that
    id is not kept any more. Filters are those of lists; with one of user, kind, namespace or state there are no
    revisions. A stream ends within seconds of its token, or of the reader's last role; what they may not see any more
    is told no more.
    """
    after = _place(last_event_id)
    await run_in_threadpool(context.queue_names, queue, cohort)  # refuses names that there are not

    chosen = {"state": [each.value for each in state], "user": user, "kind": kind, "namespace": namespace}
    fields = {name: frozenset(values) for name, values in chosen.items() if values}
    reader = Reader(context, request.state.proof, queue, cohort)
    wanted = Wanted(frozenset(type), reader.queues, fields, reader.veiled)
    who = "" if context.caller.source is Source.LOOPBACK else context.caller.key
    return EventStream(request.app.state.hub, wanted, after, may_go_on=reader.may_go_on, who=who)


def _place(last_event_id: str) -> int | None:
    text = last_event_id.strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ProblemError(400, "Bad Last-Event-ID", "use the id of an event as it was given")
    return int(text)
