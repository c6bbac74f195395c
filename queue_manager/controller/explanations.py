"""Explanations in the API's shape (design, section 6), from what the engine says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from queue_manager.config.human import moment as at
from queue_manager.engine.decision import Blocker, BlockerType, Waiting
from queue_manager.engine.resize import owner_uid
from queue_manager.store.records import WorkloadRow
from queue_manager.store.times import from_microseconds


def explanation_of(
    waiting: Waiting, row: WorkloadRow, rows: Mapping[str, WorkloadRow], now: datetime
) -> Mapping[str, Any]:
    """JSON of a waiting workload's explanation. `since` is when it was created, `asOf` when the numbers were taken,
    `estimatedStart` is known where room is kept for it that will be free by then."""
    start = waiting.estimated_start
    return {
        "reason": waiting.reason.value,
        "message": waiting.message,
        "position": waiting.position,
        "since": row.created_at.isoformat(),
        "asOf": now.isoformat(),
        "estimatedStart": from_microseconds(start).isoformat() if start else None,
        "blockers": [_blocker(blocker, row, rows) for blocker in waiting.blockers],
    }


def _blocker(blocker: Blocker, row: WorkloadRow, rows: Mapping[str, WorkloadRow]) -> Mapping[str, Any]:

    def names(uids: Sequence[str]) -> list[str]:
        found = (rows[uid] for uid in dict.fromkeys(map(owner_uid, uids)) if uid in rows)
        return [f"{row.namespace}/{row.name}" for row in found]

    return {
        "type": blocker.type.value,
        "message": _backs_off(row) if blocker.type is BlockerType.BACKOFF else blocker.message,
        "node": blocker.node,
        "flavor": blocker.flavor,
        "resource": blocker.resource,
        "requested": blocker.requested,
        "available": blocker.available,
        "missing": blocker.missing,
        "holders": names(blocker.holders),
        "enough": names(blocker.enough),
    }


def _backs_off(row: WorkloadRow) -> str:
    """The engine knows microseconds, people want the time, and the last stop in their own words."""
    until = f"is tried again at {at(row.not_before)}" if row.not_before is not None else "is tried again at once"
    return f"{until}: {row.message}" if row.message else until


def outside(row: WorkloadRow) -> Mapping[str, Any]:
    """For a workload that is in no queue: its object has to change first, or a person to release it."""
    return {
        "reason": row.reason,
        "message": row.message,
        "position": None,
        "since": row.created_at.isoformat(),
        "asOf": None,
        "estimatedStart": None,
        "blockers": [{"type": row.reason, "message": row.message, "node": "", "holders": []}],
    }
