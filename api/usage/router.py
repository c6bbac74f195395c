"""`/api/v1/tree`, `/api/v1/queues/{name}/usage`, `/api/v1/cohorts/{name}/usage`, `/api/v1/usage`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from ..context import Ctx
from ..fields import Fields, answer, answer_with_items, select
from ..moments import From, To
from ..paging import Cursor
from . import over_time, service
from .schemas import NodeUsage, TreeUsage, UsageEntry, UsageOverTime

router = APIRouter(tags=["usage"])

Word = Annotated[str, Query(max_length=600)]


@router.get("/tree", response_model=TreeUsage)
def tree(context: Ctx, fields: Fields = "") -> Response:
    """The whole queue tree with usage. `fields` are those of every node; its children are always there."""
    selection = select(fields, NodeUsage)
    if selection is not None:
        selection["children"] = selection  # of what is below a node the same is asked for
    return answer_with_items(service.read_tree(context), selection)


@router.get("/queues/{name:path}/usage", response_model=NodeUsage)
def queue_usage(context: Ctx, name: str, fields: Fields = "") -> Response:
    """Usage of a queue, by its name or path."""
    selection = select(fields, NodeUsage)
    return answer(service.read_node(context, "Queue", name), selection)


@router.get("/cohorts/{name:path}/usage", response_model=NodeUsage)
def cohort_usage(context: Ctx, name: str, fields: Fields = "") -> Response:
    """Usage of everything below a cohort, by its name or path."""
    selection = select(fields, NodeUsage)
    return answer(service.read_node(context, "Cohort", name), selection)


@router.get("/usage", response_model=UsageOverTime)
def usage_over_time(
    context: Ctx,
    by: Annotated[
        list[str],
        Query(
            max_length=20,
            description=f"What to group by: {', '.join(over_time.GROUPS)}; repeatable, or comma separated. By resource "
            "always",
            examples=[["queue", "user"]],
        ),
    ] = [],  # noqa: B006 - read only
    since: From = "",
    until: To = "",
    step: Annotated[
        str,
        Query(
            max_length=100,
            description="Length of a bucket: 1h, 1d, 7d (from Monday) ... or month, aligned to UTC; the first and the "
            "last may be shorter. Without it the whole span is one",
            examples=["1d"],
        ),
    ] = "",
    queue: Annotated[str, Query(max_length=600, description="Name or path of a queue")] = "",
    cohort: Annotated[str, Query(max_length=600, description="Name or path of a cohort: every queue below it")] = "",
    level: Annotated[
        int | None,
        Query(ge=1, le=100, description="With by=cohort: cohorts of this level, 1 being a root, for all below"),
    ] = None,
    namespace: Word = "",
    user: Word = "",
    flavor: Word = "",
    resource: Annotated[
        str, Query(max_length=600, description="Its name, or what is behind the slash", examples=["nvidia.com/gpu"])
    ] = "",
    kind: Word = "",
    priority_class: Annotated[str, Query(alias="priorityClass", max_length=600)] = "",
    sort: Annotated[Literal["start", "-start", "used", "-used"], Query(description="With `-` the greatest first")] = (
        "start"
    ),
    fields: Fields = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=over_time.MAX_ITEMS, description="Largest number of items in the answer")] = (
        over_time.MAX_ITEMS
    ),
) -> Response:
    """What was charged over time, draining included, and the quota that there was: by group and bucket, for [from, to).
    Without `from` the last day. `fields` are those of the items; at most 1,000 buckets and 50,000 items. Later pages
    are of the span of the first one."""
    selection = select(fields, UsageEntry)
    equal = {"namespace": namespace, "user": user, "flavor": flavor, "resource": resource}
    equal |= {"kind": kind, "priorityClass": priority_class}
    wanted = over_time.Wanted(by, since, until, step, queue, cohort, level, equal, sort, cursor, limit)
    found = over_time.read(context, wanted)
    return answer_with_items(found, selection)
