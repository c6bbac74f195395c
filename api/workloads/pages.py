"""Pages of workloads as JSON. A workload's JSON is kept: of a page that was asked for before only the keys are read.

What is kept is by uid, version and revision of the configuration, so it is right for ever; what says how long a
workload has run, or whether it still backs off, is kept for the second that it was true in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from fastapi import Response

from queue_manager.store.deadlines import STARTED
from queue_manager.store.listing import BadCursor, Key
from queue_manager.store.records import WorkloadRow

from ..auth.veil import Veil
from ..context import Context, Loaded
from ..fields import Selection, page
from ..kept import Place
from ..problems import ProblemError
from .past import backs_off, to_json
from .service import Wanted, filter_of, to_schema

SHORTEST = 3
"""Characters of a searched text: the index knows sequences of three."""


class _Said(msgspec.Struct):
    message: str = ""


_SAID = msgspec.json.Decoder(_Said)


def answer(
    context: Context, wanted: Wanted, sort: str, cursor: str, limit: int, selection: Selection | None
) -> Response:
    """A page of the workloads that are wanted."""
    if 0 < len(wanted.text) < SHORTEST:
        raise ProblemError(400, "Text too short", f"text: give at least {SHORTEST} characters of the name")
    context = context.pinned()
    queues = context.queue_names(wanted.queue, wanted.cohort)
    if queues == ():
        return page([], None, None)
    try:
        keys, following = context.store.page_of_workloads(filter_of(wanted, queues or ()), sort, cursor or None, limit)
    except BadCursor:
        raise ProblemError(
            400, "Bad cursor", "use `next` of the page before, as it was given, and its `sort`"
        ) from None
    return page(_contents(context, keys), following, selection)


def _contents(context: Context, keys: Sequence[Key]) -> list[bytes]:
    loaded, now = context.configuration(), context.now()
    second = int(now.timestamp())
    found = {key.uid: content for key in keys if (content := context.kept.get(key, loaded.revision, second))}
    missing = [key for key in keys if key.uid not in found]
    pasts = [past for key in missing if (past := key.past()) is not None]
    if unread := [key for key in missing if key.finished_at is not None and key.content is None]:
        pasts += context.store.past_of_keys(unread)
    for past in pasts:
        content = to_json(loaded.compiled, past, now)
        context.kept.put((past.uid, past.version, loaded.revision, second if backs_off(past, now) else 0), content)
        found[past.uid] = content
    missing = [key for key in missing if key.uid not in found]
    for row in context.store.workloads_of_keys(missing) if missing else ():
        content = to_schema(loaded.compiled, row, now).model_dump_json(by_alias=True).encode()
        context.kept.put(_place(loaded, row, now, second), content)
        found[row.uid] = content
    return _veiled(context, [found[key.uid] for key in keys if key.uid in found])


def _veiled(context: Context, contents: list[bytes]) -> list[bytes]:
    """What is kept is for everybody; messages may name workloads that this caller may not see."""
    if context.sees_all or not context.access.narrowed:
        return contents
    messages = [_SAID.decode(content).message for content in contents]
    veil = Veil(context, messages)
    told = [veil.text(message) for message in messages]
    return [
        content if message == before else msgspec.json.encode({**msgspec.json.decode(content), "message": message})
        for content, before, message in zip(contents, messages, told, strict=True)
    ]


def _place(loaded: Loaded, row: WorkloadRow, now: datetime, second: int) -> Place:
    passing = row.state in STARTED or (row.not_before is not None and row.not_before > now)
    return row.uid, row.version, loaded.revision, second if passing else 0
