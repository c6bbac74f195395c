"""The answer to "why is my job waiting", line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from queue_manager.config import human

Node = Mapping[str, Any]
MOST_HOLDERS = 5


def explanation_lines(found: Node, explanation: Node, now: datetime) -> Iterator[str]:
    """Of a workload and its explanation: what it is, where it stands, and each blocker with what would remove it."""
    created = human.age(datetime.fromisoformat(explanation["since"]), now)
    yield f"{found['kind']} {found['namespace']}/{found['name']}: {found['state']}, created {created} ago"
    yield ", ".join(_standing(found, explanation))
    blockers = explanation["blockers"]
    told = {part for blocker in blockers for part in (blocker["message"],)}
    if explanation["message"] not in ("", *told, "; ".join(blocker["message"] for blocker in blockers[:3])):
        yield str(explanation["message"])
    elif not blockers and explanation["reason"]:
        yield str(explanation["reason"])
    yield from _times(explanation, now)
    if blockers:
        yield ""
        yield f"in the way{'' if len(blockers) == 1 else ', and each of them has to go'}:"
    for number, blocker in enumerate(blockers, 1):
        yield from _blocker_lines(number, blocker, now)


def _standing(found: Node, explanation: Node) -> Iterator[str]:
    yield f"queue {found['path'] or found['localQueue'] + ' (not known)'}"
    if explanation["position"]:
        of = f" of {explanation['queued']}" if explanation.get("queued") else ""
        yield f"position {explanation['position']}{of}"
    yield f"priority {found['priority']}"


def _times(explanation: Node, now: datetime) -> Iterator[str]:
    since, as_of = explanation.get("waitingSince"), explanation["asOf"]
    if since:
        began = datetime.fromisoformat(since)
        looked = f"; looked at {human.age(datetime.fromisoformat(as_of), now)} ago" if as_of else ""
        yield f"waits since {human.moment(began)} ({human.age(began, now)}){looked}"
    if explanation["estimatedStart"]:
        yield f"starts about {human.moment(datetime.fromisoformat(explanation['estimatedStart']))}"


def _blocker_lines(number: int, blocker: Node, now: datetime) -> Iterator[str]:
    where = " ".join(part for part in (blocker["node"], blocker["flavor"], blocker["resource"]) if part)
    yield f"{number:>3}. {blocker['message'] or blocker['type']}"
    if blocker["requested"] or blocker["missing"]:
        resource = blocker["resource"]
        amounts = ", ".join(
            f"{name} {human.amount(resource, blocker[name]) if resource else blocker[name]}"
            for name in ("requested", "available", "missing")
        )
        yield f"     {blocker['type']} at {where or 'the cluster'}: {amounts}"
    yield from _holder_lines(blocker, now)
    for index, way in enumerate(blocker.get("waysOut", ())):
        yield f"     {'goes when' if index == 0 else '  or when'} {way}"


def _holder_lines(blocker: Node, now: datetime) -> Iterator[str]:
    held: Sequence[Node] = blocker.get("held", ())
    if not held:
        if blocker["holders"]:
            yield f"     held by {', '.join(blocker['holders'])}"
        return
    shown = held[:MOST_HOLDERS]
    names = [f"{each['namespace']}/{each['name']}" for each in shown]
    width = max(map(len, names))
    for index, (name, each) in enumerate(zip(names, shown, strict=True)):
        yield f"     {'held by' if index == 0 else '       '} {name:<{width}}  {', '.join(_holder(each, blocker, now))}"
    if len(held) > len(shown):
        yield f"             and {len(held) - len(shown)} more"


def _holder(each: Node, blocker: Node, now: datetime) -> Iterator[str]:
    if each["amount"]:
        yield f"{human.amount(blocker['resource'], each['amount'])} {human.resource_name(blocker['resource'])}"
    yield f"queue {each['queue']}"
    if each["user"]:
        yield str(each["user"])
    yield f"priority {each['priority']}"
    yield f"{each['state']} for {human.age(datetime.fromisoformat(each['since']), now)}"
    if each["until"]:
        yield f"ends by {human.moment(datetime.fromisoformat(each['until']))}"
