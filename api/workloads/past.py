"""JSON of workloads of the history, straight from what is kept of them: the same that `service.to_schema` would say,
which a test holds it to, in a tenth of the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from queue_manager.config.compiled import Compiled
from queue_manager.engine.workload import TopologyRequest
from queue_manager.store.past_rows import Group, PastRow, Rest, Set
from queue_manager.store.records import Check

SECOND = 1_000_000
NO_FLAVORS: dict[str, str] = {}
_encode = msgspec.json.Encoder().encode


def to_json(compiled: Compiled, row: PastRow, now: datetime) -> bytes:
    """A row in the API's shape. It is admitted no more, so it has neither flavors nor domains."""
    node, rest = compiled.tree.queues.get(row.queue), row.rest
    return _encode(
        {
            "namespace": row.namespace,
            "name": row.name,
            "kind": row.kind,
            "uid": row.uid,
            "queue": row.queue,
            "path": node.path if node else row.queue,
            "cohort": node.parent if node else "",
            "localQueue": rest.local_queue,
            "user": row.user,
            "priority": row.priority,
            "priorityClass": rest.priority_class,
            "state": row.state,
            "reason": rest.reason,
            "message": rest.message,
            "created": row.created_at,
            "admitted": None,
            "finished": row.finished_at,
            "attempt": rest.attempt,
            "afterDrain": rest.after_drain,
            "requeue": {
                "count": rest.requeues,
                "since": rest.requeued_at,
                "at": rest.not_before if backs_off(row, now) else None,
            },
            "ready": None,
            "runTime": {
                "limit": rest.max_run_time / SECOND if rest.max_run_time else None,
                "used": rest.past_run_time / SECOND,
                "until": None,
            },
            "checks": _checks(compiled, row.queue, rest),
            "topology": _topology(rest.topology),
            "podGroups": [_group(group, row.sets) for group in row.groups],
        }
    )


def backs_off(row: PastRow, now: datetime) -> bool:
    """Whether it says a time that is still to come: what is said of it changes then."""
    return row.rest.not_before is not None and row.rest.not_before > now


def _checks(compiled: Compiled, queue: str, rest: Rest) -> list[dict[str, Any]]:
    configured = compiled.configuration.queues.get(queue)
    names = [check.name for check in configured.checks] if configured is not None else []
    answers = {check.name: check for check in rest.checks}
    return [_check(name, answers.get(name)) for name in dict.fromkeys([*names, *answers])]


def _check(name: str, answer: Check | None) -> dict[str, Any]:
    return {
        "name": name,
        "state": answer.state if answer else "Pending",
        "message": answer.message if answer else "",
        "at": answer.at if answer else None,
        "by": answer.who if answer else "",
        "needed": None,
        "requeueAfter": answer.requeue_after if answer and answer.state == "Retry" else None,
    }


def _topology(request: TopologyRequest | None) -> dict[str, str] | None:
    return {"mode": request.mode, "level": request.level} if request else None


def _group(group: Group, sets: Sequence[Set]) -> dict[str, Any]:
    return {
        "name": group.name,
        "policy": group.policy,
        "minimum": group.minimum,
        "topology": _topology(group.topology),
        "podSets": [_set(each) for each in sets if each.group_index == group.index],
    }


def _set(each: Set) -> dict[str, Any]:
    return {
        "name": each.name,
        "count": each.count,
        "requests": each.requests,
        "stages": (each.first_stage, each.last_stage),
        "reclaimed": each.reclaimed,
        "minCount": each.min_count,
        "nodeSelector": each.placement.node_selector,
        "topology": _topology(each.placement.topology),
        "flavors": NO_FLAVORS,
        "domains": None,
    }
