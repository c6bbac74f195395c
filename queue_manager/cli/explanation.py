"""The answer to "why is my job waiting", line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from queue_manager.config import human

Node = Mapping[str, Any]


def explanation_lines(found: Node, explanation: Node, now: datetime) -> Iterator[str]:
    """Of a workload and its explanation."""
    since = human.age(datetime.fromisoformat(explanation["since"]), now)
    queue = found["path"] or f"{found['localQueue']} (not known)"
    yield f"{found['kind']} {found['namespace']}/{found['name']}: {found['state']}, created {since} ago"
    position = f", position {explanation['position']}" if explanation["position"] else ""
    yield f"queue {queue}{position}, priority {found['priority']}"
    if explanation["message"] or explanation["reason"]:
        yield f"{explanation['message'] or explanation['reason']}"
    if explanation["estimatedStart"]:
        yield f"estimated start: {explanation['estimatedStart']}"
    if explanation["blockers"]:
        yield ""
        yield "in the way:"
    for number, blocker in enumerate(explanation["blockers"], 1):
        yield from _blocker_lines(number, blocker)


def _blocker_lines(number: int, blocker: Node) -> Iterator[str]:
    where = " ".join(part for part in (blocker["node"], blocker["flavor"], blocker["resource"]) if part)
    message = blocker["message"] or blocker["type"]
    yield f"{number:>3}. {message}"
    if where or blocker["requested"] or blocker["missing"]:
        resource = blocker["resource"]
        amounts = ", ".join(
            f"{name} {human.amount(resource, blocker[name]) if resource else blocker[name]}"
            for name in ("requested", "available", "missing")
        )
        yield f"     {blocker['type']} at {where or 'the cluster'}: {amounts}"
    if blocker["holders"]:
        yield f"     held by {', '.join(blocker['holders'])}"
